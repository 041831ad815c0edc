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
        ValueError: Shapes disagree, or a turn id has no turn or is below -1.
    """
    if len(episode) != len(turns) or len(episode) != len(turn_ids):
        raise ValueError(f"{len(episode)} episode terms, {len(turns)} turn lists, {len(turn_ids)} rows of turn ids")
    if not turn_ids.size:
        return np.zeros(turn_ids.shape, dtype=np.float64)
    # One row of values per episode, one column per turn, and a last column that stays 0: it is that of turn id -1.
    if turn_ids.min() < -1:
        raise ValueError(f"a turn id of {turn_ids.min()}: -1 means no turn")
    last = turn_ids.max(axis=1)
    width = max(int(last.max()) + 1, max(map(len, turns)))
    table = np.zeros((len(episode), width + 1), dtype=np.float64)
    for i, values in enumerate(turns):
        if last[i] >= len(values):
            raise ValueError(f"row {i}: a token of turn {last[i]}, but the episode has {len(values)} turns")
        table[i, : len(values)] = beta * np.asarray(values, dtype=np.float64)
    table[:, :width] = alpha * episode[:, None] + table[:, :width]
    out = np.empty(turn_ids.shape, dtype=np.float64)
    for row, ids, values_of_row in zip(out, turn_ids, table, strict=True):
        np.take(values_of_row, ids, out=row, mode="wrap")  # row by row: it stays in the cache
    return out
