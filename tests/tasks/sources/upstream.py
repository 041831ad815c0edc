"""What the tests of upstream ClawGym tasks share: a task folder of our own, upstream's verdict, an agent that tries."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from sandboxes.sandbox import FileEntry, Sandbox
from tasks.sources.clawgym import MOUNT, REWARD, Folder
from tasks.task import Task

CONTENT = {
    "json": "{}",
    "jsonl": "{}",
    "csv": "id,name,total\\n1,first,2\\n",
    "md": "# Summary\\n\\n- first: 2\\n",
    "py": "print(2)\\n",
    "sh": "#!/bin/sh\\necho 2\\n",
    "html": "<html><body><h1>Summary</h1></body></html>\\n",
}
"""What the agent writes into a file that a request names, by suffix; everything else gets a line of text."""

_NAMED = re.compile(r"(?<![\w/.-])[\w-]+(?:/[\w.-]+)*\.(?:json|jsonl|csv|md|txt|py|sh|html|yaml|yml|xml|log)\b")


def attempt(task: Task) -> list[str]:
    """Commands of an agent that only makes the files which the request names and which are not there yet."""
    laid = task.files()
    wanted = [path for path in dict.fromkeys(_NAMED.findall(task.intent)) if path not in laid and ".." not in path]
    commands = []
    for path in wanted:
        name = shlex.quote(path)
        text = CONTENT.get(path.rpartition(".")[2], "Summary: 2 done\\n")
        commands.append(f"mkdir -p -- \"$(dirname -- {name})\" && printf '{text}' > {name}")
    return commands


def upstream_score(folder: Folder, sandbox: Sandbox, commands: list[str]) -> tuple[float | None, str]:
    """What upstream's own `reward.sh` prints after the commands, and what it said on stderr; None if it fails."""
    entries = {path: entry for path, entry in folder.inputs.items()}
    sandbox.open(entries, workdir=MOUNT)
    for command in commands:
        sandbox.run(command)
    sandbox.run("rm -rf reward", state="clean")
    sandbox.put({f"{REWARD}/{name}": entry for name, entry in folder.reward.items()})
    result = sandbox.run(f"bash {MOUNT}/{REWARD}/reward.sh", state="clean", timeout=120.0)
    if result.exit_code != 0:
        return None, result.stderr_text
    return float(result.stdout_text.strip().splitlines()[-1]), result.stderr_text


def write_folder(
    root: Path,
    name: str = "task_0000",
    *,
    check: str = "print('{}')",
    files: dict[str, bytes] | None = None,
    **entry: Any,
) -> Path:
    """Write a task folder in the shape of the upstream ones; nothing in it is theirs."""
    folder = root / name
    (folder / REWARD).mkdir(parents=True)
    data = {"task_id": name, "user_query": "Make out.json.", "input_mount_dir": MOUNT, "metadata": {}, **entry}
    data = {key: value for key, value in data.items() if value is not ...}
    (folder / "data_entry.json").write_text(json.dumps(data), encoding="utf-8")
    (folder / REWARD / "check.py").write_text(check, encoding="utf-8")
    for path, content in (files or {}).items():
        file = folder / "input_files" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return folder


def entry_of(text: str) -> FileEntry:
    """A file entry with that text."""
    return FileEntry(content=text.encode(), size=len(text.encode()))
