"""How long it takes to load many Harbor task folders, against reading their files: python -m benchmarks.harbor_loading

Writes N folders (2,000 by default) with all that a task has, reads each file once, then loads them as tasks. Wants a
factor of at most 3; prints both times and the factor, the least of three rounds each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tasks.harbor.read import load

FILES = {
    "task.toml": 'schema_version = "1.4"\n[metadata]\ndifficulty = "easy"\ntags = ["a", "b"]\n'
    "[agent]\ntimeout_sec = 900.0\n[verifier]\ntimeout_sec = 300.0\n[environment]\ncpus = 1\nmemory_mb = 2048\n",
    "instruction.md": "Read the numbers in data/ and write their sum into sum.txt.\n" * 10,
    "environment/Dockerfile": "FROM ubuntu:24.04\nRUN apt-get update && apt-get install -y python3\nWORKDIR /app\n"
    "COPY data/ data/\n",
    **{f"environment/data/{number}.txt": f"{number}\n" * 50 for number in range(5)},
    "tests/test.sh": "#!/bin/bash\npython3 /tests/check.py\n",
    "tests/check.py": "import pathlib\n" + "# a line of a checker\n" * 100,
    "tests/wanted.json": '{"sum": 500}\n' * 20,
    "solution/solve.sh": "#!/bin/bash\ncat data/*.txt | paste -sd+ | bc >sum.txt\n",
}


def write(folder: Path, n: int) -> None:
    for number in range(n):
        for path, text in FILES.items():
            target = folder / f"task-{number:05}" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text if path != "instruction.md" else f"Task {number}. {text}")


def read(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.read_bytes()


def least(job: Callable[[Path], object], folder: Path) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        job(folder)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-n", type=int, default=2000, help="folders (default 2000)")
    n = parser.parse_args().n
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, n)
        reading, loading = least(read, folder), least(load, folder)
    factor = loading / reading
    print(f"{n} tasks of {len(FILES)} files: read {reading:.2f} s, loaded {loading:.2f} s, factor {factor:.2f}")
    return factor > 3


if __name__ == "__main__":
    sys.exit(main())
