"""The inert-intervention meter: does what was switched on change anything?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHANGED = 0.01
"""A weight further than this from 1 changes its token."""


def weight_figures(weights: NDArray[np.float64], active: NDArray[np.bool_]) -> dict[str, float]:
    """`credit/weight_min`, `_mean`, `_max` and `credit/changed_frac`; nothing without an active token.

    Args:
        weights: Shape (B, T).
        active: Shape (B, T): sampled tokens of episodes whose episode term is not 0; elsewhere a weight multiplies 0.
    """
    acting = weights[active]
    if not acting.size:
        return {}
    unchanged = np.count_nonzero((acting >= 1.0 - CHANGED) & (acting <= 1.0 + CHANGED))
    return {
        "credit/weight_min": float(acting.min()),
        "credit/weight_mean": float(acting.mean()),
        "credit/weight_max": float(acting.max()),
        "credit/changed_frac": 1.0 - unchanged / acting.size,
    }


def cosine_figure(advantages: NDArray[np.float64], uniform: NDArray[np.float64]) -> dict[str, float]:
    """`credit/cosine_uniform`: between the advantages in use and those with all weights 1; nothing if either is 0."""
    norms = _norm(advantages) * _norm(uniform)
    return (
        {"credit/cosine_uniform": min(1.0, float(np.einsum("ij,ij->", advantages, uniform)) / norms)} if norms else {}
    )


def _norm(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.einsum("ij,ij->", values, values)))
