"""Guard 9, signal meter: which groups can teach something, and why the others cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.credit import CreditSettings, TurnSignal
from trainers.guards.events import Facts
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window
from trainers.rollouts.flat import told_apart
from trainers.rollouts.groups import trained_groups
from trainers.stats import wilson

SAME = 1e-6
"""Rewards closer than this are equal."""


class GroupKind(StrEnum):
    """What the rewards of the attempts at one task say about each other."""

    SIGNAL = "signal"
    """They differ."""
    ALL_PASS = "all_pass"
    """Equal, and every attempt passed."""
    ALL_FAIL = "all_fail"
    """Equal, and none passed."""
    TIE = "tie"
    """Equal, with passes and failures, or with nothing to tell."""
    LOST = "lost"
    """Fewer than two attempts have a reward (infrastructure)."""


@dataclass(frozen=True, slots=True)
class Meter:
    """Groups of one step by kind; `turn_signal` groups without episode signal whose turns have advantages."""

    counts: Mapping[GroupKind, int]
    turn_signal: int

    @property
    def groups(self) -> int:
        """All of them."""
        return sum(self.counts.values())

    def metrics(self) -> dict[str, float]:
        """Under the names of the logs: shares of groups."""
        shares = {f"groups/{kind}_frac": self.counts.get(kind, 0) / self.groups for kind in GroupKind}
        return {**shares, "groups/turn_signal_only_frac": self.turn_signal / self.groups} if self.groups else {}


def read_groups(
    episodes: Sequence[Trajectory],
    settings: CreditSettings | None = None,
    signal: TurnSignal = TurnSignal.PROGRESS,
) -> Meter:
    """Sort the groups of a step that are trained on; those of a task drawn twice are two.

    Args:
        episodes: Of the step.
        settings: How turns are compared; default: as a run without settings does.
        signal: What a turn earns by itself.
    """
    settings = settings or CreditSettings()
    counts: Counter[GroupKind] = Counter()
    turn_signal = 0
    for group in trained_groups(episodes):
        kind = _kind([episode for episode in group if episode.reward is not None])
        counts[kind] += 1
        turn_signal += kind is not GroupKind.SIGNAL and told_apart(group, settings, signal)
    return Meter(counts, turn_signal)


def nothing_moves(episodes: Sequence[Trajectory]) -> bool:
    """Whether no episode passed and no two attempts of a group have different grades.

    Rewards may differ all the same, by the turns that were spent: that teaches to give up early, not to do the task.
    Where a reward of the user's differs and grades have no rate, it may be what can be learned.
    """
    for group in trained_groups(episodes):
        graded = [episode for episode in group if episode.reward is not None]
        if any(episode.passed for episode in graded):
            return False
        rates = [episode.rate if episode.rate is not None else episode.reward or 0.0 for episode in graded]
        if rates and max(rates) - min(rates) > SAME:
            return False
    return True


def _kind(graded: Sequence[Trajectory]) -> GroupKind:
    rewards = [episode.reward for episode in graded if episode.reward is not None]
    if len(rewards) < 2:
        return GroupKind.LOST
    if max(rewards) - min(rewards) > SAME:
        return GroupKind.SIGNAL
    passed = [bool(episode.passed) for episode in graded]
    return GroupKind.ALL_PASS if all(passed) else GroupKind.TIE if any(passed) else GroupKind.ALL_FAIL


@dataclass
class SignalMeter(Guard):
    """A dead or dying signal. It says why, and never calls a run that fails everywhere converged.

    Attributes:
        low: Share of groups with signal, over the last steps, below which a run learns little.
        dead: Steps in a row without any advantage that are no chance, and `enough` the groups that must be in them: a
            step of one group often ties in a run that is well.
        credit: How the run compares turns, and `turn_signal` what a turn of it earns.
        tried: Episodes in a row without a pass, and without a difference between the attempts at a task, from which on
            the policy cannot do these tasks: of 96 at least one passes in 95 % of the runs of a policy that passes 3 %.
    """

    name: ClassVar[str] = GuardName.SIGNAL_METER
    low: float = 0.1
    dead: int = 3
    enough: int = 12
    credit: CreditSettings = field(default_factory=CreditSettings)
    turn_signal: TurnSignal = TurnSignal.PROGRESS
    tried: int = 96
    _dead: int = 0
    """Logged steps without any advantage up to now, and `_tied` the groups of them."""
    _tied: int = 0
    _played: int = 0
    """Groups since the last line of metrics."""
    _failed: int = 0
    """Graded episodes in a row in which nothing moves, and `_failed_steps` the steps of them."""
    _failed_steps: int = 0
    _share: Window = field(default_factory=lambda: Window(10))
    _last: dict[str, int] = field(default_factory=dict)

    def begin(self, facts: Facts) -> None:
        """What a turn earns in this run."""
        self.credit, self.turn_signal = facts.config, facts.config.turn_signal

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Count the groups."""
        meter = read_groups(played.trajectories, self.credit, self.turn_signal)
        self._last = {str(kind): count for kind, count in meter.counts.items()} | {"turns": meter.turn_signal}
        self._played += meter.groups
        if meter.groups:
            self._share.add(meter.counts.get(GroupKind.SIGNAL, 0) / meter.groups)
        graded = sum(episode.reward is not None for episode in played.trajectories)
        if not nothing_moves(played.trajectories):
            self._failed = self._failed_steps = 0
        elif graded:
            self._failed, self._failed_steps = self._failed + graded, self._failed_steps + 1
        if self._cannot:
            yield warn(
                "cannot",
                f"no signal: 0 of {self._failed} episodes passed in {self._failed_steps} steps (at most "
                f"{wilson(0, self._failed).high:.1%} would), and no attempt at a task got further than another: this "
                "policy cannot do these tasks yet, and no number of steps changes that. Try easier tasks, or tasks "
                "with more assertions, each of which pays by itself (reward shaped); a warm start on episodes that "
                "pass (`python -m trainers.sft`); a larger or an instruct model; more attempts at each task "
                "(num_generations) or a higher temperature, for a first pass. `python -m agents show` has what it did.",
            )

    @property
    def _cannot(self) -> bool:
        return self._failed >= self.tried and self._failed_steps >= self.dead

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Whether anything had an advantage."""
        if metrics.get("gigpo/frac_zero_adv", 0.0) < 1.0:
            self._dead = self._tied = 0
        else:
            self._dead, self._tied = self._dead + 1, self._tied + self._played
        counted, self._played = self._played > 0, 0
        if self._cannot:
            return  # it is said, and why
        if self._dead >= self.dead and (self._tied >= self.enough or not counted):
            yield warn(
                "no_signal",
                f"no signal for {self._dead} steps: every advantage is 0 ({self._why(metrics)}). {self._counted()}"
                "Nothing is being learned, which is not the same as having converged. Mix in tasks that some attempts "
                "pass and some fail.",
            )
        elif self._share.full and self._share.mean < self.low:
            yield note(
                "little_signal",
                f"little signal: over {len(self._share)} steps {self._share.mean:.0%} of the groups have attempts that "
                f"earn different rewards. {self._counted()}{self._why(metrics).capitalize()}.",
            )

    def _counted(self) -> str:
        if not self._last:
            return ""
        total = sum(count for kind, count in self._last.items() if kind != "turns")
        reasons = [
            f"{self._last[kind]} {kind.replace('_', '-')}"
            for kind in GroupKind
            if kind is not GroupKind.SIGNAL and self._last.get(kind)
        ]
        text = f"{self._last.get(GroupKind.SIGNAL, 0)}/{total} groups have signal ({', '.join(reasons) or 'all'}); "
        return f"{text}{self._last['turns']} of the others have turn signal. "

    def _why(self, metrics: Mapping[str, float]) -> str:
        passed = metrics.get("env/pass_rate")
        if metrics.get("env/infra_error_frac", 0.0) == 1.0:
            return "every episode was an infrastructure failure"
        if passed == 1.0:
            return "every attempt passes: the tasks are too easy"
        if passed == 0.0:
            return "no attempt passes: the tasks are too hard, or the policy cannot act"
        return "all attempts of a task earn the same"
