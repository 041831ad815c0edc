"""The sides of a split, measured: whether pool and held-out were equally hard before anything was learned."""

from __future__ import annotations

from statistics import fmean

from tasks.base_rates import BaseRates, base_rates
from tasks.splits import Split
from tasks.task import Task
from trainers.measuring.measure import Measurement


def side_rates(split: Split, measured: Measurement) -> BaseRates:
    """Return the pass rate of each side; a task none of whose attempts was graded is undecided, and in no mean."""

    def pass_rate(task: Task) -> float | None:
        passes = measured.outcomes.get(task.id)
        return fmean(passes) if passes else None

    return base_rates(split, pass_rate)
