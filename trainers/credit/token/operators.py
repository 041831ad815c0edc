"""The token operators g(t) >= 0: SEPA, GTPO, HICRA, Delight, entropy mask; and their registry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.plugins import Registry
from trainers.credit.settings import DelightMode, DelightNorm, MaskScope, SepaMode, TokenSettings
from trainers.credit.token.tokens import Stage, TokenOperator, Tokens, row_means, top_k

# -- GTPO: more credit for tokens that were less certain than the episode's mean (Tan et al. 2025) --------------------

UNIFORM = 1e-7
"""A mean signal below this (also a negative one) has nothing to compare with: weights 1."""
EPS = 1e-8


def gtpo(tokens: Tokens) -> NDArray[np.float64]:
    """`max(0, 1 + beta (S / mean(S) - 1))`, the mean over the sampled tokens of the episode.

    For a signal >= 0 and T tokens the weights lie in [1 - beta, 1 + beta (T - 1)].
    """
    beta = tokens.settings.gtpo_beta
    mean = row_means(tokens.signal, tokens.counts)
    known = mean >= UNIFORM
    slope = np.where(known, beta / (np.where(known, mean, 1.0) + EPS), 0.0)
    out = tokens.signal * slope
    out += np.where(known, 1.0 - beta, 1.0)
    return np.maximum(out, 0.0, out=out)


# -- HICRA: planning tokens gain in good episodes and are spared in bad ones (Wang et al. 2025) -----------------------


def hicra(tokens: Tokens) -> NDArray[np.float64]:
    """`1 + alpha sign(A) m`: the reference's `A + alpha |A| m` as a weight.

    Raises:
        ValueError: There is no planning mask, or alpha is outside [0, 1] (above 1 it would turn negative advantages
            round).
    """
    alpha = tokens.settings.hicra_alpha
    if tokens.planning is None:
        raise ValueError("token operator hicra: it needs a planning mask")
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"token operator hicra: alpha {alpha} outside [0, 1] would change the sign of advantages")
    out = tokens.planning * (alpha * np.sign(tokens.advantages))[:, None]
    out += 1.0
    return np.asarray(out, dtype=np.float64)


# -- SEPA: pools (or amplifies) the uncertainty of execution tokens, so that GTPO weighs planning tokens --------------
# mu is the mean signal of the execution tokens of an episode; planning tokens keep their signal. Lambda 0 changes
# nothing, which is plain GTPO and not weights of 1.


def sepa(tokens: Tokens) -> NDArray[np.float64]:
    """`lam mu + (1 - lam) S` (pool), `(1 + lam) S - lam mu` (amp), or that and at least 0 (amp_clamped).

    Raises:
        ValueError: There is no planning mask.
    """
    if tokens.planning is None:
        raise ValueError("token operator sepa: it needs a planning mask")
    return sepa_signal(tokens.signal, tokens.mask & ~tokens.planning, tokens.state.lam, tokens.settings.sepa_mode)


def sepa_signal(
    signal: NDArray[np.float64], execution: NDArray[np.bool_], lam: float, mode: SepaMode = SepaMode.POOL
) -> NDArray[np.float64]:
    """The transformed signal; unchanged where `execution` is off and for `lam` 0 (which is cut to [0, 1])."""
    lam = min(1.0, max(0.0, lam))
    if lam == 0.0:
        return signal
    out = signal * execution
    mean = row_means(out, np.count_nonzero(execution, axis=1).astype(np.float64))
    # signal + lam (mean - signal), or - lam (...), where execution is on; one array, in place.
    np.subtract(mean, signal, out=out)
    out *= execution
    out *= lam if mode is SepaMode.POOL else -lam
    out += signal
    if mode is SepaMode.AMP_CLAMPED:
        np.maximum(out, 0.0, out=out, where=execution)
    return out


# -- Entropy mask: only the most uncertain share of tokens is trained on (Wang et al. 2025) ---------------------------


def entropy_mask(tokens: Tokens) -> NDArray[np.float64]:
    """1 for exactly `min(n, max(1, int(n rho)))` of the n sampled tokens of a group (or of a generation), else 0.

    Among tokens with the same signal the earlier one is kept (by episode, then by position). The references keep all
    that tie with the threshold: with most surprisals at exactly 0 that is every token. It reads the signal before SEPA.
    """
    s = tokens.settings
    rows = 1 if s.entropy_mask_scope is MaskScope.BATCH else len(tokens.mask) // tokens.group_size
    kept = exact_top(tokens.raw.reshape(rows, -1), tokens.mask.reshape(rows, -1), s.entropy_mask_share)
    sampled = max(1, int(tokens.counts.sum()))
    wanted = _wanted(np.count_nonzero(tokens.mask.reshape(rows, -1), axis=1), s.entropy_mask_share)
    tokens.notes["credit/mask_requested"] = float(wanted.sum()) / sampled
    tokens.notes["credit/mask_kept"] = float(np.count_nonzero(kept)) / sampled
    return kept.reshape(tokens.mask.shape).astype(np.float64)


def exact_top(signal: NDArray[np.float64], mask: NDArray[np.bool_], share: float) -> NDArray[np.bool_]:
    """Exactly the top `share` of each row, at least one token where there is any.

    Raises:
        ValueError: `share` is not above 0 and at most 1.
    """
    if not 0.0 < share <= 1.0:
        raise ValueError(f"token operator entropy_mask: share {share} must be above 0 and at most 1")
    return top_k(signal, mask, _wanted(np.count_nonzero(mask, axis=1), share))


def _wanted(counts: NDArray[np.int64], share: float) -> NDArray[np.int64]:
    return np.minimum(counts, np.maximum(1, (counts * share).astype(np.int64)))


# -- Delight's temperature, calibrated so that a chosen share of the gates stays near 1/2 -----------------------------

NEUTRAL_EDGE = float(np.log(0.6 / 0.4))
"""The sigmoid's argument at which a gate leaves [0.4, 0.6]."""


