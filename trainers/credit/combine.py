"""Episode and turn terms into one advantage per token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def combine(
    episode: NDArray[np.float64],
    turns: Sequence[Sequence[float]],
    turn_ids: NDArray[np.int64],
    *,
    alpha: float,
    beta: float,
) -> NDArray[np.float64]:
    """`A[i, t] = alpha * A_episode[i] + beta * A_turn[i, turn(t)]` where a token was sampled, 0 elsewhere.

    Args:
        episode: Shape (B,).
        turns: One list per episode, one value per turn.
        turn_ids: Shape (B, T): index of the turn that sampled the token; -1 where none did.
        alpha: Weight of the episode term.
        beta: Weight of the turn term.

    Returns:
        Shape (B, T), float64.

    Raises:
        ValueError: Shapes disagree, or a turn id has no turn.
    """
    if len(episode) != len(turns) or len(episode) != len(turn_ids):
        raise ValueError(f"{len(episode)} episode terms, {len(turns)} turn lists, {len(turn_ids)} rows of turn ids")
    out = np.zeros(turn_ids.shape, dtype=np.float64)
    for i, (row, values) in enumerate(zip(turn_ids, turns, strict=True)):
        on = row >= 0
        if on.any() and row.max() >= len(values):
            raise ValueError(f"row {i}: a token of turn {row.max()}, but the episode has {len(values)} turns")
        table = np.asarray(values, dtype=np.float64)
        out[i, on] = alpha * episode[i] + (beta * table[row[on]] if len(table) else 0.0)
    return out
