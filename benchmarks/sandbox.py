"""What a sandbox costs: milliseconds per command, episodes per second, and both as ratios to a plain subprocess.

    python -m benchmarks.sandbox [--backends bubblewrap landlock] [--repeat 50]

An episode = reset + put of 10 files, 6 commands, one snapshot. The floor does the same with a temporary folder and
`subprocess.run(["bash", "-c", command])`: no confinement, no shell state. Floor and sandbox alternate, so that a busy
machine slows both; compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sandboxes import Backend, Limits, SupervisedSandbox, open_sandbox, probe

FILES = {f"data/file{number}.txt": f"line {number}\n" * 20 for number in range(10)}
COMMANDS = (
    "ls -l data",
    "cd data",
    "grep -c line file1.txt",
    "sort file2.txt | uniq -c > ../counts.txt",
    "for f in *.txt; do echo $f; done",
    "cat ../counts.txt 2>/dev/null; echo done",
)


def timed(action: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1000


def floor_episode(root: Path) -> None:
    """The same work without a sandbox."""
    shutil.rmtree(root, ignore_errors=True)
    (root / "data").mkdir(parents=True)
    for path, text in FILES.items():
        (root / path).write_text(text)
    for command in COMMANDS:
        subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, stdin=subprocess.DEVNULL)
    {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def episode(sandbox: SupervisedSandbox) -> None:
    """One episode in a warm sandbox."""
    sandbox.open(FILES)
    for command in COMMANDS:
        sandbox.run(command)
    sandbox.snapshot()


def measure(backend: Backend, repeat: int, root: Path) -> None:
    """Print one block of rows for a backend."""
    begin = time.perf_counter()
    with open_sandbox(backend, limits=Limits(command_seconds=60)) as sandbox:
        sandbox.open({})
        start = (time.perf_counter() - begin) * 1000
        plain = lambda command: lambda: subprocess.run(["bash", "-c", command], capture_output=True)  # noqa: E731
        rows: list[tuple[str, Callable[[], object], Callable[[], object] | None]] = [
            ("command `echo hi`", lambda: sandbox.run("echo hi"), plain("echo hi")),
            ("command `ls | wc -l`", lambda: sandbox.run("ls | wc -l"), plain("ls | wc -l")),
            ("turn: run_and_snapshot", lambda: sandbox.run_and_snapshot("echo hi"), plain("echo hi")),
            ("reset + put 10 files", lambda: sandbox.open(FILES), None),
            ("snapshot", sandbox.snapshot, None),
            ("episode", lambda: episode(sandbox), lambda: floor_episode(root)),
        ]
        print(f"\n{backend} (a new sandbox took {start:.0f} ms)")
        print(f"  {'what':<26}{'ms median':>10}{'p95':>8}{'floor ms':>10}{'ratio':>8}{'per second':>12}")
        for name, action, floor in rows:
            action()
            times, floors = [], []
            for _ in range(repeat):
                times.append(timed(action))
                if floor is not None:
                    floors.append(timed(floor))
            median, p95 = statistics.median(times), sorted(times)[int(0.95 * (len(times) - 1))]
            line = f"  {name:<26}{median:>10.2f}{p95:>8.2f}"
            if floors:
                base = statistics.median(floors)
                line += f"{base:>10.2f}{median / base:>8.2f}"
            else:
                line += f"{'-':>10}{'-':>8}"
            print(line + f"{1000 / median:>12.1f}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=[backend.value for backend in Backend])
    parser.add_argument("--repeat", type=int, default=50)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {arguments.repeat} repetitions")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.backends:
            found = probe(name)
            if found.ok:
                measure(found.backend, arguments.repeat, Path(folder, "floor"))
            else:
                print(f"\n{name}: skipped, {found.reason}")


if __name__ == "__main__":
    main()
