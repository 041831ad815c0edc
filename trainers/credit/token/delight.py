"""Delight: gates tokens by advantage times surprisal, so that surprising tokens of good episodes count.

The gate is at least 1/2 in good episodes and at most 1/2 in bad ones: it also shrinks the whole gradient.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.eta import adaptive_eta
from trainers.credit.token.operator import Tokens, top_k
from trainers.credit.token.settings import DelightMode, DelightNorm

FLAT = 1e-8
"""A spread below this divides nothing."""
MAD_TO_STD = 1.4826
SATURATED = 500.0
"""The exponential's argument is cut here: the gate is 0 anyway, and nothing overflows."""
BREAKTHROUGH, SUPPRESSED, NEUTRAL = 0.8, 0.2, (0.4, 0.6)
"""Gates above, below and between these are counted for the log."""


def delight(tokens: Tokens) -> NDArray[np.float64]:
    """`(1 - lam) + lam gate`: the gate of `delight_mode`. With advantage 0 that is 1/2 (soft), or 0 (hard)."""
    s = tokens.settings
    if s.delight_mode is DelightMode.HARD:
        gate = hard_gate(tokens.advantages, tokens.raw, tokens.mask, s.delight_keep).astype(np.float64)
        tokens.notes["credit/delight_kept"] = float(gate.sum()) / max(1.0, float(tokens.counts.sum()))
    else:
        spread = spreads(tokens.raw, tokens.mask, tokens.counts, s.delight_norm)
        products = tokens.raw * (tokens.advantages / spread)[:, None]
        active = tokens.mask & (tokens.advantages != 0)[:, None]
        eta = s.delight_eta
        if s.delight_adaptive:
            eta = tokens.state.eta = adaptive_eta(products, active, s, previous=tokens.state.eta)
            tokens.notes["credit/delight_eta"] = eta
        gate = soft_gate(products, eta)
        _note_gates(tokens, gate[active])
    lam = _share(tokens)
    if lam < 1.0:
        gate *= lam
        gate += 1.0 - lam
    return gate


def _share(tokens: Tokens) -> float:
    """Soft is all gate; annealed follows the schedule; hard is all gate; `delight_lambda` fixes the last two."""
    s = tokens.settings
    if s.delight_mode is DelightMode.SOFT:
        return 1.0
    if s.delight_lambda is not None:
        return s.delight_lambda
    return tokens.state.lam if s.delight_mode is DelightMode.ANNEALED else 1.0


def soft_gate(products: NDArray[np.float64], eta: float) -> NDArray[np.float64]:
    """`sigmoid(A s / eta)` of `products`, which are `A s` and are overwritten."""
    out = np.multiply(products, -1.0 / eta, out=products)
    np.minimum(out, SATURATED, out=out)
    np.exp(out, out=out)
    out += 1.0
    return np.reciprocal(out, out=out)


def hard_gate(
    advantages: NDArray[np.float64], signal: NDArray[np.float64], mask: NDArray[np.bool_], share: float
) -> NDArray[np.bool_]:
    """True for the `max(1, int(n share))` highest signals of an episode with A > 0, the lowest of one with A < 0.

    Ties keep the earlier token; an episode with A = 0 keeps none.
    """
    counts = np.count_nonzero(mask, axis=1)
    wanted = np.minimum(counts, np.maximum(1, (counts * share).astype(np.int64)))
    signs = np.sign(advantages)
    return top_k(signal * signs[:, None], mask, np.where(signs == 0, 0, wanted))


def spreads(
    signal: NDArray[np.float64], mask: NDArray[np.bool_], counts: NDArray[np.float64], norm: DelightNorm
) -> NDArray[np.float64]:
    """What divides the signal of each episode, shape (B,): its spread; 1 where there is none. It is not centred."""
    if norm is DelightNorm.NONE:
        return np.ones(len(signal))
    spread = MAD_TO_STD * _mad(signal, mask) if norm is DelightNorm.MAD else np.zeros(len(signal))
    flat = spread < FLAT
    if flat.any():
        spread[flat] = _std(signal[flat], mask[flat], counts[flat])
    return np.where((counts < 2) | (spread < FLAT), 1.0, spread)


def _std(signal: NDArray[np.float64], mask: NDArray[np.bool_], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Population standard deviation of each row."""
    n = np.maximum(counts, 1.0)
    deviation = signal - (signal.sum(axis=1) / n)[:, None]
    deviation *= mask
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", deviation, deviation) / n))


def _mad(signal: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Median absolute deviation of each row."""
    out = np.zeros(len(signal))
    for i, (row, on) in enumerate(zip(signal, mask, strict=True)):
        values = row[on]
        if values.size:
            deviations = values - _median(values.copy())
            out[i] = _median(np.abs(deviations, out=deviations))
    return out


def _median(values: NDArray[np.float64]) -> float:
    """The median; `values` are reordered."""
    middle = values.size // 2
    values.partition(middle)
    upper = float(values[middle])
    return upper if values.size % 2 else (float(values[:middle].max()) + upper) / 2


def _note_gates(tokens: Tokens, acting: NDArray[np.float64]) -> None:
    n = acting.size
    if not n:
        return
    tokens.notes |= {
        "credit/delight_gate_mean": float(acting.mean()),
        "credit/delight_breakthrough_frac": np.count_nonzero(acting > BREAKTHROUGH) / n,
        "credit/delight_suppressed_frac": np.count_nonzero(acting < SUPPRESSED) / n,
        "credit/delight_neutral_frac": np.count_nonzero((acting >= NEUTRAL[0]) & (acting <= NEUTRAL[1])) / n,
    }
