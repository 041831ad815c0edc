"""A leaner forward for models of Llama's shape: the same arithmetic in a third of the kernels.

One step of a small model is a thousand tiny kernels; on a GPU their number decides its time. Here norms (with the
residual), rotations and gates are one kernel each, and where a row has one id grouped heads attend without copies of
their keys. The linear layers are the model's own modules, so adapters work, and weights are never copied; layers that
read the same input are one where their weights lie behind each other (`join`), as in a copy that only samples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache as once
from typing import Any

import torch
from torch.nn.functional import linear, scaled_dot_product_attention

from agents.policies.decoder import Decoder
from agents.policies.slots import SlotCache

_MODELS = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"}
_NORMS = {"LlamaRMSNorm", "MistralRMSNorm", "Qwen2RMSNorm", "Qwen3RMSNorm"}
Mask = Callable[[], torch.Tensor]
"""Makes the mask of a forward once somebody reads it."""
SPLIT = 256
"""Positions that one program reads in a time for which starting another kernel is little."""
_PROGRAMS = 256
"""Programs that keep the memory of a large GPU busy, about."""


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


def gated_halves(joined: torch.Tensor) -> torch.Tensor:
    """SwiGLU of gate and up in one, `[ids, 2 * width]`."""
    gate, up = joined.chunk(2, dim=-1)
    return gated(gate, up)


def turn_and_store(
    joined: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
    index: torch.Tensor, tokens: int,
) -> torch.Tensor:  # fmt: skip
    """Queries, keys and values in one, `[ids, (heads + 2 * groups) * dim]`: turn, and write keys and values away.

    Args:
        joined: They, for rows of `tokens` ids each.
        cos: `[ids, 1, dim]`.
        sin: `[ids, 1, dim]`.
        keys: All that the cache has, `[slots, groups, length, dim]`.
        values: Likewise.
        index: Where each goes, in `[rows, groups, tokens]` order (`SlotCache.index`).
        tokens: Ids of a row.

    Returns:
        The queries `[ids, heads, dim]`.
    """
    groups, dim = keys.shape[1], keys.shape[3]
    q, k, v = joined.view(joined.shape[0], -1, dim).tensor_split((-2 * groups, -groups), dim=1)
    q, k = rotate(q, k, cos, sin)
    order = index.view(-1, groups, tokens).transpose(1, 2).reshape(-1)
    keys.view(-1, dim).index_copy_(0, order, k.reshape(-1, dim))
    values.view(-1, dim).index_copy_(0, order, v.reshape(-1, dim))
    return q


def attend_one(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, mask: Mask, scale: float
) -> torch.Tensor:
    """Attention of rows with one new id each.

    Args:
        q: Queries `[rows, groups, heads of a group, dim]`.
        keys: `[rows, groups, read, dim]`, a view of what the cache has.
        values: Likewise.
        positions: `[rows]`, of the new ids: each sees those up to its own.
        mask: `[rows, 1, 1, read]`, which says the same.
        scale: Factor on the products of queries and keys.

    Returns:
        As `q`.
    """
    # The heads of a group are the queries of one head: nothing is repeated.
    seen = mask().expand(*q.shape[:3], keys.shape[2])
    return scaled_dot_product_attention(q, keys, values, attn_mask=seen, scale=scale)


def splits(programs: int, read: int) -> int:
    """How many programs share the positions of a row where one each would be `programs`; a power of two."""
    count = 1
    while 2 * count * programs <= _PROGRAMS and 2 * count * SPLIT <= read:
        count *= 2
    return count


Joined = tuple[torch.Tensor, torch.Tensor | None]
"""Weights and biases of linear layers that lie behind each other."""


def join(linears: Sequence[Any]) -> None:
    """Put the weights (and biases) of linear layers behind each other, so that `as_one` finds them."""
    for leaf in ("weight", "bias"):
        parts = [getattr(linear, leaf) for linear in linears]
        if any(part is None for part in parts):
            continue
        pieces = torch.cat([part.detach() for part in parts]).split([len(part) for part in parts])
        for part, piece in zip(parts, pieces, strict=True):
            part.data = piece


def as_one(linears: Sequence[Any]) -> Joined | None:
    """Linear layers as one; `None` where they are others, or do not lie behind each other."""
    if any(type(linear) is not torch.nn.Linear for linear in linears):
        return None
    weights, biases = [linear.weight for linear in linears], [linear.bias for linear in linears]
    weight = _behind(weights)
    if weight is None or all(bias is None for bias in biases):
        return None if weight is None else (weight, None)
    bias = None if any(bias is None for bias in biases) else _behind(biases)
    return None if bias is None else (weight, bias)


def _behind(parts: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Tensors as one, where each begins in memory where the one before ends."""
    first, end = parts[0].detach(), parts[0].storage_offset()
    for part in parts:
        same = part.untyped_storage().data_ptr() == first.untyped_storage().data_ptr()
        if not same or part.storage_offset() != end or not part.is_contiguous() or part.dtype != first.dtype:
            return None
        end += part.numel()
    return first.as_strided((sum(map(len, parts)), *first.shape[1:]), first.stride())


