"""LoRA: less kept for the backward pass over bfloat16 weights; which rank an adapter that was trained would need.

In learning, PEFT's layer of a frozen weight W with an adapter B A computes

    y = W x + s B A x,    shapes (..., out), with A (r, in) and B (out, r) in float32,

and each layer keeps a float32 copy of its x for the gradient of A: more than half of what a pass keeps, though the
layers of a block read the same x. Here x is kept as it came, and cast once more in the backward pass. The forward pass
makes the operations of PEFT's in its order and gives the same bits; gradients are the same up to rounding.

What PEFT can do beside that (dropout, DoRA, several adapters at once, merged or disabled ones, quantised weights) is
left to it, and so is LoRA over float32 weights, where nothing is copied.

After training, `variance_by_rank` says how much of each layer's B A a smaller rank would keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from peft.tuners.lora import Linear
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


class _Adapted(torch.autograd.Function):
    """The formula above."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        a: torch.Tensor,
        b: torch.Tensor,
        scale: float,
    ) -> torch.Tensor:
        frozen = linear(x, weight, bias)
        inner = linear(x.to(a.dtype), a)
        ctx.save_for_backward(x, weight, a, b, inner)
        ctx.scale = scale
        return (frozen + linear(inner, b) * scale).to(frozen.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, a, b, inner = ctx.saved_tensors
        scaled = gradient.to(b.dtype) * ctx.scale
        of_inner = scaled @ b
        of_a = _rows(of_inner).T @ _rows(x.to(a.dtype))
        of_b = _rows(scaled).T @ _rows(inner)
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (of_inner @ a).to(x.dtype) + gradient @ weight
        return of_x, None, None, of_a, of_b, None


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def keep_less(model: nn.Module) -> int:
    """Have the plain LoRA layers of a model compute as this file says; returns how many there are."""
    linear_layers = (module for module in model.modules() if type(module) is Linear)
    found = [layer for layer in linear_layers if type(layer.base_layer) is nn.Linear and _copies(layer)]
    for module in found:
        module.forward = _Forward(module)
    return len(found)


def _copies(layer: Any) -> bool:
    return any(a.weight.dtype != layer.base_layer.weight.dtype for a in layer.lora_A.values())


class _Forward:
    """In the place of a layer's `forward`: PEFT's own where anything but the formula is asked for."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer

    def __call__(self, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        layer, base = self._layer, self._layer.base_layer
        adapters = layer.active_adapters
        name = adapters[0] if len(adapters) == 1 else None
        plain = (
            name in layer.lora_A
            and torch.is_grad_enabled()
            and not (args or kwargs or layer.disable_adapters or layer.merged or base.weight.requires_grad)
            and name not in layer.lora_variant
            and isinstance(layer.lora_dropout[name], nn.Identity)
            and layer.lora_B[name].bias is None
            and not torch.is_autocast_enabled(x.device.type)
        )
        if not plain:
            return type(layer).forward(layer, x, *args, **kwargs)
        a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
        return _Adapted.apply(x, base.weight, base.bias, a, b, layer.scaling[name])


# -- After training: the rank by variance -----------------------------------------------------------------------------


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
