"""What learning keeps for the backward pass and launches, where the libraries do more than the gradient needs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from peft.tuners.lora import Linear
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear
from torch.overrides import TorchFunctionMode
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from agents.policies.slots import sent

# -- LoRA: PEFT's result, with less kept over bfloat16, and with fewer kernels over float32 on a GPU -------------------
# PEFT's layer of a frozen weight W with an adapter B A computes
#
#     y = W x + s B A x,    shapes (..., out), with A (r, in) and B (out, r) in float32.
#
# Over bfloat16 each layer of PEFT's keeps a float32 copy of its x for the gradient of A: more than half of what a pass
# keeps, though the layers of a block read the same x. Here x is kept as it came, and cast once more in the backward
# pass. The forward pass makes the operations of PEFT's in its order and gives the same bits; gradients are the same up
# to rounding.
#
# Over float32 nothing is copied, and as much is kept. But PEFT scales and sums in kernels of their own, each of which
# reads and writes a whole y or x: two in the forward pass, two in the backward pass. A product can do both while it
# writes (`addmm` into what is there, times `alpha`), so that 8 products are all that is left of 12 kernels; values and
# gradients are the same up to rounding. A CPU launches nothing and keeps PEFT's bits.
#
# What PEFT can do beside that (dropout, DoRA, several adapters at once, merged or disabled ones, quantised weights) is
# left to it.


class _Adapted(torch.autograd.Function):
    """The formula above; W of the type of A and B, or narrower."""

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
        out = linear(x, weight, bias)
        inner = linear(x.to(a.dtype), a)
        ctx.save_for_backward(x, weight, a, b, inner)
        ctx.scale = scale
        if out.dtype != b.dtype:
            return (out + linear(inner, b) * scale).to(out.dtype)
        out.view(-1, out.shape[-1]).addmm_(_rows(inner), b.T, alpha=scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, a, b, inner = ctx.saved_tensors
        of_out, scale = _rows(gradient), ctx.scale
        mixed = of_out.dtype != b.dtype
        if mixed:  # cast and scaled in one place
            of_out, scale = of_out.to(b.dtype) * scale, 1.0
        of_inner = of_out @ b
        # With beta=0 the first argument gives no more than a shape.
        of_a = torch.addmm(a, of_inner.T, _rows(x.to(a.dtype)), beta=0, alpha=scale)
        of_b = torch.addmm(b, of_out.T, _rows(inner), beta=0, alpha=scale)
        of_x = None
        if ctx.needs_input_grad[0] and mixed:
            of_x = (of_inner @ a).view(x.shape).to(x.dtype) + gradient @ weight
        elif ctx.needs_input_grad[0]:
            of_x = (of_out @ weight).addmm_(of_inner, a, alpha=scale).view(x.shape)
        return of_x, None, None, of_a, of_b, None


def _rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1, tensor.shape[-1])


def keep_less(model: nn.Module) -> int:
    """Have the plain LoRA layers of a model compute so; returns how many there are."""
    linear_layers = (module for module in model.modules() if type(module) is Linear)
    found = [layer for layer in linear_layers if type(layer.base_layer) is nn.Linear and _some_gain(layer)]
    for module in found:
        module.forward = _Forward(module)
    return len(found)


def _some_gain(layer: Any) -> bool:
    return any(_gains(a.weight, layer.base_layer.weight) for a in layer.lora_A.values())


def _gains(a: torch.Tensor, weight: torch.Tensor) -> bool:
    return a.dtype != weight.dtype or sums_in_products(weight)


def sums_in_products(weight: torch.Tensor) -> bool:
    """Whether adapters of the same type as this weight are computed here: in float32 on a GPU."""
    return weight.is_cuda and weight.dtype == torch.float32


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
            and not (args or kwargs or layer.disable_adapters or layer.merged or base.weight.requires_grad)
            and not (base.bias is not None and base.bias.requires_grad)
            and name not in layer.lora_variant
            and isinstance(layer.lora_dropout[name], nn.Identity)
            and layer.lora_B[name].bias is None
            and not torch.is_autocast_enabled(x.device.type)
            and _gains(layer.lora_A[name].weight, base.weight)
        )
        if not plain:
            return type(layer).forward(layer, x, *args, **kwargs)
        a, b = layer.lora_A[name].weight, layer.lora_B[name].weight
        return _Adapted.apply(x, base.weight, base.bias, a, b, layer.scaling[name])


# -- Attention in float32 on a GPU: one kernel, whose memory grows with the tokens, not with their square --------------
# transformers leaves heads that share keys and values grouped where a batch has no padding, because flash attention
# takes them so. Flash attention knows no float32, and torch's other fused kernel knows no groups: what is left keeps a
# matrix of tokens x tokens for each head and layer until the backward pass. Measured on an H200, 4 rows of 2,736
# tokens, 9 heads over 3: 1.2 GiB kept in each layer, 0.06 with the heads spelled out.

SDPA = "sdpa"
"""The implementation of transformers that is replaced, and its default."""


def attend_in_one_kernel() -> None:
    """Have every model of this process that uses transformers' `sdpa` attend so."""
    AttentionInterface.register(SDPA, attend)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for each shape, which takes up to a second


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """`sdpa` of transformers, with heads spelled out where no kernel takes their groups.

    Args:
        module: The attention layer.
        query: Shape (rows, heads, tokens, dim).
        key: Shape (rows, groups, tokens, dim).
        value: The same.
        attention_mask: Shape (rows, 1, tokens, tokens); `None` where nothing is padded.
        kwargs: What else a model says.

    Returns:
        Shape (rows, tokens, heads, dim), and no weights.
    """
    each = getattr(module, "num_key_value_groups", 1)
    if each > 1 and attention_mask is None and no_grouped_kernel(query):
        key, value = repeat_kv(key, each), repeat_kv(value, each)
        module = SimpleNamespace(is_causal=getattr(module, "is_causal", True))
    return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)


