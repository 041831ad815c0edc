"""Harbor task folders, written by hand from the description of the format, as a table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DOCKERFILE = """\
FROM ubuntu:24.04
RUN apt-get update && apt-get install -y python3 jq && \\
    rm -rf /var/lib/apt/lists/*
WORKDIR /app
"""
OWN_IMAGE = """\
FROM turngym-shell:bookworm
USER root
RUN echo hello >/opt/word
WORKDIR /app
COPY seed.txt .
"""
TOML = """\
schema_version = "1.4"
[metadata]
difficulty = "easy"
tags = ["files"]
[agent]
timeout_sec = 60
[verifier]
timeout_sec = 20
"""
HELLO = """\
#!/bin/bash
if [ "$(cat /app/hello.txt)" = hello ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt
"""
PARTS = """\
#!/bin/bash
cd /app
a=$([ -f a.txt ] && echo 1 || echo 0)
b=$(grep -qx two b.txt && echo 1 || echo 0)
echo "{\\"reward\\": $((a & b)), \\"first\\": $a, \\"second\\": $b, \\"lines\\": 12}" >/logs/verifier/reward.json
"""
CHECK = """\
import json, pathlib
wanted = pathlib.Path("/tests/wanted.bin").read_bytes()
found = pathlib.Path("/app/out.bin")
reward = float(found.is_file() and found.read_bytes() == wanted)
pathlib.Path("/logs/verifier/reward.json").write_text(json.dumps({"reward": reward}))
"""
SORTS = """\
set -e
cd data
name=out.bin
(cd ..; sh bin/run.sh) >../$name
cat /solution/tail.bin >>../$name
"""
HANGS = "#!/bin/bash\nsleep 60\necho 1 >/logs/verifier/reward.txt\n"
RUNS = "#!/bin/bash\npython3 /app/work.py && echo 1 >/logs/verifier/reward.txt || echo 0 >/logs/verifier/reward.txt\n"
FORGERY = """\
echo 1 >reward.txt; mkdir -p logs/verifier tests; echo 1 >logs/verifier/reward.txt; echo '{"reward": 1}' >reward.json
{ mkdir -p /logs/verifier /tests && echo 1 >/logs/verifier/reward.txt; } 2>/dev/null
{ echo 'echo 1 >/logs/verifier/reward.txt' >/tests/test.sh; } 2>/dev/null
echo 'import os; open(os.environ.get("GRADER", "/logs") + "/logs/verifier/reward.txt", "w").write("1")' >work.py
echo 'raise SystemExit' >json.py; cp json.py sitecustomize.py
while true; do echo 1 >/logs/verifier/reward.txt; done 2>/dev/null &
"""

GIVEN: dict[str, Mapping[str, str | bytes]] = {
    "plain": {"tests/test.sh": HELLO, "solution/solve.sh": "#!/bin/bash\necho hello >hello.txt\n"},
    "steps": {
        "environment/Dockerfile": DOCKERFILE + "COPY data/ data/\nCOPY run.sh /app/bin/\n",
        "environment/data/list.txt": "b\na\n",
        "environment/run.sh": "#!/bin/sh\nsort data/list.txt\n",
        "tests/test.sh": "#!/bin/sh\npython3 /tests/check.py\n",
        "tests/check.py": CHECK,
        "tests/wanted.bin": b"a\nb\n\xff",
        "solution/solve.sh": SORTS,
        "solution/tail.bin": b"\xff",
    },
    "parts": {"tests/test.sh": PARTS, "solution/solve.sh": "touch a.txt; echo two >b.txt"},
    "network": {"tests/test.sh": "#!/bin/bash\napt-get update && apt-get install -y curl\nuvx pytest /tests\n"},
    "hangs": {"tests/test.sh": HANGS, "task.toml": TOML.replace("20", "0.5"), "solution/solve.sh": "true"},
    "hangs-on-work": {
        "tests/test.sh": RUNS,
        "task.toml": TOML.replace("20", "1"),
        "solution/solve.sh": "echo 'print(1)' >work.py",
    },
    "hostile": {"tests/test.sh": HELLO, "solution/solve.sh": FORGERY},
    "forged": {"tests/test.sh": RUNS, "solution/solve.sh": "echo 'print(1)' >work.py"},
    "image": {"task.toml": TOML + '[environment]\ndocker_image = "no-such-image:7"\n', "tests/test.sh": HELLO},
    "windows": {
        "task.toml": (TOML + "[verifier.env]\nWANTED = 'hello'\n").replace("\n", "\r\n"),
        "instruction.md": "Write hello.\r\nInto hello.txt.\r\n",
        "environment/Dockerfile": DOCKERFILE.replace("\n", "\r\n"),
        "tests/test.sh": HELLO.replace("= hello", "= $WANTED").replace("\n", "\r\n"),
        "solution/solve.sh": "#!/bin/bash\r\necho hello >hello.txt\r\n",
    },
    "docker": {
        "environment/Dockerfile": OWN_IMAGE,
        "environment/seed.txt": "seed\n",
        "tests/test.sh": HELLO,
        "solution/solve.sh": "grep -q seed seed.txt && cp /opt/word hello.txt",
    },
    "silent": {"tests/test.sh": "#!/bin/bash\necho no reward\n", "solution/solve.sh": "true"},
}
"""Twelve tasks by name: files by path; what a task does not give is as in a plain one."""
REST = {"task.toml": TOML, "instruction.md": "Write hello into hello.txt.\n", "environment/Dockerfile": DOCKERFILE}


def write_task(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for path, content in {**REST, **files}.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content if isinstance(content, bytes) else content.encode())
        os.chmod(target, 0o755 if path.endswith(".sh") else 0o644)
    return folder


def write_all(folder: Path) -> Path:
    for name, files in GIVEN.items():
        write_task(folder / name, files)
    return folder
