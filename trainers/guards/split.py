"""Guard 2, split lint: whether a gap between pool and held-out could mean anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from tasks.splits import Choice
from trainers.guards.events import Facts, Measured
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName
from trainers.measuring.measure import Measurement, measure
from trainers.rollouts.groups import first_drawn
from trainers.stats import fisher_exact

SAMPLED = "sampled"
"""The held-out arm that decodes as training does."""


@dataclass
class SplitLint(Guard):
    """Sides that overlap, were chosen by outcome, or are not equally hard before anything is learned.

    Attributes:
        alpha: p-value below which the sides differ; on effective counts, for the K attempts at a task are alike.
        gap: Difference of pass rates below which nothing is said, whatever its p-value.
        compares: The pool's first step is a fair draw of it; not under a curriculum.
    """

    name: ClassVar[str] = GuardName.SPLIT_LINT
    alpha: float = 0.01
    gap: float = 0.1
    compares: bool = True
    _baseline: list[float] = field(default_factory=list)
    """Passed, graded and effective number of the held-out episodes of step 0."""
    _labels: list[str] = field(default_factory=list)

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Overlap, and how the sides were chosen."""
        ids = {task.id for task in facts.pool}
        twins = {task.meaning_hash for task in facts.pool}
        shared = [task.id for task in facts.held_out if task.id in ids or task.meaning_hash in twins]
        if shared:
            yield warn(
                "overlap",
                f"split: {len(shared)} of {len(facts.held_out)} held-out tasks are also in the pool, by id or as "
                f"exact twins ({', '.join(shared[:3])}): their figure measures memory. Take them out of one side.",
            )
        self.compares = not facts.config.curriculum
        if facts.held_out and not self.compares:
            yield note(
                "curriculum",
                "curriculum: the first step's tasks are no fair draw of the pool, so its base rate is not compared "
                "with that of the held-out tasks.",
            )
        if facts.choice is Choice.OUTCOME:
            yield note(
                "outcome",
                "split: the sides were chosen by outcome, so they differ by design: a gap between them is not "
                "overfitting. Draw the split with a seed (`python -m tasks split`).",
            )

    def measured(self, held_out: Measured) -> None:
        """Keep the baseline."""
        if held_out.step == 0:
            arm = held_out.arms.get(SAMPLED) or held_out.arms[held_out.deciding]
            self._baseline = [arm.passed, arm.graded, arm.effective_n]
            self._labels = [arm.sampling]

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """The pool's first step against the baseline: nothing was learned in between."""
        if step != 1 or not self.compares or not self._baseline or not self._baseline[1]:
            return
        pool = measure(first_drawn(played.trajectories), played.label)
        if pool.pass_rate is None:
            return
        passed, graded, effective = self._baseline
        rate = passed / graded
        p = fisher_exact(*_effective(pool), round(rate * effective), round(effective))
        if abs(pool.pass_rate - rate) >= self.gap and p < self.alpha:
            decodes = "" if played.label == self._labels[0] else f" Decoding differs, too: {played.label} and here "
            yield warn(
                "not_exchangeable",
                f"split: at the start the pool passes {pool.passed}/{pool.graded} ({pool.pass_rate:.0%}), held-out "
                f"{passed:.0f}/{graded:.0f} ({rate:.0%}), p={p:.2g}: not exchangeable (was it filtered by outcome?)."
                f"{decodes and decodes + self._labels[0] + '.'} A gap between them is not overfitting; compare each "
                "side with its own start, or draw the split with a seed.",
            )


FEW = 10
"""Tasks below which their attempts do not show how unlike the tasks are: only the tasks themselves then count."""


def _effective(m: Measurement) -> tuple[int, int]:
    """Passed and graded, as independent episodes."""
    n = round(m.effective_n) if m.tasks >= FEW else m.tasks
    return round((m.pass_rate or 0.0) * n), n
