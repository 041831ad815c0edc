"""`--escalate MODEL2`: what a stronger model that takes over stuck episodes is worth, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agents.escalate import GIVEN, Watched
from agents.trajectory import Attempt, Trajectory, attempt_of
from trainers.evaluation.tokens import Tokens, count
from trainers.measure import Measurement
from trainers.paired import difference_interval
from trainers.run.summary import percent, text_table
from trainers.stats import paired_test

SUFFIX = "_escalated"
"""Ends the name of a decode setting whose stuck episodes the second model took over."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """One decode setting without and with the second model.

    Attributes:
        model: The second model.
        watched: What the monitor said.
        episodes: That were looked at.
        without: Measurement of the first model alone; `with_second` where the second took over.
        first: Tokens of the first model alone; `kept` those of it that stay with escalation; `second` of the second
            model. `None` where nobody counted.
        unlike: Escalated episodes in which a command before the change of models did something else the second time.
    """

    model: str
    watched: Watched
    episodes: int
    without: Measurement
    with_second: Measurement
    first: Tokens | None
    kept: Tokens | None
    second: Tokens | None
    unlike: int

    @property
    def rate(self) -> float:
        """Share of the episodes that were escalated."""
        return len(self.watched.stuck) / self.episodes if self.episodes else 0.0

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record."""
        watched = self.watched
        tokens = {"first_alone": self.first, "first": self.kept, "second": self.second}
        return {
            "model": self.model,
            "eta": watched.eta,
            "episodes": self.episodes,
            "escalated": len(watched.stuck),
            "rate": self.rate,
            "passed": {"without": self.without.passed, "with": self.with_second.passed},
            "graded": {"without": self.without.graded, "with": self.with_second.graded},
            "tokens": {name: None if found is None else asdict(found) for name, found in tokens.items()},
            "unlike": self.unlike,
            "stuck": [
                {"task_id": task, "attempt": attempt, "turn": turn, "reason": watched.reasons[task, attempt]}
                for (task, attempt), turn in sorted(watched.stuck.items())
            ],
        }

    def lines(self) -> list[str]:
        """For people: how often, what it changed."""
        watched, n = self.watched, len(self.watched.stuck)
        if watched.eta is None:
            return [
                f"escalation: nothing was called stuck, for {watched.changes} changes of the uncertainty are too few "
                "to calibrate the monitor: play more episodes, or say --escalate_eta"
            ]
        lines = [
            f"escalated to {self.model}: {n} of {self.episodes} episodes ({percent(self.rate)}), whose mean entropy "
            f"moved by less than {watched.eta:.3g} nats"
        ]
        if not watched.signals:
            lines.append("the first model reported no uncertainty, so the monitor saw nothing")
        first, second = self.without.outcomes, self.with_second.outcomes
        interval = difference_interval(first, second)
        test = paired_test(first, second)
        if interval is not None:
            low, high = (100 * end for end in (interval.low, interval.high))
            lines.append(
                f"passed with it against without: 95 % [{low:+.1f}, {high:+.1f}] points, paired p {test.p_value:.2g}"
            )
        if self.unlike:
            lines.append(f"in {self.unlike} of them a command before the change did something else the second time")
        return lines

    def table(self) -> Any:
        """Passed, and tokens of each model, without and with the second one."""
        rows = [["", "passed", "tokens of the first model", f"tokens of {self.model}"]]
        for name, m, first, second in (
            ("without", self.without, self.first, None),
            ("with", self.with_second, self.kept, self.second),
        ):
            passed = f"{m.passed}/{m.graded} = {percent(m.passed / m.graded)}" if m.graded else "-"
            rows.append([name, passed, _tokens(first), "-" if name == "without" else _tokens(second)])
        return text_table("escalation (prompt + completion)", rows)


def _tokens(found: Tokens | None) -> str:
    return "not counted" if found is None else f"{found.prompt:,} + {found.completion:,}"


def merged(first: Sequence[Trajectory], second: Sequence[Trajectory]) -> list[Trajectory]:
    """The episodes of the first model, those in their place that the second one took over."""
    taken = {attempt_of(episode): episode for episode in second}
    return [taken.get(attempt_of(episode), episode) for episode in first]


def costs(
    first: Sequence[Trajectory], second: Sequence[Trajectory], until: dict[Attempt, int], *, own_ids: tuple[bool, bool]
) -> tuple[Tokens | None, Tokens | None, Tokens | None]:
    """Tokens of the first model alone, of it with escalation, and of the second model.

    Args:
        first: Episodes of the first model; `second` those that the second one took over.
        second: Replies that were given are no cost of the second model.
        until: Last turn of the first model in each escalated episode.
        own_ids: Whether ids are the model's own, of each.
    """
    kept = [replace(e, turns=e.turns[: until[attempt_of(e)] + 1]) if attempt_of(e) in until else e for e in first]
    given = [sum(GIVEN in turn.notes for turn in episode.turns) for episode in second]
    return (
        count(first, own_ids=own_ids[0]),
        count(kept, own_ids=own_ids[0]),
        count(second, own_ids=own_ids[1], skipped=given),
    )


def unlike(first: Sequence[Trajectory], second: Sequence[Trajectory]) -> int:
    """Episodes in which what was given did not lead to the same observations again."""
    before = {attempt_of(episode): episode for episode in first}
    return sum(
        any(
            GIVEN in turn.notes and turn.observation != then.observation
            for turn, then in zip(episode.turns, before[attempt_of(episode)].turns, strict=False)
        )
        for episode in second
    )
