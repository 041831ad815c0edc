"""What the operators share: when a group is constant, in floating point, and the k largest of each row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CONSTANT = 1e-6
"""A group whose spread is below this times max(1, |mean|) is constant and earns exactly 0."""
_SAMPLE = 256


def centred(values: NDArray[np.float64], *, divide_by_std: bool, eps: float) -> NDArray[np.float64]:
    """`values` minus their mean, over their sample standard deviation if asked.

    A group of one or a near-constant group gives exactly 0: rounding of a mean must not become a training signal (a
    constant group of 9.9s earns -0.47 in float32 with a small eps).

    Raises:
        ValueError: A value is not finite.
    """
    return centred_rows(values[None, :], divide_by_std=divide_by_std, eps=eps)[0]


def centred_rows(values: NDArray[np.float64], *, divide_by_std: bool, eps: float) -> NDArray[np.float64]:
    """`centred` for each row of shape (groups, members): groups of one size in one go.

    Raises:
        ValueError: A value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"advantages need finite values, got {values.tolist()}")
    if values.shape[1] < 2:
        return np.zeros_like(values)
    mean = values.mean(axis=1, keepdims=True)
    std = values.std(axis=1, ddof=1, keepdims=True)
    out = (values - mean) / (std + eps) if divide_by_std else values - mean
    out[(std < CONSTANT * np.maximum(1.0, np.abs(mean)))[:, 0]] = 0.0
    return out


def top_k(values: NDArray[np.float64], mask: NDArray[np.bool_], k: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Exactly the `k[i]` largest values of each row where `mask` is on; among equal values the earlier position.

    Args:
        values: Shape (R, N).
        mask: Shape (R, N); what is off is never chosen.
        k: Shape (R,), each at most the number of its row's entries.

    Returns:
        Shape (R, N).
    """
    candidates = np.where(mask, values, -np.inf)
    chosen = np.zeros(values.shape, dtype=bool)
    for i, wanted in enumerate(k):
        if wanted <= 0:
            continue
        row = candidates[i]
        # The value at the edge, then everything above it, then the earliest of its equals.
        edge = _kth_largest(row, int(wanted))
        above = row > edge
        equal = np.flatnonzero(row == edge)
        above[equal[: wanted - np.count_nonzero(above)]] = True
        chosen[i] = above
    return chosen & mask


def _kth_largest(row: NDArray[np.float64], k: int) -> float:
    """The k-th largest value. A sample says below what nothing needs sorting; if it says too much, all is sorted."""
    if row.size > 16 * _SAMPLE and k < row.size // 2:
        step = row.size // _SAMPLE
        sample = np.sort(row[::step])
        low = sample[max(0, int(sample.size * (1 - 1.25 * k / row.size)) - 8)]
        upper = row[row >= low]
        if k <= upper.size < row.size:
            row = upper
    return float(np.partition(row, row.size - k)[row.size - k])


def keep_freed_memory() -> None:
    """Let glibc keep a step's freed arrays for the next step instead of handing them back to the kernel each time.

    Freeing one block of nearly 32 MiB raises its thresholds to that; where another allocator is used, nothing happens.
    Nothing of it is ever touched. A step with every operator on takes a quarter less time.
    """
    np.empty(31 * 2**20, dtype=np.uint8)
