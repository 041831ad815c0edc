"""The inert-intervention meter: does what was switched on change anything?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CHANGED = 0.01
"""A weight further than this from 1 changes its token."""


def measure(
    weights: NDArray[np.float64],
    active: NDArray[np.bool_],
    advantages: NDArray[np.float64],
    uniform: NDArray[np.float64],
) -> dict[str, float]:
    """Figures about the token weights of a step.

    Args:
        weights: Shape (B, T).
        active: Shape (B, T): sampled tokens of episodes whose episode term is not 0; elsewhere a weight multiplies 0.
        advantages: Shape (B, T), as they are used; 0 where no token was sampled.
        uniform: The same with all weights 1.

    Returns:
        `credit/weight_min`, `_mean`, `_max`, `credit/changed_frac` and `credit/cosine_uniform`: the cosine between
        the advantages and those without the operators. A figure that does not exist (no active token, all advantages
        0) is left out.
    """
    out: dict[str, float] = {}
    acting = weights[active]
    if acting.size:
        out["credit/weight_min"] = float(acting.min())
        out["credit/weight_mean"] = float(acting.mean())
        out["credit/weight_max"] = float(acting.max())
        unchanged = np.count_nonzero((acting >= 1.0 - CHANGED) & (acting <= 1.0 + CHANGED))
        out["credit/changed_frac"] = 1.0 - unchanged / acting.size
    norms = _norm(advantages) * _norm(uniform)
    if norms > 0:
        out["credit/cosine_uniform"] = min(1.0, float(np.einsum("ij,ij->", advantages, uniform)) / norms)
    return out


def _norm(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.einsum("ij,ij->", values, values)))
