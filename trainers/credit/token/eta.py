"""Delight's temperature, calibrated so that a chosen share of the gates stays near 1/2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.settings import TokenSettings

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
