"""GTPO: more credit for tokens that were less certain than the episode's mean (Tan et al. 2025)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.operator import Tokens, row_means

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
