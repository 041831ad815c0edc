"""What comes last: normalising over the step (REINFORCE++) and the advantage cap, each with its figures for the log."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NORM_EPS = 1e-8
"""Added to the standard deviation; a step whose spread is below it is only centred."""


def batch_norm(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> tuple[NDArray[np.float64], dict[str, float]]:
    """`(a - mean) / (std + eps)` over the tokens where `mask` is on, population deviation; 0 elsewhere.

    A reference takes the tokens whose value is not 0 instead, which also drops tokens whose advantage happens to be 0.

    Args:
        values: Shape (B, T), finite.
        mask: Shape (B, T).

    Returns:
        The normalised values, and `credit/norm_mean` and `credit/norm_std`: what was subtracted and divided by.
    """
    count = int(np.count_nonzero(mask))
    if not count:
        return np.zeros(values.shape), {"credit/norm_mean": 0.0, "credit/norm_std": 0.0}
    kept = values * mask
    mean = float(kept.sum()) / count
    kept -= mean
    kept *= mask
    std = float(np.sqrt(np.einsum("ij,ij->", kept, kept) / count))
    if std >= NORM_EPS:
        kept /= std + NORM_EPS
    return kept, {"credit/norm_mean": mean, "credit/norm_std": std}


def cap_advantages(values: NDArray[np.float64], cap: float) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Cut advantages to [-cap, cap].

    Returns:
        The advantages, and of those that are not 0 `credit/capped_frac` (the share that was cut) and
        `credit/capped_magnitude` (mean |advantage| of these before the cut; 0 without any).

    Raises:
        ValueError: `cap` is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"advantage cap {cap}: it must be above 0")
    out = np.clip(values, -cap, cap)
    cut = np.abs(values[out != values])
    share = cut.size / int(np.count_nonzero(values)) if cut.size else 0.0
    magnitude = float(cut.mean()) if cut.size else 0.0
    return out, {"credit/capped_frac": share, "credit/capped_magnitude": magnitude}
