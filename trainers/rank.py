"""Which rank a trained LoRA adapter would need: how much of each layer's B A a smaller rank would keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class NeededRank:
    """What a trained adapter needs of its rank.

    Attributes:
        needed: The smallest power of 2 that keeps the share of variance in the mean over layers.
        trained: The rank that it has.
    """

    needed: int
    trained: int

    def __str__(self) -> str:
        return f"{self.needed} of {self.trained}"


def needed_rank(folder: Path, *, share: float = 0.95) -> NeededRank | None:
    """Of an adapter as PEFT saves it; `None` where the folder holds none, or one that learned nothing.

    Args:
        folder: Such as `best/` of a run.
        share: Of the variance, in (0, 1].

    Raises:
        ValueError: The file holds no pairs of LoRA matrices.
    """
    path = folder / "adapter_model.safetensors"
    if not path.is_file():
        return None
    from safetensors.torch import load_file  # loads torch: only where there is something to read

    tensors = {name: tensor.double().numpy() for name, tensor in load_file(path).items()}
    pairs = {name: name.replace(".lora_A.", ".lora_B.") for name in tensors if ".lora_A." in name}
    if not pairs or not pairs.keys() | set(pairs.values()) <= tensors.keys():
        raise ValueError(f"{path}: not a LoRA adapter: it holds {', '.join(sorted(tensors)[:4]) or 'nothing'}")
    trained = max(tensors[down].shape[0] for down in pairs)
    ranks = sorted({2**n for n in range(trained.bit_length())} | {trained})
    layers = {down: variance_by_rank(tensors[up], tensors[down], ranks) for down, up in pairs.items()}
    if all(layer.is_zero for layer in layers.values()):
        return None
    needed = recommended_rank(layers, share=share)
    assert needed is not None, "the trained rank keeps everything"
    return NeededRank(needed, trained)


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
