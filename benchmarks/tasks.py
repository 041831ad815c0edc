"""Tasks beside their targets: loading upstream ClawGym tasks, proving generated ones, grading one.

    python -m benchmarks.tasks                                     # the first backend that works
    python -m benchmarks.tasks --archive data/clawgym_train.tar.xz --prove 1000

Loading is measured on the archive given, else on the one in the folder of shared test data, else left out; what it
takes is scaled to 2,000 tasks. The processor's seconds stand beside the clock's: on a busy machine the clock says how
long one waits, the processor how much work it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.env import make_task
from sandboxes import open_sandbox
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.check import prove_all
from tasks.proof import Status
from tasks.sources import load_tasks

ARCHIVE = "data/clawgym/clawgym_train.tar.xz"
TARGETS = {"load_2000_seconds": 3.0, "proofs_per_second": 12.0, "grade_ms": 2.0}
"""At most, at least, at most."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__.split("\n")[0])
    parser.add_argument("--archive", type=Path, help="upstream tasks (default: the shared test data, if it is there)")
    parser.add_argument("--prove", type=int, default=200, help="generated tasks to prove (default: %(default)s)")
    parser.add_argument("--sandbox", default="auto", help="backend (default: %(default)s)")
    parser.add_argument(
        "--jobs", type=int, default=min(os.cpu_count() or 1, 2), help="sandboxes (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "targets": TARGETS,
        "load": measure_loading(options.archive or shared_archive()),
        "prove": measure_proving(options.prove, options.sandbox, options.jobs),
        "grade": measure_grading(options.sandbox),
    }
    print(json.dumps(result, indent=2))


def shared_archive() -> Path | None:
    """The archive in the folder of shared test data: `$TURNGYM_SHARED`, else `shared` beside the checkout."""
    named = os.environ.get("TURNGYM_SHARED")
    root = Path(named) if named else Path(__file__).resolve().parent.parent.parent / "shared"
    return root / ARCHIVE if (root / ARCHIVE).is_file() else None


def measure_loading(archive: Path | None, repeats: int = 3) -> dict[str, Any]:
    """Load the archive several times; the best counts, since what else runs can only make it slower."""
    if archive is None:
        return {"skipped": "no archive: give --archive, or set TURNGYM_SHARED"}
    walls, works = [], []
    for _ in range(repeats):
        wall, work = time.perf_counter(), time.process_time()
        count = len(load_tasks(f"clawgym:{archive}"))
        walls.append(time.perf_counter() - wall)
        works.append(time.process_time() - work)
    return {
        "tasks": count,
        "seconds": [round(value, 2) for value in walls],
        "processor_seconds": [round(value, 2) for value in works],
        "load_2000_seconds": round(min(walls) * 2000 / count, 2),
        "target": TARGETS["load_2000_seconds"],
        "met": min(walls) * 2000 / count <= TARGETS["load_2000_seconds"],
    }


def measure_proving(count: int, backend: str, jobs: int) -> dict[str, Any]:
    """Prove generated tasks of the mix; the sandboxes' start is part of it."""
    tasks = load_tasks(f"generated:quickstart?n={count}&seed=1")
    start = time.perf_counter()
    counts = Counter(proof.status for proof in prove_all(tasks, lambda: open_sandbox(backend), jobs))
    seconds = time.perf_counter() - start
    return {
        "tasks": count,
        "sandboxes": jobs,
        "proven": counts[Status.PROVEN],
        "seconds": round(seconds, 1),
        "proofs_per_second": round(count / seconds, 1),
        "target": TARGETS["proofs_per_second"],
        "met": count / seconds >= TARGETS["proofs_per_second"],
    }


def measure_grading(backend: str, repeats: int = 500) -> dict[str, Any]:
    """Grade one task with five file assertions on a snapshot: what comes on top of the sandbox's own time."""
    task = make_task(12)
    with open_sandbox(backend) as sandbox:
        sandbox.open(task.files())
        initial = sandbox.snapshot()
        sandbox.run("mkdir -p out && cp docs/f0.txt out/a.txt && printf '# Title\\n' > out/b.md")
        outcome = Outcome(sandbox.snapshot(), initial)
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        grade(task, outcome)
        times.append(1e3 * (time.perf_counter() - start))
    median = statistics.median(times)
    return {
        "assertions": len(task.assertions),
        "grade_ms": {"median": round(median, 4), "p95": round(statistics.quantiles(times, n=20)[-1], 4)},
        "target": TARGETS["grade_ms"],
        "met": median <= TARGETS["grade_ms"],
    }


if __name__ == "__main__":
    main()
