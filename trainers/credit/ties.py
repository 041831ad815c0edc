"""How much the rewards of a step can say: groups that tie, wholly or in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

TIE = 1e-6
"""Rewards that differ by no more than this are one reward."""


@dataclass(frozen=True, slots=True)
class GroupTies:
    """Ties within one group.

    Attributes:
        rewards: Known rewards of the group; a group of fewer than two cannot tie.
        unique: Rewards that differ.
        tied_pairs: Pairs of episodes with the same reward, of `pairs`.
    """

    rewards: int
    unique: int
    tied_pairs: int
    pairs: int

    @property
    def eligible(self) -> bool:
        """There is something to compare."""
        return self.rewards > 1

    @property
    def uniform(self) -> bool:
        """All rewards are the same."""
        return self.eligible and self.unique == 1


def group_ties(rewards: Sequence[float], eps: float = TIE) -> GroupTies:
    """Ties within one group of known rewards."""
    sizes: list[int] = []
    before = -math.inf
    for value in sorted(rewards):
        if value - before > eps:
            sizes.append(0)
        sizes[-1] += 1
        before = value
    n = len(rewards)
    return GroupTies(n, len(sizes), sum(size * (size - 1) // 2 for size in sizes), n * (n - 1) // 2)


@dataclass(frozen=True, slots=True)
class TieRates:
    """Means over the groups that can tie; 0 without any."""

    eligible_groups: int
    tie_groups: float
    uniform_groups: float
    tied_pairs: float
    unique_share: float


def tie_rates(groups: Sequence[GroupTies]) -> TieRates:
    """Rates over the groups with at least two rewards."""
    able = [group for group in groups if group.eligible]
    pairs = sum(group.pairs for group in able)
    n = max(1, len(able))
    return TieRates(
        len(able),
        sum(group.tied_pairs > 0 for group in able) / n,
        sum(group.uniform for group in able) / n,
        sum(group.tied_pairs for group in able) / max(1, pairs),
        sum(group.unique / group.rewards for group in able) / n,
    )
