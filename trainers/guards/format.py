"""Guard of question sets: whether answers drift from the form that a strict reading wants, or only towards it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from tasks.answers.readings import is_question
from tasks.task import Task
from trainers.answers import Read, Readings, read
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, Measured, note, warn
from trainers.guards.levels import GuardName
from trainers.stats import PairedTest, paired_test

# The gap is the share of held-out episodes that the verifier passes and the strict reading does not: right, and not in
# the form that was asked for (`trainers.answers`). Each measurement is compared with the first one, task by task.


@dataclass
class FormatDrift(Guard):
    """The gap between the verifier's and the strict figure moves.

    Attributes:
        alpha: Paired p-value below which a gap or a figure is another one.
        gap: Difference of gaps below which nothing is said.
    """

    name: ClassVar[str] = GuardName.FORMAT_DRIFT
    alpha: float = 0.01
    gap: float = 0.1
    tasks: Sequence[Task] = ()
    _first: dict[str, dict[str, list[bool]]] = field(default_factory=dict)
    """Of the first measurement, by figure (`unmarked`, `verifier`, `strict`) and task."""
    _gap: float | None = None
    """Of the last measurement, less that of the first."""

    def begin(self, facts: Facts) -> None:
        """Which held-out tasks are questions."""
        self.tasks = [task for task in facts.held_out if is_question(task.assertions)]

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Read the answers again, and compare with the first measurement."""
        if not self.tasks:
            return
        episodes = list(read(self.tasks, held_out.episodes.get(held_out.deciding, ())))
        if not episodes:
            return
        now = _by_task(episodes)
        if not self._first:
            self._first = now
            return
        gap, right, strict = (paired_test(self._first[name], now[name]) for name in ("unmarked", "verifier", "strict"))
        self._gap = gap.difference
        figures = _figures(Readings.of(episodes), held_out.step, gap)
        if self._moved(gap) and gap.difference >= self.gap:
            yield warn(
                "drift",
                f"format: {figures}: more answers are right without the form that was asked for. A strict evaluator "
                "(as published tables have it) will see less than the run does. Give `format_weight` a value above 0, "
                "or quote all columns.",
            )
        if self._moved(gap) and gap.difference <= -self.gap and self._moved(strict) and not self._moved(right):
            yield note(
                "format_only",
                f"format: {figures}: the strict figure rose because answers take the form that it wants; the "
                f"verifier's did not (p={right.p_value:.2g}). That is learning the form, not the task.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How far the gap has moved."""
        if self._gap is not None:
            yield Gauge("share right without the form, above the start's", self._gap, Fires.FROM, self.gap)

    def _moved(self, test: PairedTest) -> bool:
        return test.tasks > 0 and test.p_value < self.alpha


def _by_task(episodes: Sequence[Read]) -> dict[str, dict[str, list[bool]]]:
    found: dict[str, dict[str, list[bool]]] = {"unmarked": {}, "verifier": {}, "strict": {}}
    for one in episodes:
        for name, passes in found.items():
            passes.setdefault(one.task, []).append(bool(getattr(one, name)))
    return found


def _figures(now: Readings, step: int, gap: PairedTest) -> str:
    return (
        f"at step {step} the strict reading passes {now.strict}, the flexible one {now.flexible} and the verifier "
        f"{now.verifier} of {now.n} held-out episodes; right without the form are {now.unmarked}, "
        f"{100 * gap.difference:+.0f} points since the first measurement (paired p={gap.p_value:.2g})"
    )