_TOGETHER = (("self_attn", ("q_proj", "k_proj", "v_proj")), ("mlp", ("gate_proj", "up_proj")))
"""Linear layers of a block with the same input."""


def _of_block(layer: Any) -> list[list[Any]]:
    return [[getattr(getattr(layer, part), name, None) for name in names] for part, names in _TOGETHER]


class FusedDecoder:
    """The forward of a model of Llama's shape.

    Args:
        decoder: The model.
        small: A module with the functions above; default: those of this one.
    """

    def __init__(self, decoder: Decoder, small: Any = None) -> None:
        self._body = decoder.body
        self._decoder = decoder
        self._small = small or sys.modules[__name__]
        self._joined = [[as_one(linears) for linears in _of_block(layer)] for layer in decoder.body.layers]

    @staticmethod
    def prepare(model: Any) -> None:
        """Join what can be one in a model of a known shape that nobody else holds: its weights move."""
        if type(model).__name__ in _MODELS:
            for layer in model.model.layers:
                for linears in _of_block(layer):
                    join(linears)

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
        mask = once(lambda: self._decoder.mask(positions, read))
        x = small.norm(total, first.weight, first.variance_epsilon)
        for index, layer in enumerate(body.layers):
            out = self._attend(index, x, (cos, sin), mask, positions, cache)
            after = layer.post_attention_layernorm
            total, x = small.add_norm(out, total, after.weight, after.variance_epsilon)
            out = self._feed_forward(index, x)
            after = body.layers[index + 1].input_layernorm if index + 1 < len(body.layers) else body.norm
            total, x = small.add_norm(out, total, after.weight, after.variance_epsilon)
        return x.view(rows, tokens, -1)

    def _attend(
        self, index: int, x: torch.Tensor, turns: tuple[torch.Tensor, torch.Tensor], mask: Mask,
        positions: torch.Tensor, cache: SlotCache,
    ) -> torch.Tensor:  # fmt: skip
        attention, small = self._body.layers[index].self_attn, self._small
        (rows, tokens), dim, one = positions.shape, attention.head_dim, self._joined[index][0]
        if one is not None and not hasattr(attention, "q_norm"):
            states = linear(x, *one)
            groups = attention.k_proj.out_features // dim
            keys, values = cache.stored(index, states.view(rows, tokens, -1, dim)[:, :, :groups].transpose(1, 2))
            q = small.turn_and_store(states, *turns, keys, values, cache.index(groups), tokens)
            keys, values = cache.seen(keys), cache.seen(values)
        else:
            q = attention.q_proj(x).view(len(x), -1, dim)
            k = attention.k_proj(x).view(len(x), -1, dim)
            v = attention.v_proj(x).view(rows, tokens, -1, dim).transpose(1, 2)
            if hasattr(attention, "q_norm"):
                q = small.norm(q, attention.q_norm.weight, attention.q_norm.variance_epsilon)
                k = small.norm(k, attention.k_norm.weight, attention.k_norm.variance_epsilon)
            q, k = small.rotate(q, k, *turns)
            keys, values = cache.update(k.view(rows, tokens, -1, dim).transpose(1, 2), v, index)
        if tokens == 1:
            grouped = q.view(rows, keys.shape[1], -1, dim)
            out = small.attend_one(grouped, keys, values, positions.view(-1), mask, attention.scaling)
        else:
            out = attend(q.view(rows, tokens, -1, dim), keys, values, mask(), attention.scaling)
        return attention.o_proj(out.reshape(len(x), -1))

    def _feed_forward(self, index: int, x: torch.Tensor) -> torch.Tensor:
        mlp, small, one = self._body.layers[index].mlp, self._small, self._joined[index][1]
        if one is not None:
            return mlp.down_proj(small.gated_halves(linear(x, *one)))
        return mlp.down_proj(small.gated(mlp.gate_proj(x), mlp.up_proj(x)))


def attend(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention of rows with several ids each.

    Args:
        q: Queries `[rows, tokens, heads, dim]`.
        keys: `[rows, groups, read, dim]`; they are copied for each head of a group.
        values: Likewise.
        mask: `[rows, 1, tokens, read]`, added to the products.
        scale: Factor on the products.

    Returns:
        `[rows, tokens, heads, dim]`.
    """
    rows, tokens, heads, dim = q.shape
    groups, read = keys.shape[1:3]
    shape = (rows, groups, heads // groups, read, dim)
    wide, full = (part.unsqueeze(2).expand(shape).reshape(rows, heads, read, dim) for part in (keys, values))
    return scaled_dot_product_attention(q.transpose(1, 2), wide, full, attn_mask=mask, scale=scale).transpose(1, 2)
