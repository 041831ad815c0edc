"""The K attempts at one task: how many are made, which are trained on, what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agents.rollout import Job
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tasks.task import Task

# -- Adaptive sampling: attempts at a task until both outcomes were seen often enough, and which K are trained on -----
# The rule is the one of public RLVR code (chunks of attempts, stop between chunks), with one difference: a success is
# an
# episode that passed, there a reward above 0. For rewards of 0 and 1 the two agree.
#
# What it costs in truth. Stopping when both outcomes were seen makes the share of passes among all attempts no
# estimate
# of the pass rate, so figures are taken from the first K attempts. And the K that are trained on hold the rare
# outcome
# more often than the policy shows it: their mean, the baseline of the advantages, lies nearer to 1/2 than the pass
# rate,
# so a rare success gets a smaller advantage each and is trained on far more often (docs/rollouts.md has the numbers).

Outcome = bool | None
"""Passed, failed, or no verdict (infrastructure failure)."""


@dataclass(frozen=True, slots=True)
class Adaptive:
    """When to stop.

    Attributes:
        successes: Passes wanted.
        failures: Failures wanted. With both 0 nothing stops the attempts before `most`.
        most: Attempts at one task at most, those without a verdict included.
        chunk: Attempts made between two looks.
    """

    successes: int
    failures: int
    most: int
    chunk: int

    def more(self, outcomes: Sequence[Outcome]) -> int:
        """Attempts to make next at a task whose attempts so far ended like this; 0: none."""
        enough = outcomes.count(True) >= self.successes and outcomes.count(False) >= self.failures
        if enough and self.successes + self.failures > 0:
            return 0
        return max(0, min(self.chunk, self.most - len(outcomes)))

    def choose(self, outcomes: Sequence[Outcome], count: int) -> list[int]:
        """Places of the `count` attempts that are trained on, ascending.

        The first `successes` passes and the first `failures` failures, then the earliest of the others; those without
        a verdict only where nothing else is left. Holds both outcomes where both were seen (given both are wanted), and
        is the first `count` attempts where these were enough.
        """
        passed = [i for i, outcome in enumerate(outcomes) if outcome is True]
        failed = [i for i, outcome in enumerate(outcomes) if outcome is False]
        kept = {*passed[: self.successes], *failed[: self.failures]}
        broken = [i for i, outcome in enumerate(outcomes) if outcome is None]
        for i in [*sorted([*passed, *failed]), *broken]:
            if len(kept) == count:
                break
            kept.add(i)
        return sorted(kept)


# -- The attempts at one task in one step: their seeds, how they ended, which are trained on --------------------------

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
