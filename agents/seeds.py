"""Seeds derived by hashing, and attempts that came out the same: by chance, or sharing random numbers?"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agents.trajectory import Trajectory, groups

# -- Seeds derived by hashing: equal parts, equal seed, on every machine and in every process -------------------------


def derive_seed(*parts: int | str) -> int:
    """A seed in `[0, 2**63)` from any parts (run seed, task id, attempt, turn ...); order matters, 0 is a part."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


# -- Attempts at one task that came out the same: a sure policy, or attempts that share their random numbers? ---------
# Two attempts that are sampled independently agree with the probability of what was sampled: exp of the sum of its
# log-probabilities. A policy that is sure of itself repeats itself, and that is no fault. Where the sum says that such
# an agreement does not happen by chance, the attempts were not independent: their seeds, or the sampler's, are at
# fault.

CHANCE = 1e-6
"""Agreements that are rarer than this are no chance: a run sees thousands of episodes, not millions."""


@dataclass(frozen=True, slots=True)
class Duplicates:
    """Episodes of groups (attempts at one task, two at least) by whether their ids are those of another attempt.

    Attributes:
        episodes: Episodes in such groups; those without a reward are left out, for they broke off anywhere.
        equal: Those whose sampled ids are all equal to another one's of their group.
        impossible: Those of `equal` that chance explains less often than once in a million times.
        unknown: Those of `equal` of which the engine reported no log-probabilities, so that nobody can tell.
    """

    episodes: int = 0
    equal: int = 0
    impossible: int = 0
    unknown: int = 0

    @property
    def share(self) -> float:
        """`equal` of `episodes`; 0 where there is no group."""
        return self.equal / self.episodes if self.episodes else 0.0

    @property
    def impossible_share(self) -> float:
        """`impossible` of `episodes`; 0 where there is no group."""
        return self.impossible / self.episodes if self.episodes else 0.0

    def message(self) -> str | None:
        """What it means, in a sentence for people; `None` where nothing is equal."""
        if not self.equal:
            return None
        head = f"{self.equal} of {self.episodes} episodes are equal to another attempt at their task, id for id"
        if self.impossible:
            return f"{head}, and {self.impossible} of them cannot be by chance: attempts share their random numbers"
        if self.unknown:
            return f"{head}; without log-probabilities nobody can tell whether by chance"
        return f"{head}: the policy is sure of itself, and more attempts say little more"


def find_duplicates(trajectories: Sequence[Trajectory]) -> Duplicates:
    """Compare the attempts at each task. Only for episodes that were sampled: greedy attempts are equal by design."""
    episodes = equal = impossible = unknown = 0
    for group in groups([trajectory for trajectory in trajectories if trajectory.reward is not None]).values():
        if len(group) < 2:
            continue
        replies = [tuple(tuple(turn.ids) for turn in trajectory.turns) for trajectory in group]
        counts = Counter(replies)
        episodes += len(group)
        for trajectory, reply in zip(group, replies, strict=True):
            if counts[reply] == 1:
                continue
            equal += 1
            logprob = _logprob(trajectory)
            if logprob is None:
                unknown += 1
            elif logprob + math.log(len(group) - 1) < math.log(CHANCE):
                impossible += 1
    return Duplicates(episodes, equal, impossible, unknown)


def _logprob(trajectory: Trajectory) -> float | None:
    """Log-probability of all that was sampled in an episode, in nats."""
    total = 0.0
    for turn in trajectory.turns:
        if turn.logprobs is None:
            return None
        total += sum(x for x, forced in zip(turn.logprobs, turn.forced, strict=True) if not forced)
    return total
