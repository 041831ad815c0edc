"""Guard 7, stop and truncation: replies that are cut, text that is written on, and other caps when measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from agents.policy import FinishReason
from agents.rollout import RolloutResult
from trainers.guards.events import Facts, Measured
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window

LIMITS = ("tools", "revise", "stops")
"""Settings of an environment that bound an episode, beside its turns, which are each task's own."""


@dataclass
class StopAndTruncation(Guard):
    """Ends that the policy did not choose.

    Attributes:
        limit: Share of replies that may reach their cap, over the last steps; likewise of episodes with text behind a
            stop sequence or behind the answer.
    """

    name: ClassVar[str] = GuardName.STOP_AND_TRUNCATION
    limit: float = 0.3
    cap: int = 0
    _capped: Window = field(default_factory=lambda: Window(3))
    _past_stop: Window = field(default_factory=lambda: Window(3))
    _past_answer: Window = field(default_factory=lambda: Window(3))
    _settings: dict[str, str] = field(default_factory=dict)

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Caps and temperatures of training and of the arms, side by side."""
        self.cap = facts.sampling.max_tokens
        train = facts.sampling
        for name, arm in facts.arms.items():
            if arm.max_tokens != train.max_tokens:
                yield warn(
                    "caps",
                    f"stops: a reply has {train.max_tokens} tokens in training and {arm.max_tokens} when measured "
                    f"({name}): the figures are of two settings. Use one cap.",
                )
            if not arm.greedy and arm.temperature != train.temperature:
                yield note(
                    "temperature",
                    f"stops: training samples at temperature {train.temperature:g}, the arm '{name}' at "
                    f"{arm.temperature:g}: pool and held-out rates are not to be compared.",
                )

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Shares of this step."""
        episodes = played.trajectories
        turns = [turn for episode in episodes for turn in episode.turns]
        self._settings = {}
        for episode in episodes:
            self._settings |= _limits(episode.environment)
        shares = (
            ("capped", self._capped, [turn.finish is FinishReason.LENGTH for turn in turns]),
            ("past_stop", self._past_stop, _notes(played, "text_after_stop")),
            ("past_answer", self._past_answer, _notes(played, "text_after_answer")),
        )
        for kind, window, found in shares:
            if window.add(sum(found) / len(found) if found else None) and window.mean > self.limit:
                yield warn(kind, self._message(kind, window))

    def _message(self, kind: str, window: Window) -> str:
        head = f"stops: over {len(window)} steps {window.mean:.0%} of"
        if kind == "capped":
            return (
                f"{head} the replies reached their cap{f' of {self.cap} tokens' * bool(self.cap)} and were cut: what "
                "they meant is lost, and a torn reply is judged. Raise max_turn_tokens, or the task's turn_tokens."
            )
        if kind == "past_stop":
            return (
                f"{head} the episodes write on behind a stop sequence, which cuts it off: the score says how well they "
                "are cut, not that the policy knows when to stop. Measure start and end with the same stops."
            )
        return (
            f"{head} the episodes write text behind their answer: a lenient grader may read the wrong part. Add a stop "
            "sequence, or ask for the answer last."
        )

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Limits of held-out episodes against those of training."""
        measured: dict[str, str] = {}
        for episodes in held_out.episodes.values():
            for episode in episodes:
                measured |= _limits(episode.environment)
        for name in sorted(measured.keys() & self._settings.keys()):
            if measured[name] != self._settings[name]:
                yield warn(
                    "limits",
                    f"stops: {name} is bounded by {self._settings[name]} in training and by {measured[name]} when "
                    "measured: the figures are of two settings. Use the same for both.",
                )


def _notes(played: RolloutResult, key: str) -> list[bool]:
    """Which episodes have text there; only those whose environment looks for it."""
    values = [episode.notes.get(key) for episode in played.trajectories]
    return [value > 0 for value in values if value is not None]


def _limits(environment: dict[str, object]) -> dict[str, str]:
    """What bounds an episode, by environment."""
    found = {key: environment[key] for key in LIMITS if key in environment}
    return {str(environment.get("env", "")): str(found)} if found else {}
