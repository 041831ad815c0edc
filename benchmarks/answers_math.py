"""Killable math verification beside math-verify in this process with its time limits off, on the same pairs.

    python -m benchmarks.answers_math                              # the golden pairs if they are there, else the sample
    python -m benchmarks.answers_math --workers 2 --rounds 3

Each measurement runs in a fresh Python, so that no cache is warm for one and cold for the other; starting is not
counted. `product` is the whole way from a reply to a verdict; `workers_alone` sends every pair to a worker, also those
that need none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.answers.math import Pool, Reason, judge, judge_many
from tasks.sources import math as source

GOLDEN = "fixtures/math_golden.json"
TARGET = 1.0
"""Pairs a second of the product, as a multiple of math-verify's."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers_math", description=__doc__.split("\n")[0])
    parser.add_argument("--workers", type=int, default=min(os.cpu_count() or 1, 2), help="(default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the best counts (default: %(default)s)")
    parser.add_argument("--measure", choices=sorted(MEASURES), help="measure one in this process, and print it")
    options = parser.parse_args(arguments)
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.workers)))
        return
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in MEASURES}
    for _ in range(options.rounds):
        for name, found in runs.items():  # in turns, so that what else runs slows all of them
            found.append(_measured(name, options.workers))
    best = {name: max(found, key=lambda one: one["pairs_per_second"]) for name, found in runs.items()}
    ratios = {
        name: round(best[name]["pairs_per_second"] / best["math_verify"]["pairs_per_second"], 2)
        for name in best
        if name != "math_verify"
    }
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "pairs": len(pairs()),
        "workers": options.workers,
        **best,
        "times_math_verify": ratios,
        "target": TARGET,
        "met": ratios["product"] >= TARGET,
    }
    print(json.dumps(result, indent=2))


def pairs() -> list[tuple[str, str]]:
    """Gold and answer: the golden pairs of the shared test data if they are there, else what the sample gives."""
    named = os.environ.get("TURNGYM_SHARED")
    root = Path(named) if named else Path(__file__).resolve().parent.parent.parent / "shared"
    if (root / GOLDEN).is_file():
        return [(pair["gold"], pair["candidate"]) for pair in json.loads((root / GOLDEN).read_text())["pairs"]]
    golds = [task.assertions[0].gold for task in source.load("sample")]  # type: ignore[union-attr]
    return [pair for gold in golds for pair in ((gold, gold), (gold, f"({gold})"), (gold, f"{gold}+1"), (gold, "7"))]


def measure_math_verify(workers: int) -> dict[str, Any]:
    """One after the other, since nothing in it may run in two threads at once to any use."""
    from math_verify import parse, verify

    def both(gold: str, answer: str) -> bool:
        sides = [parse(f"${text}$", parsing_timeout=None) for text in (gold, answer)]
        return verify(*sides, timeout_seconds=None)

    both("x+1", "1+x")
    start = time.perf_counter()
    same = sum(both(gold, answer) for gold, answer in pairs())
    return _rate(time.perf_counter() - start, same)


def measure_product(workers: int) -> dict[str, Any]:
    with Pool(workers) as pool:
        _warm(pool, workers)
        rows = [(gold, rf"The answer is $\boxed{{{answer}}}$.") for gold, answer in pairs()]
        start = time.perf_counter()
        found = judge_many(rows, pool=pool)
        seconds = time.perf_counter() - start
        times: dict[str, list[float]] = {"quick": [], "worker": []}
        for gold, reply in rows:
            start = time.perf_counter()
            one = judge(gold, reply, pool=pool)
            times["quick" if isinstance(one.reason, Reason) else "worker"].append(1000 * (time.perf_counter() - start))
    return {
        **_rate(seconds, sum(one.verdict == "pass" for one in found)),
        "milliseconds_one_at_a_time_warm": {
            name: {
                "n": len(found),
                "p50": round(statistics.median(found), 3),
                "p95": round(sorted(found)[int(0.95 * len(found))], 3),
            }
            for name, found in times.items()
            if found
        },
    }


def measure_workers_alone(workers: int) -> dict[str, Any]:
    with Pool(workers) as pool:
        _warm(pool, workers)
        start = time.perf_counter()
        found = pool.compare_many(pairs())
        return _rate(time.perf_counter() - start, sum(one.status == "same" for one in found))


MEASURES = {
    "math_verify": measure_math_verify,
    "product": measure_product,
    "workers_alone": measure_workers_alone,
}


def _warm(pool: Pool, workers: int) -> None:
    while pool.started < workers:
        pool.compare_many([("x+1", "1+x")] * 4 * workers)


def _rate(seconds: float, same: int) -> dict[str, Any]:
    return {"seconds": round(seconds, 3), "pairs_per_second": round(len(pairs()) / seconds, 1), "same": same}


def _measured(name: str, workers: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.answers_math", "--measure", name, "--workers", str(workers)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    main()
