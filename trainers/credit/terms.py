"""The two terms of an advantage before tokens are weighed: of the episode within its group, and of its turns.

One function, so that who trains (`Credit.assign`) and who asks whether a group would teach anything (refill) agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainers.credit.combine import combine
from trainers.credit.episode import episode_advantages
from trainers.credit.settings import CreditSettings
from trainers.credit.turn import TurnCredit, turn_advantages
from trainers.credit.turn_record import TurnRecord


@dataclass(frozen=True, slots=True)
class Terms:
    """What episodes and turns are worth, each within its group.

    Attributes:
        episodes: Shape (B,).
        turns: One value per turn of each episode.
    """

    episodes: NDArray[np.float64]
    turns: TurnCredit

    def combined(self, turn_ids: NDArray[np.int64], settings: CreditSettings) -> NDArray[np.float64]:
        """Shape (B, T): both terms per token, weighted by the settings; 0 where no turn sampled."""
        alpha, beta = settings.alpha_episode, settings.beta_turn
        return combine(self.episodes, self.turns.advantages, turn_ids, alpha=alpha, beta=beta)


def credit_terms(
    rewards: Sequence[float | None],
    turns: Sequence[Sequence[TurnRecord]],
    group_size: int,
    settings: CreditSettings,
) -> Terms:
    """Both terms of the episodes of one step, the K of a task side by side.

    A group in which fewer than two episodes have a reward has nothing to compare: it gets 0 from the turn term, too.

    Raises:
        ValueError: The episodes do not divide into groups, or a value is not finite.
    """
    s = settings
    episodes = episode_advantages(rewards, group_size, s.episode_scale, operator=s.episode_operator)
    values = turn_advantages(
        _compared(rewards, turns, group_size),
        group_size,
        s.turn_grouping,
        gamma=s.turn_gamma,
        divide_by_std=s.turn_std,
        similarity=s.turn_similarity,
        revisits=s.turn_revisits,
        invalid_penalty=s.invalid_action_penalty,
    )
    return Terms(episodes, values)


def _compared(
    rewards: Sequence[float | None], turns: Sequence[Sequence[TurnRecord]], group_size: int
) -> list[Sequence[TurnRecord]]:
    """The turns, without their signals where a group has fewer than two episodes with a reward."""
    out = list(turns)
    for start in range(0, len(rewards), group_size):
        group = slice(start, start + group_size)
        if sum(reward is not None for reward in rewards[group]) < 2:
            out[group] = [[replace(turn, signal=None) for turn in episode] for episode in out[group]]
    return out
