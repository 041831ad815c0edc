"""Episode operators: how good each episode was among the K attempts at its task."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainers.credit.numeric import centred

EPS = 1e-4
"""Added to the standard deviation, as in TRL's GRPO."""


class EpisodeScale(StrEnum):
    """What divides the centred rewards of a group."""

    NONE = "none"
    """Nothing (Dr. GRPO): the default; dividing lifts the noise of nearly solved tasks."""
    GROUP = "group"
    """The sample standard deviation of the group (GRPO)."""
    BATCH = "batch"
    """The sample standard deviation of all rewards of the step."""


def episode_advantages(
    rewards: Sequence[float | None], group_size: int, scale: EpisodeScale = EpisodeScale.NONE, *, eps: float = EPS
) -> NDArray[np.float64]:
    """Advantages of the episodes of one step.

    Args:
        rewards: One per episode, the K episodes of a task side by side; `None` for an episode without a reward
            (infrastructure failure): it enters no mean and gets 0.
        group_size: K.
        scale: What divides.
        eps: Added to the standard deviation.

    Returns:
        Shape (episodes,), float64. A group with fewer than two rewards, or near-constant ones, gets exactly 0.

    Raises:
        ValueError: The rewards do not divide into groups, or one is not finite.
    """
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not divide into groups of {group_size}")
    out = np.zeros(len(rewards), dtype=np.float64)
    for start in range(0, len(rewards), group_size):
        rows = [i for i in range(start, start + group_size) if rewards[i] is not None]
        values = np.array([rewards[i] for i in rows], dtype=np.float64)
        out[rows] = centred(values, divide_by_std=scale is EpisodeScale.GROUP, eps=eps)
    if scale is EpisodeScale.BATCH:
        known = np.array([r for r in rewards if r is not None], dtype=np.float64)
        spread = known.std(ddof=1) if known.size > 1 else 0.0
        out = out / (spread + eps)
    return out
