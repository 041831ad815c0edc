"""The attempts at one task in one step: their seeds, how they ended, which are trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agents.rollout import Job
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tasks.task import Task
from trainers.rollouts.adaptive import Adaptive, Outcome

FIRST_DRAW = "first_draw"
TRAINED = "trained"
"""Notes of a trajectory in a step whose rules play more than one episode per row: whether figures count it, and
whether it is in the batch."""


def first_drawn(episodes: Iterable[Trajectory]) -> list[Trajectory]:
    """Those that pass rates count: what rules play beyond them depends on how they ended."""
    return [episode for episode in episodes if episode.notes.get(FIRST_DRAW, True)]


def by_place(episodes: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """Attempts of one place of the batch together, in the order played; a task drawn twice has two places.

    Args:
        episodes: All of a step, as `Played.result` has them: attempts at a place side by side, from the first on.
    """
    out: list[list[Trajectory]] = []
    for episode in episodes:
        last = out[-1][-1] if out else None
        if last is None or last.task_id != episode.task_id or episode.attempt <= last.attempt:
            out.append([])
        out[-1].append(episode)
    return out


def trained_groups(episodes: Iterable[Trajectory]) -> list[list[Trajectory]]:
    """`by_place`, with only what is in the batch."""
    groups = ([e for e in group if e.notes.get(TRAINED, True)] for group in by_place(episodes))
    return [group for group in groups if group]


@dataclass(slots=True)
class Group:
    """One task in one place of the batch.

    Attributes:
        task: What is attempted.
        seed: Parts of the seed of every attempt, its number left out.
        episodes: The attempts so far, in order.
        chosen: Places of those that are trained on.
    """

    task: Task
    seed: tuple[int | str, ...]
    episodes: list[Trajectory] = field(default_factory=list)
    chosen: list[int] = field(default_factory=list)

    def jobs(self, count: int) -> list[Job]:
        """The next `count` attempts."""
        first = len(self.episodes)
        return [Job(self.task, k, derive_seed(*self.seed, k)) for k in range(first, first + count)]

    @property
    def outcomes(self) -> list[Outcome]:
        """How the attempts ended."""
        return [None if e.reward is None else bool(e.passed) for e in self.episodes]

    def choose(self, count: int, adaptive: Adaptive | None) -> None:
        """Settle which attempts are trained on."""
        self.chosen = adaptive.choose(self.outcomes, count) if adaptive else list(range(count))

    @property
    def trained(self) -> list[Trajectory]:
        """The attempts that are trained on."""
        return [self.episodes[i] for i in self.chosen]

    @property
    def both(self) -> bool:
        """Whether a pass and a failure were seen."""
        return {True, False} <= set(self.outcomes)


@dataclass(frozen=True, slots=True)
class Fates:
    """What became of the episodes of a step. `produced` is the sum of the others.

    Attributes:
        produced: Played to an end, or broken off by the machinery.
        trained: In the batch.
        surplus: Further attempts at tasks of the batch.
        dropped: Attempts at tasks that were replaced, or that were tried as replacements and taught nothing either.
        failed: Infrastructure failures, wherever they happened: never trained.
    """

    produced: int
    trained: int
    surplus: int
    dropped: int
    failed: int

    @classmethod
    def of(cls, tried: Sequence[Group], kept: Sequence[Group]) -> Fates:
        """Count: `tried` are all groups, `kept` those of the batch."""
        counts = {"trained": 0, "surplus": 0, "dropped": 0, "failed": 0}
        for group in tried:
            stays = any(group is other for other in kept)
            for place, outcome in enumerate(group.outcomes):
                if outcome is None:
                    counts["failed"] += 1
                elif not stays:
                    counts["dropped"] += 1
                else:
                    counts["trained" if place in group.chosen else "surplus"] += 1
        return cls(sum(len(group.episodes) for group in tried), **counts)

    def metrics(self) -> dict[str, float]:
        """Under `rollouts/fate/`."""
        names = ("produced", "trained", "surplus", "dropped", "failed")
        return {f"rollouts/fate/{name}": float(getattr(self, name)) for name in names}
