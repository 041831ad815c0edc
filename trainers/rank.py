"""Which rank a trained LoRA adapter would need: how much of each layer's B A a smaller rank would keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RankAnalysis:
    """One layer's adapter, the product of `up` (out, r) and `down` (r, in).

    Attributes:
        singular_values: Of the product, largest first, shape (min(r, out, in),).
        variance: Rank to the share of the sum of squared singular values that the first `rank` have; 1.0 at every rank
            of an adapter that is 0.
    """

    singular_values: NDArray[np.float64]
    variance: dict[int, float]

    @property
    def is_zero(self) -> bool:
        """Nothing was learned: such an adapter looks as if any rank would do."""
        return not self.singular_values.any()


def variance_by_rank(up: NDArray, down: NDArray, ranks: Sequence[int]) -> RankAnalysis:
    """How much of an adapter smaller ranks would keep.

    Args:
        up: `lora_B`, shape (out, r).
        down: `lora_A`, shape (r, in).
        ranks: Ranks to look at, 1 or more.

    Raises:
        ValueError: The shapes do not fit, or a rank is below 1.
    """
    up, down = np.asarray(up, dtype=np.float64), np.asarray(down, dtype=np.float64)
    if up.ndim != 2 or down.ndim != 2 or up.shape[1] != down.shape[0] or min(ranks, default=1) < 1:
        shapes = f"{up.shape}, {down.shape}"
        raise ValueError(f"variance_by_rank: needs shapes (out, r), (r, in) and ranks >= 1; got {shapes} and {ranks}")
    # The product has r singular values at most: those of the small factors' product.
    values = np.linalg.svd(np.linalg.qr(up).R @ np.linalg.qr(down.T).R.T, compute_uv=False)
    squares = values**2
    total = squares.sum()
    return RankAnalysis(values, {rank: float(squares[:rank].sum() / total) if total else 1.0 for rank in ranks})


def recommended_rank(layers: Mapping[str, RankAnalysis], *, share: float = 0.95) -> int | None:
    """Smallest analysed rank whose mean share of variance over layers is `share` or more; `None` if none is.

    Args:
        layers: Name of a layer to its analysis, all of the same ranks.
        share: Of the variance, in (0, 1].

    Raises:
        ValueError: There is no layer, or no layer learned anything.
    """
    learned = [layer for layer in layers.values() if not layer.is_zero]
    if not learned:
        raise ValueError("recommended_rank: every adapter is 0: nothing was learned, and no rank can be recommended")
    enough = (rank for rank in learned[0].variance if np.mean([one.variance[rank] for one in learned]) >= share - 1e-12)
    return min(enough, default=None)


def compressed(up: NDArray, down: NDArray, rank: int, alpha: float) -> tuple[NDArray, NDArray, float]:
    """The nearest adapter of a smaller rank: `up` (out, rank), `down` (rank, in), and the alpha with the same scale.

    PEFT scales by alpha / r, so alpha shrinks with the rank.

    Raises:
        ValueError: `rank` is not in [1, min(r, out, in)].
    """
    most = min(*up.shape, down.shape[1])
    if not 1 <= rank <= most:
        raise ValueError(f"compressed: rank {rank} is not in [1, {most}]")
    q_up, r_up = np.linalg.qr(np.asarray(up, dtype=np.float64))
    q_down, r_down = np.linalg.qr(np.asarray(down, dtype=np.float64).T)
    left, values, right = np.linalg.svd(r_up @ r_down.T)
    root = np.sqrt(values[:rank])
    return q_up @ left[:, :rank] * root, root[:, None] * (right[:rank] @ q_down.T), alpha * rank / up.shape[1]
