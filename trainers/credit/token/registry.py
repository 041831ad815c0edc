"""The token operators by name, in the order in which they act whatever the order they are asked for in.

A new operator is one function `f(tokens) -> array` of shape (B, T) and one line here. One of your own is registered in
`OPERATORS`, or offered by an installed package under the entry-point group `turngym.operators`; docs/extending.md has
an example.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.plugins import Registry
from trainers.credit.token.delight import delight
from trainers.credit.token.entropy_mask import entropy_mask
from trainers.credit.token.gtpo import gtpo
from trainers.credit.token.hicra import hicra
from trainers.credit.token.operator import Stage, TokenOperator, Tokens
from trainers.credit.token.sepa import sepa


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
