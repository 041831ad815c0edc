"""What a policy that imitates the demonstrations perfectly would score: their own grades, family by family."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.warm_start.emulator import snapshot
from benchmarks.warm_start.episodes import Demonstration
from benchmarks.warm_start.habits import Recipe
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.families import MAX_TURNS, build

TURN_PENALTY = 0.2
"""Cost of using all turns in the shaped reward."""


@dataclass(slots=True)
class Score:
    """Sums over the demonstrations of one family (or of all).

    Attributes:
        n: Demonstrations.
        passed: How many of them pass every assertion.
        rate: Sum of the assertion rates.
        reward: Sum of the shaped rewards.
        turns: Sum of the turns.
        submitted: How many of them submit.
        reward_passed: Sum of the shaped rewards of those that pass.
    """

    n: int = 0
    passed: int = 0
    rate: float = 0.0
    reward: float = 0.0
    turns: int = 0
    submitted: int = 0
    reward_passed: float = 0.0

    def add(self, other: Score) -> None:
        """Add the sums of `other`."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Statistics:
    """Scores by family, and over all of them."""

    families: dict[str, Score] = field(default_factory=dict)
    total: Score = field(default_factory=Score)


def score(demonstration: Demonstration) -> Score:
    """Grade one demonstration with the assertions of its task.

    Raises:
        RuntimeError: an assertion erred; generated tasks never do.
    """
    task = build(demonstration.family, demonstration.parts)
    final = demonstration.turns[-1][0] if demonstration.submitted else None
    result = grade(task, Outcome(snapshot(demonstration.files), task.files(), final))
    if result.rate is None:
        raise RuntimeError(f"{task.id}: an assertion erred: {'; '.join(error.detail for error in result.errors)}")
    turns = len(demonstration.turns)
    reward = result.rate - TURN_PENALTY * turns / MAX_TURNS
    passed = int(result.passed)
    return Score(1, passed, result.rate, reward, turns, int(demonstration.submitted), reward * passed)


def measure(shown: Iterable[Demonstration]) -> Statistics:
    """Grade demonstrations."""
    out = Statistics()
    for demonstration in shown:
        one = score(demonstration)
        out.families.setdefault(demonstration.family.name, Score()).add(one)
        out.total.add(one)
    return out


def table(found: Statistics, recipe: Recipe) -> str:
    """Return the scores as text.

    The column `greedy` is the outcome of the most frequent form: 0 where the habit is shown in more than half.
    """
    rows = [
        f"{'family':<16}{'n':>6}{'pass':>7}{'greedy':>8}{'rate':>7}{'reward':>8}{'turns':>7}{'submit':>8}{'gain':>7}"
    ]
    greedy = 0
    for name, one in sorted(found.families.items()):
        right = recipe.share(name) < 0.5
        greedy += one.n * right
        rows.append(_row(name, one, float(right)))
    rows.append(_row("all", found.total, greedy / max(1, found.total.n)))
    rows.append("gain: mean reward of the demonstrations that pass, less that of the others")
    return "\n".join(rows)


def _row(name: str, one: Score, greedy: float) -> str:
    n, failed = max(1, one.n), one.n - one.passed
    gain = one.reward_passed / max(1, one.passed) - (one.reward - one.reward_passed) / max(1, failed)
    return (
        f"{name:<16}{one.n:>6}{one.passed / n:>7.3f}{greedy:>8.2f}{one.rate / n:>7.3f}{one.reward / n:>8.3f}"
        f"{one.turns / n:>7.2f}{one.submitted / n:>8.2f}{gain:>7.2f}"
    )
