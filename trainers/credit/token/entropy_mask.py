"""Entropy mask: only the most uncertain share of tokens is trained on (Wang et al. 2025)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.operator import Tokens, top_k
from trainers.credit.token.settings import MaskScope


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