def no_grouped_kernel(query: torch.Tensor) -> bool:
    """Whether torch has no fused kernel for groups of heads here: a GPU, and a number format that flash lacks."""
    return query.is_cuda and query.shape[2] > 1 and query.dtype not in (torch.float16, torch.bfloat16)


# -- Masks that the host knows: a GPU is not asked for their places ----------------------------------------------------
# To take what a mask of booleans chooses (`x[mask]`) the host must know how many that are. It asks the GPU, which
# answers when it has computed all that it was given before, and then waits for the host to launch what follows: a
# small kernel each, for a seventh of a pass. TRL's head does it in the forward pass and thrice in the backward pass.


class KnownMask(TorchFunctionMode):
    """Within it, what one mask chooses is taken by places that the host knows: the same numbers, and nobody waits.

    Args:
        begin: First column that the mask chooses, in every row.
        counts: Columns that it chooses, by row.
        columns: Of the mask, whose shape is (rows, columns); no other mask of that shape may be in use.
        device: Where it is.

    Attributes:
        wrong: Not 0, once it is read, where a mask chose other places than those.
    """

    def __init__(self, begin: int, counts: Sequence[int], columns: int, device: torch.device) -> None:
        super().__init__()
        self._shape = (len(counts), columns)
        places = np.concatenate([row * columns + begin + np.arange(count) for row, count in enumerate(counts)])
        self._places = sent(places.astype(np.int64), device)
        self.wrong = torch.zeros((), device=device)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls `func`, or takes its place."""
        if func is torch.Tensor.__getitem__ and self._is_known(args[1]):
            self._compare(args[1])
            return args[0].flatten(0, 1).index_select(0, self._places)
        if func is torch.Tensor.masked_scatter and not kwargs and self._is_known(args[1]):
            whole, _, values = args
            return whole.flatten().index_copy(0, self._places, values).view(whole.shape)
        return func(*args, **(kwargs or {}))

    def _is_known(self, mask: Any) -> bool:
        return isinstance(mask, torch.Tensor) and mask.dtype == torch.bool and tuple(mask.shape) == self._shape

    def _compare(self, mask: torch.Tensor) -> None:
        chosen = mask.flatten().index_select(0, self._places).sum()
        self.wrong = self.wrong + (chosen != len(self._places)) + (mask.sum() != chosen)
