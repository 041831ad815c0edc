"""Part of guard 10: a policy that submits at once, or never any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from trainers.guards.guard import Alarm, Guard, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window


@dataclass
class StopsAtOnce(Guard):
    """Collapse to an immediate submission: episodes of one turn where there were more, nearly all submitted.

    Attributes:
        able: Pass rate that a policy must have had once, for less of it to be a fall.
    """

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    able: float = 0.05
    _turns: Window = field(default_factory=lambda: Window(4))
    _submitted: Window = field(default_factory=lambda: Window(4))
    _passed: Window = field(default_factory=lambda: Window(4))
    _best: float = 0.0
    _start: float | None = None
    """Mean turns of the first window."""

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Turns near 1 and fewer than at the start, submitted near 1, the pass rate under half of its best window."""
        if "env/pass_rate" not in metrics:
            return
        self._turns.add(metrics["env/mean_turns"])
        self._submitted.add(metrics["env/submitted"])
        if not self._passed.add(metrics["env/pass_rate"]):
            return
        passed = self._passed.mean
        if self._start is None:
            self._start = self._turns.mean
        self._best = max(self._best, passed)
        fallen = self._best > self.able and passed < 0.5 * self._best
        if self._turns.mean <= 1.25 < self._start and self._submitted.mean >= 0.9 and fallen:
            yield warn(
                "stops_at_once",
                f"collapse: the policy stops at once (mean turns {self._turns.mean:.2f}, was {self._start:.2f}; "
                f"submitted {self._submitted.mean:.0%}, pool pass {passed:.0%}, was {self._best:.0%}). "
                "Lower learning_rate, keep scale_rewards=none, or start from a stronger policy; `best/` "
                "holds the weights from before.",
            )


@dataclass
class NeverStops(Guard):
    """Collapse to never submitting: nearly every episode spends its whole turn budget."""

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    _submitted: Window = field(default_factory=lambda: Window(4))
    _first: float | None = None

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Almost nothing is submitted any more, and more was at the start."""
        if "env/submitted" not in metrics:
            return
        if self._first is None:
            self._first = metrics["env/submitted"]
        if self._submitted.add(metrics["env/submitted"]) and self._submitted.mean <= 0.05 and self._first > 0.2:
            yield warn(
                "never_stops",
                f"collapse: the policy never submits (submitted {self._submitted.mean:.0%}, was {self._first:.0%} at "
                "the start): every episode spends its turn budget. Raise turn_penalty or lower learning_rate.",
            )
