"""Run-time checks: what a run that learns nothing, or the wrong thing, looks like. Each says so once, by name."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainers.guards.guard import Guard


def _mean(window: deque[float]) -> float:
    return sum(window) / len(window)


@dataclass
class StopsAtOnce:
    """Collapse to an immediate submission: episodes of one turn, nearly all submitted, pass rate falling."""

    window: int = 4
    name: str = "collapse_stops_at_once"
    _turns: deque[float] = field(default_factory=deque)
    _submitted: deque[float] = field(default_factory=deque)
    _passed: deque[float] = field(default_factory=deque)
    _best: float = 0.0
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message when turns ~1, submitted ~1 and the pass rate is under half of its best window."""
        if "env/pass_rate" not in metrics:
            return None
        for queue, key in (
            (self._turns, "env/mean_turns"),
            (self._submitted, "env/submitted"),
            (self._passed, "env/pass_rate"),
        ):
            queue.append(metrics[key])
            if len(queue) > self.window:
                queue.popleft()
        if len(self._turns) < self.window:
            return None
        passed = _mean(self._passed)
        self._best = max(self._best, passed)
        fallen = passed < 0.5 * self._best or passed < 0.05
        if self._said or not (_mean(self._turns) <= 1.25 and _mean(self._submitted) >= 0.9 and fallen):
            return None
        self._said = True
        return (
            f"collapse: the policy stops at once (mean turns {_mean(self._turns):.2f}, submitted "
            f"{_mean(self._submitted):.0%}, pool pass {passed:.0%}, was {self._best:.0%}). Lower learning_rate, keep "
            "scale_rewards=none, or start from a stronger policy; `best/` holds the weights from before."
        )


@dataclass
class NeverStops:
    """Collapse to never submitting: nearly every episode spends its whole turn budget."""

    window: int = 4
    name: str = "collapse_never_stops"
    _submitted: deque[float] = field(default_factory=deque)
    _first: float | None = None
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message when almost nothing is submitted any more and more was at the start."""
        if "env/submitted" not in metrics:
            return None
        self._submitted.append(metrics["env/submitted"])
        if len(self._submitted) > self.window:
            self._submitted.popleft()
        if self._first is None:
            self._first = metrics["env/submitted"]
        full = len(self._submitted) == self.window
        if self._said or not full or _mean(self._submitted) > 0.05 or self._first <= 0.2:
            return None
        self._said = True
        return (
            f"collapse: the policy never submits (submitted {_mean(self._submitted):.0%}, was {self._first:.0%} at the "
            "start): every episode spends its turn budget. Raise turn_penalty or lower learning_rate."
        )


@dataclass
class NoSignal:
    """A dead signal: no token has an advantage, step after step."""

    window: int = 3
    name: str = "no_signal"
    _zero: deque[float] = field(default_factory=deque)
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message when every advantage was 0 for `window` steps; says whether all pass, all fail or neither."""
        if "gigpo/frac_zero_adv" not in metrics:
            return None
        self._zero.append(metrics["gigpo/frac_zero_adv"])
        if len(self._zero) > self.window:
            self._zero.popleft()
        if self._said or len(self._zero) < self.window or min(self._zero) < 1.0:
            return None
        self._said = True
        passed = metrics.get("env/pass_rate")
        why = "all attempts of a task earn the same"
        if metrics.get("env/infra_error_frac", 0.0) == 1.0:
            why = "every episode was an infrastructure failure"
        elif passed == 1.0:
            why = "every attempt passes: the tasks are too easy"
        elif passed == 0.0:
            why = "no attempt passes: the tasks are too hard, or the policy cannot act"
        return f"no signal for {self.window} steps: every advantage is 0 ({why}). Nothing is being learned."


@dataclass
class NoTurnSignal:
    """The turn term is configured and never acts."""

    beta: float
    window: int = 6
    name: str = "no_turn_signal"
    _values: deque[float] = field(default_factory=deque)
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message when the turn advantages were 0 for `window` steps although `beta_turn` is not."""
        if self.beta == 0 or "gigpo/turn_adv_abs_mean" not in metrics:
            return None
        self._values.append(metrics["gigpo/turn_adv_abs_mean"])
        if len(self._values) > self.window:
            self._values.popleft()
        if self._said or len(self._values) < self.window or max(self._values) > 0:
            return None
        self._said = True
        return (
            f"beta_turn={self.beta:g} does nothing: no turn had an advantage for {self.window} steps (no file "
            "assertions, no two turns from the same state, or all of them earn the same)."
        )


@dataclass
class InfrastructureFailures:
    """Episodes lost to the machinery."""

    limit: float = 0.1
    name: str = "infrastructure"
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message the first time more than `limit` of a step's episodes have no reward."""
        share = metrics.get("env/infra_error_frac", 0.0)
        if self._said or share <= self.limit:
            return None
        self._said = True
        return (
            f"infrastructure: {share:.0%} of the episodes of step {step} failed in the sandbox or the grader. They "
            "have no reward and enter no mean; `python -m sandboxes doctor` checks the backends."
        )


@dataclass
class RepeatedSamples:
    """Attempts at one task that share their random numbers. A policy that is sure of itself is no fault."""

    name: str = "repeated_samples"
    _said: bool = False

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """Message the first time episodes are equal that independent sampling would not have made equal."""
        share = metrics.get("env/impossible_duplicate_frac", 0.0)
        if self._said or share == 0.0:
            return None
        self._said = True
        episodes = metrics.get("env/episodes")
        # Several batches of episodes may make a step: then both are means over them.
        count = f"{share:.2g}" if episodes is None else f"{max(1, round(share * episodes))} of {round(episodes)}"
        return (
            f"repeated samples: {count} episodes of step {step} are equal, id for id, to another attempt at "
            "their task, and less than once in a million times by chance. Their seeds are equal, or the sampler "
            "ignores them: such groups teach nothing and count as more evidence than they are."
        )


@dataclass
class Resampling:
    """What is wrong with turn resampling: the wrapper counts, `warning` asks it. Each kind of message once."""

    warning: Callable[[], str | None]
    name: str = "t2po_resampling"
    _said: set[str] = field(default_factory=set)

    def see(self, step: int, metrics: Mapping[str, float]) -> str | None:
        """The wrapper's message, the first time it has one of this kind (counts may differ)."""
        if (message := self.warning()) is None or (kind := re.sub(r"[\d.]+", "", message)) in self._said:
            return None
        self._said.add(kind)
        return message


def default_guards(beta_turn: float) -> list[Guard]:
    """The guards of every run."""
    return [
        StopsAtOnce(),
        NeverStops(),
        NoSignal(),
        NoTurnSignal(beta_turn),
        InfrastructureFailures(),
        RepeatedSamples(),
    ]
