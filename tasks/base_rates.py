"""Whether both sides of a split are equally hard for a policy that has learned nothing yet."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tasks.splits import Choice, Split
from tasks.task import Task

SIGNIFICANT = 1.96
"""Standard errors that pass rates must lie apart before the sides count as different (95 %)."""


@dataclass(frozen=True, slots=True)
class SideRate:
    """How a policy does on one side.

    Attributes:
        side: `pool`, `held_out` or `unseen`.
        tasks: Tasks measured.
        undecided: Tasks without a rate (infrastructure, or a grader that failed); they are in no mean.
        rate: Mean pass rate in [0, 1]; None without a measured task.
        error: Standard error of that mean over tasks; None below two tasks.
    """

    side: str
    tasks: int
    undecided: int
    rate: float | None
    error: float | None

    def __str__(self) -> str:
        """Return `pool: 40.0 % of 25 tasks`."""
        shown = "nothing measured" if self.rate is None else f"{100 * self.rate:.1f} % of {self.tasks} tasks"
        return f"{self.side}: {shown}" + (f" ({self.undecided} undecided)" if self.undecided else "")


@dataclass(frozen=True, slots=True)
class BaseRates:
    """Pass rates of every side before training, and what they say about the split."""

    sides: tuple[SideRate, ...]
    choice: Choice

    @property
    def warnings(self) -> tuple[str, ...]:
        """What makes the sides hard to compare; empty if nothing does."""
        found: list[str] = []
        if self.choice is Choice.OUTCOME:
            found.append("the split was chosen by outcome: a gap between the sides is no sign of overfitting")
        pool, *others = self.sides
        for other in others:
            if pool.rate is None or other.rate is None or pool.error is None or other.error is None:
                continue
            gap = abs(pool.rate - other.rate)
            # with no spread at all the error is 0, and any gap counts
            if gap > SIGNIFICANT * math.hypot(pool.error, other.error) and other.side == "held_out":
                found.append(
                    f"pool and held_out differ by {100 * gap:.0f} points before any training: not exchangeable "
                    "(was the split filtered by outcome?). Compare each side with its own start"
                )
        return tuple(found)

    def __str__(self) -> str:
        """Return one line per side and warning."""
        return "\n".join([*map(str, self.sides), *(f"warning: {text}" for text in self.warnings)])


def base_rates(split: Split, pass_rate: Callable[[Task], float | None]) -> BaseRates:
    """Measure a policy on every side of a split.

    Args:
        split: The split.
        pass_rate: Plays one task with the policy (as often as it likes) and returns the share of passes in [0, 1], or
            None where nothing could be decided.

    Raises:
        ValueError: a rate outside [0, 1].
    """
    return BaseRates(tuple(_measure(side, tasks, pass_rate) for side, tasks in split.sides.items()), split.choice)


def _measure(side: str, tasks: Sequence[Task], pass_rate: Callable[[Task], float | None]) -> SideRate:
    rates: list[float] = []
    for task in tasks:
        rate = pass_rate(task)
        if rate is None:
            continue
        if not 0 <= rate <= 1:  # also refuses NaN
            raise ValueError(f"the pass rate of {task.id} is {rate}: it must lie between 0 and 1")
        rates.append(rate)
    mean = math.fsum(rates) / len(rates) if rates else None
    error = None
    if mean is not None and len(rates) > 1:
        variance = math.fsum((rate - mean) ** 2 for rate in rates) / (len(rates) - 1)
        error = math.sqrt(variance / len(rates))
    return SideRate(side, len(rates), len(tasks) - len(rates), mean, error)
