"""What comes last: normalising over the step (REINFORCE++) and the advantage cap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EPS = 1e-8
"""Added to the standard deviation; a step whose spread is below it is only centred."""


@dataclass(frozen=True, slots=True)
class Normalised:
    """Token values after normalising.

    Attributes:
        values: Shape (B, T), 0 where `mask` is off.
        count: Tokens that were normalised; `mean` and `std` are theirs.
    """

    values: NDArray[np.float64]
    count: int
    mean: float
    std: float


def batch_norm(
    values: NDArray[np.float64], mask: NDArray[np.bool_], out: NDArray[np.float64] | None = None
) -> Normalised:
    """`(a - mean) / (std + eps)` over the tokens where `mask` is on, population deviation.

    `values` are finite; `out` takes the result, and may be `values`.

    A reference takes the tokens whose value is not 0 instead, which also drops tokens whose advantage happens to be 0.
    """
    count = int(np.count_nonzero(mask))
    if not count:
        return Normalised(np.zeros(values.shape), 0, 0.0, 0.0)
    kept = np.multiply(values, mask, out=out)
    mean = float(kept.sum()) / count
    kept -= mean
    kept *= mask
    std = float(np.sqrt(np.einsum("ij,ij->", kept, kept) / count))
    if std >= EPS:
        kept /= std + EPS
    return Normalised(kept, count, mean, std)


@dataclass(frozen=True, slots=True)
class Capped:
    """Advantages after the cap.

    Attributes:
        values: Between -cap and cap.
        share: Share of the advantages other than 0 that were cut.
        magnitude: Mean |advantage| of those before the cut; 0 without any.
    """

    values: NDArray[np.float64]
    share: float
    magnitude: float


def cap_advantages(values: NDArray[np.float64], cap: float) -> Capped:
    """Cut advantages to [-cap, cap].

    Raises:
        ValueError: `cap` is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"advantage cap {cap}: it must be above 0")
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    if -cap <= low and high <= cap:
        return Capped(values, 0.0, 0.0)
    out = np.minimum(values, cap)
    np.maximum(out, -cap, out=out)
    cut = np.abs(values[out != values])
    return Capped(out, cut.size / int(np.count_nonzero(values)), float(cut.mean()))
