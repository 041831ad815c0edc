"""What a token operator is: weights >= 0 for the episode term, or another signal for the operators after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.settings import TokenSettings
from trainers.credit.token.state import TokenState

_SAMPLE = 256
"""Values that `_kth_largest` looks at first."""


class Stage(StrEnum):
    """What an operator returns."""

    SIGNAL = "signal"
    """Another signal, which the operators after it read."""
    WEIGHT = "weight"
    """Weights, which multiply those of the other operators."""


@dataclass(slots=True)
class Tokens:
    """What an operator sees of a step. Arrays of shape (B, T) mean nothing where `mask` is off, unless said.

    Attributes:
        signal: The signal, 0 where `mask` is off; operators of `Stage.SIGNAL` replace it.
        raw: The signal before any operator, 0 where `mask` is off.
        mask: True where a token was sampled.
        counts: Shape (B,): sampled tokens of each episode, as floats.
        advantages: Shape (B,): the episode term before weights.
        group_size: K.
        settings: The constants of all operators.
        state: What operators remember from step to step.
        planning: True where a token belongs to a planning phrase, False where `mask` is off; `None` unless needed.
        notes: Figures for the log, by name.
    """

    signal: NDArray[np.float64]
    raw: NDArray[np.float64]
    mask: NDArray[np.bool_]
    counts: NDArray[np.float64]
    advantages: NDArray[np.float64]
    group_size: int
    settings: TokenSettings
    state: TokenState
    planning: NDArray[np.bool_] | None = None
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenOperator:
    """One entry of the registry.

    Attributes:
        apply: The function. What it returns is taken over: it must be a new array, or the signal itself.
        stage: What it returns.
        planning: It reads `Tokens.planning`.
        signal: It reads `Tokens.signal` or `raw`, so that `token_signal` matters.
    """

    apply: Callable[[Tokens], NDArray[np.float64]]
    stage: Stage = Stage.WEIGHT
    planning: bool = False
    signal: bool = True


def make_tokens(
    signal: NDArray[np.float64],
    mask: NDArray[np.bool_],
    advantages: NDArray[np.float64],
    *,
    group_size: int = 1,
    settings: TokenSettings | None = None,
    state: TokenState | None = None,
    planning: NDArray[np.bool_] | None = None,
) -> Tokens:
    """`Tokens` with everything that follows from the rest filled in.

    Raises:
        ValueError: Lengths disagree.
    """
    if signal.shape != mask.shape or len(advantages) != len(signal):
        raise ValueError(f"signal {signal.shape}, mask {mask.shape}, {len(advantages)} advantages: lengths disagree")
    if planning is not None and planning.shape != mask.shape:
        raise ValueError(f"planning mask of shape {planning.shape}, tokens of shape {mask.shape}")
    settings = settings or TokenSettings()
    return Tokens(
        signal,
        signal,
        mask,
        np.count_nonzero(mask, axis=1).astype(np.float64),
        advantages,
        group_size,
        settings,
        state or TokenState(settings),
        planning,
    )


def row_means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row, 0 for an empty one; `values` are 0 where nothing counts. Shape (B, 1)."""
    return np.asarray((values.sum(axis=1) / np.maximum(counts, 1.0))[:, None])


def top_k(values: NDArray[np.float64], mask: NDArray[np.bool_], k: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Exactly the `k[i]` largest values of each row where `mask` is on; among equal values the earlier position.

    Args:
        values: Shape (R, N).
        mask: Shape (R, N); what is off is never chosen.
        k: Shape (R,), each at most the number of its row's entries.

    Returns:
        Shape (R, N).
    """
    candidates = np.where(mask, values, -np.inf)
    chosen = np.zeros(values.shape, dtype=bool)
    for i, wanted in enumerate(k):
        if wanted <= 0:
            continue
        row = candidates[i]
        # The value at the edge, then everything above it, then the earliest of its equals.
        edge = _kth_largest(row, int(wanted))
        above = row > edge
        equal = np.flatnonzero(row == edge)
        above[equal[: wanted - np.count_nonzero(above)]] = True
        chosen[i] = above
    return chosen & mask


def _kth_largest(row: NDArray[np.float64], k: int) -> float:
    """The k-th largest value. A sample says below what nothing needs sorting; if it says too much, all is sorted."""
    if row.size > 16 * _SAMPLE and k < row.size // 2:
        step = row.size // _SAMPLE
        sample = np.sort(row[::step])
        low = sample[max(0, int(sample.size * (1 - 1.25 * k / row.size)) - 8)]
        upper = row[row >= low]
        if k <= upper.size < row.size:
            row = upper
    return float(np.partition(row, row.size - k)[row.size - k])


def keep_freed_memory() -> None:
    """Let glibc keep a step's freed arrays for the next step instead of handing them back to the kernel each time.

    Freeing one block of nearly 32 MiB raises its thresholds to that; where another allocator is used, nothing happens.
    Nothing of it is ever touched. A step with every operator on takes a quarter less time.
    """
    np.empty(31 * 2**20, dtype=np.uint8)