def adaptive_eta(
    products: NDArray[np.float64],
    active: NDArray[np.bool_],
    settings: TokenSettings,
    *,
    previous: float | None,
) -> float:
    """`quantile(|A s|, neutral) / ln(1.5)`, cut to [min, max], blended with the value of the step before.

    `products` are `A s`, shape (B, T), taken where `active` is on: sampled tokens of episodes with an advantage other
    than 0. Without any the value stays. One value per step (a reference has one per group).
    """
    sizes = products[active]
    np.abs(sizes, out=sizes)
    if not sizes.size:
        return settings.delight_eta if previous is None else previous
    eta = _quantile(sizes, settings.delight_neutral) / NEUTRAL_EDGE
    eta = min(settings.delight_eta_max, max(settings.delight_eta_min, eta))
    if previous is None:
        return eta
    return settings.delight_eta_decay * previous + (1.0 - settings.delight_eta_decay) * eta


def _quantile(values: NDArray[np.float64], share: float) -> float:
    """Linear interpolation, as `numpy.quantile`, by one partition; `values` are reordered."""
    at = share * (values.size - 1)
    low = int(at)
    if low + 1 >= values.size:
        return float(values.max())
    values.partition(low)
    return float(values[low] + (at - low) * (values[low + 1 :].min() - values[low]))


# -- Delight: gates tokens by advantage times surprisal, so that surprising tokens of good episodes count -------------
# The gate is at least 1/2 in good episodes and at most 1/2 in bad ones: it also shrinks the whole gradient.

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


# -- The token operators by name, in the order in which they act whatever the order they are asked for in -------------
# A new operator is one function `f(tokens) -> array` of shape (B, T) and one line here. One of your own is registered
# in `OPERATORS`, or offered by an installed package under the entry-point group `turngym.operators`; docs/extending.md
# has an example.


def _operator(name: str, thing: Any) -> TokenOperator:
    if name == "none":
        raise ValueError("'none' stands for no operator: choose another name")
    if isinstance(thing, TokenOperator):
        return thing
    if not callable(thing) or isinstance(thing, type):
        raise ValueError("is neither a function of tokens nor a trainers.credit.token.TokenOperator")
    return TokenOperator(thing)


OPERATORS: Registry[TokenOperator] = Registry(
    "token operator",
    "turngym.operators",
    {
        "sepa": TokenOperator(sepa, Stage.SIGNAL, planning=True),
        "gtpo": TokenOperator(gtpo),
        "hicra": TokenOperator(hicra, planning=True, signal=False),
        "delight": TokenOperator(delight),
        "entropy_mask": TokenOperator(entropy_mask),
    },
    take=_operator,
)


def operator_names(text: str) -> tuple[str, ...]:
    """The names in a comma list, in the order of the registry; none for `none` or an empty text.

    Raises:
        ValueError: Nothing has a name, it cannot be used, or it stands there twice.
    """
    named = [part.strip() for part in text.split(",") if part.strip()]
    if named in ([], ["none"]):
        return ()
    for name in named:
        OPERATORS.find(name)
    if len(set(named)) < len(named):
        raise ValueError("an operator is named twice")
    return tuple(name for name in OPERATORS.names() if name in named)


def token_weights(names: Sequence[str], tokens: Tokens) -> NDArray[np.float64]:
    """The product of the operators' weights, shape (B, T); what stands where no token was sampled means nothing.

    Raises:
        ValueError: An operator lacks what it reads, or gives another shape, a value that is not finite, or a weight
            below 0.
    """
    weights: NDArray[np.float64] | None = None
    for name in names:
        operator = OPERATORS.find(name)
        out = np.asarray(operator.apply(tokens), dtype=np.float64)  # of the user's it may be a mask
        if out.shape != tokens.mask.shape:
            raise ValueError(f"token operator {name}: shape {out.shape} for tokens of shape {tokens.mask.shape}")
        # A sum is finite exactly when all terms are, but for an overflow: then look closer.
        if not np.isfinite(out.sum()):
            if not np.isfinite(out[tokens.mask]).all():
                raise ValueError(f"token operator {name}: a value that is not finite")
            out = np.where(tokens.mask, out, 0.0)  # nor may one that was not sampled reach a sum
        if operator.stage is Stage.SIGNAL:
            if out is not tokens.signal:  # the operators after it take sums over whole rows
                tokens.signal = np.multiply(out, tokens.mask, dtype=np.float64)
            continue
        if out.min(initial=0.0) < 0 and out[tokens.mask].min(initial=0.0) < 0:
            raise ValueError(f"token operator {name}: a weight below 0")
        if weights is None:
            weights = np.asarray(out, dtype=np.float64)
            if np.may_share_memory(weights, tokens.raw) or np.may_share_memory(weights, tokens.signal):
                weights = weights.copy()  # an operator whose weight is the signal
        else:
            weights *= out
    return np.ones(tokens.mask.shape) if weights is None else weights
