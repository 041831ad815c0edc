"""The report of a long run: how long it takes to write, and how large it is.

    python -m benchmarks.report
    python -m benchmarks.report --steps 1000 --keep runs/long

Makes a run folder as a run leaves it (training steps of 4 tasks with 4 attempts, held-out evaluations of 186 tasks with
two decode settings every 10 steps, replies of 80 tokens) and times `python -m trainers.report` on it, as a command. The
floor beside it is what no such command can go below: loading its modules. On a busy machine wall time says little: CPU
time stands beside it. Target: 3 s of wall time for 200 steps on an idle machine.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.trainers.fake_run import make_run


def timed(arguments: Sequence[str]) -> tuple[float, float]:
    """Wall and CPU seconds of a Python process."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--held_out", type=int, default=186, help="tasks")
    parser.add_argument("--tokens", type=int, default=80, help="of each reply")
    parser.add_argument("--repeats", type=int, default=3, help="the fastest counts")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the run folder there")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = make_run(
            args.keep or Path(scratch) / "run", steps=args.steps, n_held_out=args.held_out, tokens=args.tokens
        )
        for name, command in (
            ("floor: loading the modules", ["-c", "import trainers.report"]),
            (f"report of {args.steps} steps", ["-m", "trainers.report", str(folder)]),
        ):
            wall, cpu = min(timed(command) for _ in range(args.repeats))
            print(f"{name}: {wall:.2f} s ({cpu:.2f} s of CPU)")
        print(f"page: {(folder / 'report.html').stat().st_size / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
