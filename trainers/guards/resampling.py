"""Guard 12, resample budget: whether turn resampling selects, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import quantiles
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory, Turn
from trainers.guards.events import Facts
from trainers.guards.guard import Alarm, Guard, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window


@dataclass
class ResampleBudget(Guard):
    """What is wrong with turn resampling: the wrapper counts and is asked; the episodes say what it cost and gained.

    Attributes:
        extra_limit: Ids sampled and thrown away for each id kept, above which the cost is said by itself.
        target: Share of turns that are meant to be resampled (`turn_resample_rate`), for the suggested eta.
    """

    name: ClassVar[str] = GuardName.RESAMPLE_BUDGET
    extra_limit: float = 1.0
    target: float = 0.15
    warning: Callable[[], str | None] | None = None
    _changes: Window = field(default_factory=lambda: Window(512))
    """Change of uncertainty of the first sample of a turn against the turn before."""
    _extra: Window = field(default_factory=lambda: Window(5))
    _resampled: Window = field(default_factory=lambda: Window(256))
    """What turns that were resampled earned; `_kept` what the others did."""
    _kept: Window = field(default_factory=lambda: Window(256))

    def begin(self, facts: Facts) -> None:
        """Whom to ask."""
        self.warning, self.target = facts.resampling, facts.resample_rate

    def episodes(self, step: int, played: RolloutResult) -> None:
        """Cost and gain of this step."""
        if self.warning is None:
            return
        kept = extra = 0
        for episode in played.trajectories:
            for turn in episode.turns:
                kept += len(turn.ids)
                extra += sum(len(candidate.ids) for candidate in turn.candidates)
                if turn.index:
                    (self._resampled if turn.candidates else self._kept).add(turn.signal)
            for change in _changes(episode):
                self._changes.add(change)
        self._extra.add(extra / kept if kept else None)

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The wrapper's message, with figures; each kind of it once."""
        if self.warning is None:
            return
        if (message := self.warning()) is not None:
            yield warn(_kind_of(message), f"{message} {self._figures(metrics)}".rstrip())
        elif self._extra.full and self._extra.mean > self.extra_limit:
            yield warn(
                "cost",
                f"turn_resample throws away {self._extra.mean:.1f} ids for each that it keeps. Lower "
                f"turn_resample_rate or turn_resample_max_try. {self._figures(metrics)}".rstrip(),
            )

    def _figures(self, metrics: Mapping[str, float]) -> str:
        parts = []
        rate, exhausted = metrics.get("t2po/trigger_rate"), metrics.get("t2po/exhausted_frac")
        if rate:
            parts.append(f"fired on {rate:.0%} of eligible turns")
            if exhausted is not None:
                parts.append(f"{exhausted / rate:.0%} of them used every sample and stayed in the band")
        if len(self._extra):
            parts.append(f"{self._extra.mean:.2f} extra ids for each kept")
        if len(self._resampled) and len(self._kept):
            parts.append(f"resampled turns earn {self._resampled.mean:.3f}, kept ones {self._kept.mean:.3f}")
        if len(self._changes) >= 20:
            cuts = quantiles(self._changes.values, n=100, method="inclusive")
            parts.append(
                f"change of uncertainty p25 {cuts[24]:.2g}, median {cuts[49]:.2g}: suggested eta "
                f"{cuts[max(0, round(100 * self.target) - 1)]:.2g}"
            )
        return f"({'; '.join(parts)})" if parts else ""


def _kind_of(message: str) -> str:
    """What a message of the wrapper is about, whatever its counts are."""
    return re.sub(r"[^a-z]+", "_", message.lower())[:48].strip("_")


def _changes(episode: Trajectory) -> Iterator[float]:
    """Absolute change of uncertainty from turn to turn, as the decision to resample saw it."""
    for before, turn in zip(episode.turns, episode.turns[1:], strict=False):
        first = _first_sample(turn)
        if before.uncertainty is not None and first is not None:
            yield abs(first - before.uncertainty)


def _first_sample(turn: Turn) -> float | None:
    """Uncertainty of the sample that was drawn first: the oldest candidate, or the turn's own."""
    return turn.candidates[0].signal if turn.candidates else turn.uncertainty
