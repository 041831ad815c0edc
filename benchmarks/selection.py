"""How often a run that learns nothing is told to be better: by its held-out tasks, and by its confirmation.

    python -m benchmarks.selection
    python -m benchmarks.selection --runs 500 --measurements 4

No model: every task has a fixed difficulty, drawn once per run, and each measurement passes it with that probability,
whatever the step. The best of the measurements is chosen as a run chooses it (ties keep the earlier, the start
competes), and then compared with the start twice: on the tasks that chose it, and on fresh ones (nothing is measured
where the start itself was chosen). Both tests are the trainer's. What is over 5 % is the price of having chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from trainers.stats import mcnemar, wilson

ALPHA = 0.05
SKILLED = (1.2, 0.8)
"""Parameters of the beta distribution of difficulties: mean 0.6, all kinds of tasks."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """One run that learns nothing.

    Attributes:
        held_out_p: Paired p of the chosen step against the start, on the tasks that chose it.
        held_out_points: Difference of the pass rates there, in points.
        confirmed_p: The same on fresh tasks; 1 where the start was chosen.
        confirmed_points: The difference there; 0 where the start was chosen.
    """

    held_out_p: float
    held_out_points: float
    confirmed_p: float
    confirmed_points: float


def simulate(rng: np.random.Generator, *, tasks: int, measurements: int, fresh: int) -> Chosen:
    """One run: `measurements` of `tasks` held-out tasks, the start among them, then the confirmation on `fresh`."""
    chance = rng.beta(*SKILLED, size=tasks)
    passes = rng.random((measurements, tasks)) < chance
    best = int(np.argmax(passes.sum(axis=1)))  # the first of the largest
    held_out_p, held_out_points = _against(passes[0], passes[best])
    if best == 0:
        return Chosen(held_out_p, held_out_points, 1.0, 0.0)
    again = rng.random((2, fresh)) < rng.beta(*SKILLED, size=fresh)
    return Chosen(held_out_p, held_out_points, *_against(again[0], again[1]))


def _against(start: np.ndarray, best: np.ndarray) -> tuple[float, float]:
    """Paired p and difference in points."""
    better, worse = int(np.sum(best & ~start)), int(np.sum(start & ~best))
    return mcnemar(better, worse), 100 * (better - worse) / len(start)


def rows(runs: int, measurements: Sequence[int], *, tasks: int, fresh: int, seed: int) -> Iterator[str]:
    """A line for people per number of measurements."""
    for count in measurements:
        rng = np.random.default_rng([seed, count])
        found = [simulate(rng, tasks=tasks, measurements=count, fresh=fresh) for _ in range(runs)]
        old, new = (
            sum(p < ALPHA for p in ps) for ps in zip(*((c.held_out_p, c.confirmed_p) for c in found), strict=True)
        )
        points = [fmean(c.held_out_points for c in found), fmean(c.confirmed_points for c in found)]
        yield (
            f"{tasks} tasks x {count:>2} measurements, {runs} runs: p < {ALPHA:g} on the tasks that chose "
            f"{_share(old, runs)}, mean {points[0]:+.2f} points; on {fresh} fresh tasks {_share(new, runs)}, "
            f"mean {points[1]:+.2f} points"
        )


def _share(count: int, of: int) -> str:
    interval = wilson(count, of)
    return f"{100 * count / of:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--measurements", type=int, nargs="+", default=[4, 11])
    parser.add_argument("--tasks", type=int, default=320, help="held out")
    parser.add_argument("--fresh", type=int, default=186, help="of the confirmation (those of the quickstart)")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args(argv)
    for line in rows(a.runs, a.measurements, tasks=a.tasks, fresh=a.fresh, seed=a.seed):
        print(line)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
