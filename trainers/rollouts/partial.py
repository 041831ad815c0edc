"""Partial batches: a step learns on the first groups that are complete, and those that straggle go to a later one.

All groups of a run form one stream, in the order in which they are drawn. A generation of G groups begins those of its
draw and the first M of the next one, so that G + M are under way; it ends with the first G that are complete, and the
others go on. The last generations begin nothing more, so that every group that is drawn is learned on, once.

A group may be carried on for a number of generations (the staleness bound says for how many), then it is waited for.
Groups of slow tasks are carried on more often, so that weights that are older play them: `words` says whose they were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agents.rollout import Job, RolloutResult
from agents.trajectory import Trajectory

Done = Sequence[Trajectory | None]
"""What has ended of the jobs of a call, in their order."""
Play = Callable[[Sequence[Job], Callable[[Done], bool] | None], RolloutResult]
"""Plays jobs until all are over, or until what has ended is enough (`RolloutEngine.run`)."""

PARTIAL = "partial_batches"
"""In the state of a checkpoint: the run had them."""
NO_RESUME = (
    "partial_batches: which groups a step learns on depends on a clock, and those under way are in no checkpoint, so "
    "a run with it is not resumed. Begin a new one from its weights (--model_name_or_path FOLDER/checkpoint-STEP) in "
    "another output_dir."
)
"""For people."""
NAMED = 5
"""Families, or tasks, that are named at the end."""


@dataclass(slots=True)
class InFlight:
    """One group from when it is begun until it is learned on.

    Attributes:
        jobs: Its attempts; the engine knows those that are under way by these very objects.
        generation: Which began it.
        version: Optimizer steps behind the weights of then: no reply has older ones.
        episodes: What has ended, by attempt.
    """

    jobs: Sequence[Job]
    generation: int
    version: int
    episodes: dict[int, Trajectory] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every attempt has ended."""
        return len(self.episodes) == len(self.jobs)


class PartialBatches:
    """The groups that are under way, and which of them a generation ends with.

    Args:
        early: M, groups of the next draw that are begun early; at most those of a draw.
        carried_at_most: Generations that a group may be carried on.

    Attributes:
        groups: Under way or complete, and not learned on yet; in the order of the draws.
        begun: Groups of the draw to come that have begun.
    """

    def __init__(self, early: int, carried_at_most: int) -> None:
        self.early, self.carried_at_most = early, carried_at_most
        self.groups: list[InFlight] = []
        self.begun = 0
        self._generation = -1
        self._learned: Counter[tuple[str, str]] = Counter()
        self._carried: Counter[tuple[str, str]] = Counter()

    def generation(
        self, play: Play, draw: Sequence[Sequence[Job]], later: Sequence[Sequence[Job]], version: int
    ) -> tuple[list[InFlight], RolloutResult, int]:
        """Play one generation.

        Args:
            play: With the weights of now.
            draw: The groups of its draw.
            later: Those of the next one; none where the run ends before it.
            version: Optimizer steps behind the weights of now.

        Returns:
            As many groups as the draw has, in the order of the draws; times and retries; how many were carried on.
        """
        self._generation += 1
        fresh = [*draw[self.begun :], *later[: self.early]]
        self.groups += [InFlight(jobs, self._generation, version) for jobs in fresh]
        self.begun = len(later[: self.early])
        result = self._play(play, len(draw))
        taken = [group for group in self.groups if group.complete][: len(draw)]
        gone = set(map(id, taken))
        self.groups = [group for group in self.groups if id(group) not in gone]
        carried = [group for group in taken if group.generation < self._generation]
        for groups, count in ((taken, self._learned), (carried, self._carried)):
            count.update((group.jobs[0].task.family or "", group.jobs[0].task.id) for group in groups)
        return taken, result, len(carried)

    def finish(self, play: Play) -> RolloutResult:
        """Play what is under way to its end, for the generation to come: something else needs the environments."""
        return self._play(play, None)

    def clear(self) -> None:
        """Nobody learns on what is under way."""
        self.groups, self.begun = [], 0

    def words(self) -> str | None:
        """Whose groups were carried on, most of its own first; `None` where none was."""
        carried, learned = self._carried.total(), self._learned.total()
        if not carried:
            return None
        families = {family for family, _ in self._learned} - {""}
        counts: dict[str, list[int]] = {}
        for (family, task), total in self._learned.items():
            both = counts.setdefault((family or task) if len(families) > 1 else task, [0, 0])
            both[0] += self._carried[family, task]
            both[1] += total
        ranked = sorted(counts.items(), key=lambda item: (-item[1][0] / item[1][1], -item[1][1], item[0]))
        said = [f"{name} {some} of {total}" for name, (some, total) in ranked if some]
        more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
        more += f"; none of the other {len(ranked) - len(said)}" if len(said) < len(ranked) else ""
        return (
            f"partial batches carried {carried} of {learned} groups into a later step than the one that began them: "
            f"{', '.join(said[:NAMED])}{more}. Where a kind of task stands out, older weights play it than the others."
        )

    def _play(self, play: Play, wanted: int | None) -> RolloutResult:
        """Play until `wanted` groups are complete, and with them all that may be carried on no more; `None`: all."""
        waiting = [(group, job) for group in self.groups for job in group.jobs if job.attempt not in group.episodes]
        due = {id(g) for g in self.groups if self._generation - g.generation >= self.carried_at_most}

        def enough(done: Done) -> bool:
            over = [trajectory is not None for trajectory in done]
            missing = {id(group) for (group, _), ended in zip(waiting, over, strict=True) if not ended}
            return wanted is not None and len(self.groups) - len(missing) >= wanted and not missing & due

        result = play([job for _, job in waiting], None if wanted is None else enough)
        ended = iter(result.trajectories)
        unfinished = set(result.unfinished)
        for place, (group, job) in enumerate(waiting):
            if place not in unfinished:
                group.episodes[job.attempt] = next(ended)
        return result
