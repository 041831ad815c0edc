"""Per-token signals: how unsure the policy was of a token. Shape (B, T), nats, 0 where no token was sampled."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

CAP = 50.0
"""Largest surprisal or entropy, nats: one token of probability 1e-22 must not own the mean."""


class TokenSignal(StrEnum):
    """What token operators read."""

    SURPRISAL = "surprisal"
    """`-log p` of the sampled token, at most 50: known for every sampler."""
    PREDICTIVE_VARIANCE = "predictive_variance"
    """`p (1 - p)`. It ranks tokens as surprisal does only while p is at least 1/2."""
    ENTROPY = "entropy"
    """Entropy of the whole distribution: what the others stand in for; needs a sampler that computes it."""


def surprisal(
    logprobs: NDArray[np.float64], cap: float = CAP, out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """`min(-log p, cap)`, in `out` if one is given."""
    out = np.negative(logprobs, out=out)
    return np.minimum(out, cap, out=out)


def predictive_variance(logprobs: NDArray[np.float64], cap: float = CAP) -> NDArray[np.float64]:
    """`p (1 - p)`: 0 at both ends, 1/4 at p = 1/2."""
    p = np.exp(np.maximum(logprobs, -cap))
    return np.asarray(p * (1.0 - p), dtype=np.float64)


def entropy(entropies: NDArray[np.float64], cap: float = CAP) -> NDArray[np.float64]:
    """The sampler's own entropies, at most `cap`."""
    return np.minimum(entropies, cap)


def token_signal(
    kind: TokenSignal,
    mask: NDArray[np.bool_],
    logprobs: NDArray[np.float64] | None,
    entropies: NDArray[np.float64] | None,
) -> NDArray[np.float64]:
    """The signal of kind `kind`, 0 where `mask` is off.

    Raises:
        ValueError: What it is computed from is missing, has another shape or is not finite.
    """
    source, name = (entropies, "entropies") if kind is TokenSignal.ENTROPY else (logprobs, "log-probabilities")
    if source is None:
        raise ValueError(f"token_signal {kind} needs {name}, and the batch has none")
    if source.shape != mask.shape:
        raise ValueError(f"token_signal {kind}: {name} of shape {source.shape}, tokens of shape {mask.shape}")
    clean = np.where(mask, source, 0.0)
    if not np.isfinite(clean.sum()) and not np.isfinite(clean).all():
        raise ValueError(f"token_signal {kind}: {name} that are not finite")
    if kind is TokenSignal.ENTROPY:
        return entropy(clean)
    return surprisal(clean, out=clean) if kind is TokenSignal.SURPRISAL else predictive_variance(clean)
