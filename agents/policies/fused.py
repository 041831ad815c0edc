"""A leaner forward for models of Llama's shape: the same arithmetic in a third of the kernels.

One step of a small model is a thousand tiny kernels; on a GPU their number decides its time. Here norms (with the
residual), rotations and gates are one kernel each, and where a row has one id grouped heads attend without
copies of their keys. The linear layers are the model's own modules, so adapters work, and weights are never copied.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from agents.policies.decoder import Decoder
from agents.policies.slots import SlotCache

_MODELS = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_NORMS = {"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm"}


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMS norm over the last dimension, in float32."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum, and its RMS norm."""
    total = x + residual
    return total, norm(total, weight, eps)


def rotate(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotary positions: queries and keys `[ids, heads, dim]`, `cos` and `sin` `[ids, 1, dim]`."""
    half = q.shape[-1] // 2
    turned_q = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
    turned_k = torch.cat((-k[..., half:], k[..., :half]), dim=-1)
    return q * cos + turned_q * sin, k * cos + turned_k * sin


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU."""
    return torch.nn.functional.silu(gate) * up


class FusedDecoder:
    """The forward of a model of Llama's shape.

    Args:
        decoder: The model.
        small: A module with `norm`, `add_norm`, `rotate` and `gated`; default: those of this one.
    """

    def __init__(self, decoder: Decoder, small: Any = None) -> None:
        self._body = decoder.body
        self._decoder = decoder
        self._small = small or sys.modules[__name__]

    @staticmethod
    def fits(decoder: Decoder) -> bool:
        """Whether a model is of the known shape in every detail; any other runs through its own modules."""
        base, body = decoder.base, decoder.body
        if type(base).__name__ not in _MODELS or decoder.windowed or base.config.hidden_act != "silu":
            return False
        if any(hasattr(m, "_hf_hook") or m._forward_hooks or m._forward_pre_hooks for m in body.modules()):
            return False  # somebody watches or moves the modules' inputs
        norms = [body.norm]
        for layer in body.layers:
            norms += [layer.input_layernorm, layer.post_attention_layernorm]
            norms += [getattr(layer.self_attn, name) for name in ("q_norm", "k_norm") if hasattr(layer.self_attn, name)]
        return all(type(module).__name__ in _NORMS for module in norms)

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, read: int, cache: SlotCache) -> torch.Tensor:
        """As `Decoder.hidden`."""
        body, small = self._body, self._small
        (rows, tokens), first = ids.shape, body.layers[0].input_layernorm
        total = body.embed_tokens(ids).view(rows * tokens, -1)
        cos, sin = (
            part.reshape(rows * tokens, 1, -1) for part in body.rotary_emb(total, self._decoder.known(positions))
        )
        mask = self._decoder.mask(positions, read)
        x = small.norm(total, first.weight, first.variance_epsilon)
        for index, layer in enumerate(body.layers):
            attention, mlp = layer.self_attn, layer.mlp
            dim = attention.head_dim
            q = attention.q_proj(x).view(rows * tokens, -1, dim)
            k = attention.k_proj(x).view(rows * tokens, -1, dim)
            v = attention.v_proj(x).view(rows, tokens, -1, dim).transpose(1, 2)
            if hasattr(attention, "q_norm"):
                q = small.norm(q, attention.q_norm.weight, attention.q_norm.variance_epsilon)
                k = small.norm(k, attention.k_norm.weight, attention.k_norm.variance_epsilon)
            q, k = small.rotate(q, k, cos, sin)
            keys, values = cache.update(k.view(rows, tokens, -1, dim).transpose(1, 2), v, index)
            out = attend(q.view(rows, tokens, -1, dim), keys, values, mask, attention.scaling)
            out = attention.o_proj(out.reshape(rows * tokens, -1))
            after = layer.post_attention_layernorm
            total, x = small.add_norm(out, total, after.weight, after.variance_epsilon)
            out = mlp.down_proj(small.gated(mlp.gate_proj(x), mlp.up_proj(x)))
            after = body.layers[index + 1].input_layernorm if index + 1 < len(body.layers) else body.norm
            total, x = small.add_norm(out, total, after.weight, after.variance_epsilon)
        return x.view(rows, tokens, -1)


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention with grouped heads: queries `[rows, tokens, heads, dim]`, keys and values `[rows, groups, read, dim]`.

    Returns:
        `[rows, tokens, heads, dim]`.
    """
    rows, tokens, heads, dim = q.shape
    groups, read = keys.shape[1:3]
    if tokens == 1:  # the heads of a group are the queries of one head: nothing is repeated
        seen = mask.expand(rows, groups, heads // groups, read)
        return scaled_dot_product_attention(q.view(rows, groups, -1, dim), keys, values, attn_mask=seen, scale=scale)
    shape = (rows, groups, heads // groups, read, dim)
    wide, full = (part.unsqueeze(2).expand(shape).reshape(rows, heads, read, dim) for part in (keys, values))
    return scaled_dot_product_attention(q.transpose(1, 2), wide, full, attn_mask=mask, scale=scale).transpose(1, 2)


def kernels(device: torch.device) -> Any:
    """The module that has the small functions as kernels; `None` where there is none, with a warning on a GPU."""
    if device.type != "cuda":
        return None
    try:
        from agents.policies import kernels as found

        x = torch.ones(2, 1, 8, device=device)
        found.rotate(x, x, x, x)
    except Exception as error:  # A missing compiler shows itself in many ways; it costs speed and nothing else.
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"decoding runs slower than it could: Triton does not work here ({reason})", stacklevel=2)
        return None
    return found
