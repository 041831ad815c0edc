"""What a token operator is: weights >= 0 for the episode term, or another signal for the operators after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.settings import TokenSettings
from trainers.credit.token.state import TokenState


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
