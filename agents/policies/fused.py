"""A leaner decode step for models of Llama's shape: the same arithmetic in a third of the kernels.

One step of a small model is a thousand tiny kernels; on a GPU their number decides its time. Here norms (with the
residual), rotations and gates are one compiled kernel each, and grouped heads attend without copies of their keys.
The linear layers are the model's own modules, so adapters work, and weights are never copied.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
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
    """Rotary positions: queries and keys `[rows, heads, dim]`, `cos` and `sin` `[rows, 1, dim]`."""
    half = q.shape[-1] // 2
    turned_q = torch.cat((-q[..., half:], q[..., :half]), dim=-1)
    turned_k = torch.cat((-k[..., half:], k[..., :half]), dim=-1)
    return q * cos + turned_q * sin, k * cos + turned_k * sin


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """SwiGLU."""
    return torch.nn.functional.silu(gate) * up


class FusedDecoder:
    """One decode step of a model of Llama's shape.

    Args:
        decoder: The model.
        compiled: Compile the small functions (CUDA, with Triton); without, they run as they are.
    """

    def __init__(self, decoder: Decoder, *, compiled: bool) -> None:
        self._body = decoder.body
        self._decoder = decoder
        wrap = _compile if compiled else lambda function: function
        self._norm, self._add_norm, self._rotate, self._gated = wrap(norm), wrap(add_norm), wrap(rotate), wrap(gated)

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
        """As `Decoder.hidden` for one id a row: `ids` and `positions` `[rows, 1]`; `[rows, 1, hidden]`."""
        body = self._body
        x = body.embed_tokens(ids).squeeze(1)
        rows = x.shape[0]
        cos, sin = body.rotary_emb(x.unsqueeze(1), self._decoder.known(positions))
        mask = self._decoder.mask(positions, read)
        total, x = (
            x,
            self._norm(x, body.layers[0].input_layernorm.weight, body.layers[0].input_layernorm.variance_epsilon),
        )
        for index, layer in enumerate(body.layers):
            attention, mlp = layer.self_attn, layer.mlp
            dim = attention.head_dim
            q = attention.q_proj(x).view(rows, -1, dim)
            k = attention.k_proj(x).view(rows, -1, dim)
            v = attention.v_proj(x).view(rows, -1, dim, 1).transpose(2, 3)
            if hasattr(attention, "q_norm"):
                q = self._norm(q, attention.q_norm.weight, attention.q_norm.variance_epsilon)
                k = self._norm(k, attention.k_norm.weight, attention.k_norm.variance_epsilon)
            q, k = self._rotate(q, k, cos, sin)
            keys, values = cache.update(k.unsqueeze(2), v, index)
            # The heads of a group are the queries of one head: nothing is repeated.
            grouped = q.view(rows, keys.shape[1], -1, dim)
            seen = mask.expand(rows, keys.shape[1], grouped.shape[2], read)
            out = scaled_dot_product_attention(grouped, keys, values, attn_mask=seen, scale=attention.scaling)
            out = attention.o_proj(out.reshape(rows, -1))
            after = layer.post_attention_layernorm
            total, x = self._add_norm(out, total, after.weight, after.variance_epsilon)
            out = mlp.down_proj(self._gated(mlp.gate_proj(x), mlp.up_proj(x)))
            after = body.layers[index + 1].input_layernorm if index + 1 < len(body.layers) else body.norm
            total, x = self._add_norm(out, total, after.weight, after.variance_epsilon)
        return x.unsqueeze(1)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


def can_compile(device: torch.device) -> bool:
    """Whether the small functions compile here; says why not, once, where a GPU would gain from it."""
    if device.type != "cuda":
        return False
    try:
        x = torch.ones(2, 8, device=device)
        _compile(gated)(x, x)
    except Exception as error:  # A missing compiler shows itself in many ways; it costs speed and nothing else.
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"decoding runs slower than it could: torch.compile does not work here ({reason})", stacklevel=2)
        return False
    return True
