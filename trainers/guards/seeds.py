"""Guard 5, seeds: that attempts at one task are independent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from agents.rollout import RolloutResult
from agents.trajectory import groups
from trainers.guards.guard import Alarm, Guard, warn
from trainers.guards.levels import GuardName


@dataclass
class Seeds(Guard):
    """Attempts at one task that share their random numbers. A policy that is sure of itself is no fault."""

    name: ClassVar[str] = GuardName.SEEDS

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Equal seeds within a group, before they show in what is sampled."""
        shared = total = 0
        for group in groups(played.trajectories).values():
            counts = Counter(episode.seed for episode in group if episode.seed is not None)
            total += len(group)
            shared += sum(count for count in counts.values() if count > 1)
        if shared:
            yield warn(
                "equal_seeds",
                f"seeds: {shared} of {total} episodes of step {step} have the seed of another attempt at their task. "
                "Derive each from run seed, step, task and attempt (`agents.seeds.derive_seed`).",
            )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Episodes that are equal and that independent sampling would not have made equal."""
        share = metrics.get("env/impossible_duplicate_frac", 0.0)
        if share == 0.0:
            return
        episodes = metrics.get("env/episodes")
        # Several batches of episodes may make a step: then both are means over them.
        count = f"{share:.2g}" if episodes is None else f"{max(1, round(share * episodes))} of {round(episodes)}"
        yield warn(
            "repeated_samples",
            f"repeated samples: {count} episodes of step {step} are equal, id for id, to another attempt at their "
            "task, and less than once in a million times by chance. Their seeds are equal, or the sampler ignores "
            "them: such groups teach nothing and count as more evidence than they are.",
        )
