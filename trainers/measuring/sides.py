"""The sides of a split, measured: whether pool and held-out were equally hard before anything was learned."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean

from tasks.base_rates import BaseRates, base_rates
from tasks.splits import Split
from tasks.task import Task
from trainers.measuring.measure import Measurement


def side_rates(split: Split, measured: Measurement, left_out: Collection[str] = ()) -> BaseRates:
    """Return the pass rate of each side; a task none of whose attempts was graded is undecided, and in no mean.

    Args:
        split: The split.
        measured: All its tasks, measured.
        left_out: Ids of tasks that do not count.
    """

    def pass_rate(task: Task) -> float | None:
        passes = measured.outcomes.get(task.id)
        return fmean(passes) if passes else None

    def counting(tasks: Sequence[Task]) -> tuple[Task, ...]:
        return tuple(task for task in tasks if task.id not in left_out)

    counted = replace(
        split, pool=counting(split.pool), held_out=counting(split.held_out), unseen=counting(split.unseen)
    )
    return base_rates(counted, pass_rate)
