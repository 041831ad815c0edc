"""The small functions of `fused` as Triton kernels; imported only where there is a GPU, and Triton with it.

Each is one launch (attention of few rows is two), compiled in a fraction of a second whatever the shapes (torch.compile
takes seconds, and again for other shapes). Sums and roots are float32; what the model keeps between two of its
operations has the model's type.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from agents.policies import fused
from agents.policies.fused import Mask

ATTENDS_ONE = True
"""Whether single ids attend by a kernel of this file (what a graph has captured stays); else as in `fused`."""
_TILE = 1024
_POSITIONS = 64
"""Positions that `attend_one` looks at together; fewer where their keys would take more than `_BYTES`."""
_BYTES = 2**14
_WARPS, _STAGES = 4, 2
"""Warps of a program of `attend_one`, and blocks of positions under way at the same time, about."""


@triton.jit
def _norm_kernel(x, residual, weight, out, total, width, eps, ADD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * width
    at = tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(x + row + at, mask=inside, other=0.0)
    if ADD:
        value = (value + tl.load(residual + row + at, mask=inside, other=0.0)).to(out.dtype.element_ty)
        tl.store(total + row + at, value, mask=inside)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / width + eps)
    factor = tl.load(weight + at, mask=inside, other=0.0)
    tl.store(out + row + at, factor * (wide * scale).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _rotate_kernel(q, k, cos, sin, out_q, out_k, heads, groups, HALF: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    inside = at < HALF
    low, high = row * 2 * HALF + at, row * 2 * HALF + HALF + at
    cos_low, cos_high = tl.load(cos + low, mask=inside), tl.load(cos + high, mask=inside)
    sin_low, sin_high = tl.load(sin + low, mask=inside), tl.load(sin + high, mask=inside)
    if head < heads:
        begin = (row * heads + head) * 2 * HALF + at
        one, other = tl.load(q + begin, mask=inside), tl.load(q + begin + HALF, mask=inside)
        tl.store(out_q + begin, one * cos_low - other * sin_low, mask=inside)
        tl.store(out_q + begin + HALF, other * cos_high + one * sin_high, mask=inside)
    else:
        begin = (row * groups + head - heads) * 2 * HALF + at
        one, other = tl.load(k + begin, mask=inside), tl.load(k + begin + HALF, mask=inside)
        tl.store(out_k + begin, one * cos_low - other * sin_low, mask=inside)
        tl.store(out_k + begin + HALF, other * cos_high + one * sin_high, mask=inside)


@triton.jit(do_not_specialize=["count"])
def _gated_kernel(gate, up, out, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    silu = (value / (1.0 + tl.exp(-value))).to(out.dtype.element_ty)
    tl.store(out + at, silu * tl.load(up + at, mask=inside, other=0.0), mask=inside)


@triton.jit(do_not_specialize=["tokens"])
def _turn_and_store_kernel(  # type: ignore[no-untyped-def]
    joined, cos, sin, q, keys, values, index, tokens, HEADS: tl.constexpr, GROUPS: tl.constexpr, HALF: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    inside = at < HALF
    begin = (row * (HEADS + 2 * GROUPS) + head) * 2 * HALF + at
    one, other = tl.load(joined + begin, mask=inside), tl.load(joined + begin + HALF, mask=inside)
    if head < HEADS + GROUPS:
        low, high = row * 2 * HALF + at, row * 2 * HALF + HALF + at
        cos_low, cos_high = tl.load(cos + low, mask=inside), tl.load(cos + high, mask=inside)
        sin_low, sin_high = tl.load(sin + low, mask=inside), tl.load(sin + high, mask=inside)
        turned = one * cos_low - other * sin_low
        other = other * cos_high + one * sin_high
        one = turned
    if head < HEADS:
        place = (row * HEADS + head) * 2 * HALF + at
        tl.store(q + place, one, mask=inside)
        tl.store(q + place + HALF, other, mask=inside)
    else:
        group = (head - HEADS) % GROUPS
        place = tl.load(index + (row // tokens * GROUPS + group) * tokens + row % tokens) * 2 * HALF + at
        if head < HEADS + GROUPS:
            tl.store(keys + place, one, mask=inside)
            tl.store(keys + place + HALF, other, mask=inside)
        else:
            tl.store(values + place, one, mask=inside)
            tl.store(values + place + HALF, other, mask=inside)


@triton.jit
def _gated_halves_kernel(joined, out, width, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    row, at = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    value = tl.load(joined + row * 2 * width + at, mask=inside, other=0.0).to(tl.float32)
    silu = (value / (1.0 + tl.exp(-value))).to(out.dtype.element_ty)
    up = tl.load(joined + row * 2 * width + width + at, mask=inside, other=0.0)
    tl.store(out + row * width + at, silu * up, mask=inside)


@triton.jit(do_not_specialize=["read"])
def _attend_one_kernel(  # type: ignore[no-untyped-def]
    q, keys, values, positions, out, parts, read, scale, by_row, by_group, EACH: tl.constexpr, DIM: tl.constexpr,
    HEADS: tl.constexpr, BLOCK: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    row, group, split = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    # The heads of a group are the rows of a matrix, which has 16 of them at least: what computes is idle anyway.
    head, at, dim = tl.arange(0, HEADS), tl.arange(0, BLOCK), tl.arange(0, DIM)
    first = (row * tl.num_programs(1) + group) * EACH + head
    query = tl.load(q + first[:, None] * DIM + dim[None, :], mask=head[:, None] < EACH, other=0.0)
    keys += row * by_row + group * by_group
    values += row * by_row + group * by_group
    end = tl.load(positions + row).to(tl.int32) + 1
    end = tl.where(end > read, 0, end)  # what only fills up reads nothing
    share = tl.cdiv(tl.cdiv(end, BLOCK), SPLITS) * BLOCK
    begin = split * share
    end = tl.minimum(end, begin + share)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    sums = tl.zeros([HEADS, DIM], tl.float32)
    for start in tl.range(begin, end, BLOCK):
        known = start + at < end
        place = (start + at)[:, None] * DIM + dim[None, :]
        key = tl.load(keys + place, mask=known[:, None], other=0.0)
        score = tl.dot(query, tl.trans(key), input_precision="ieee") * scale
        score = tl.where(known[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - higher[:, None])
        faded = tl.exp2(top - higher)
        value = tl.load(values + place, mask=known[:, None], other=0.0)
        sums = tl.dot(weight.to(value.dtype), value, sums * faded[:, None], input_precision="ieee")
        total = total * faded + tl.sum(weight, axis=1)
        top = higher
    sums = sums / tl.where(total > 0.0, total, 1.0)[:, None]
    place = (first * SPLITS + split)[:, None] * DIM + dim[None, :]
    tl.store(out + place, sums.to(out.dtype.element_ty), mask=head[:, None] < EACH)
    if SPLITS > 1:  # the logarithm (to 2) of what this split weighs; minus infinity where it has no position
        tl.store(parts + first * SPLITS + split, top + tl.log2(tl.where(total > 0.0, total, 1.0)), mask=head < EACH)


@triton.jit
def _merge_splits_kernel(sums, parts, out, DIM: tl.constexpr, SPLITS: tl.constexpr):  # type: ignore[no-untyped-def]
    head = tl.program_id(0).to(tl.int64)
    split, dim = tl.arange(0, SPLITS), tl.arange(0, DIM)
    part = tl.load(parts + head * SPLITS + split)
    top = tl.max(part, axis=0)
    weight = tl.exp2(part - tl.where(top == float("-inf"), 0.0, top))
    value = tl.load(sums + (head * SPLITS + split)[:, None] * DIM + dim[None, :])
    total = tl.sum(weight, axis=0)
    value = tl.sum(value * weight[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + head * DIM + dim, value.to(out.dtype.element_ty))


def _alike(*tensors: torch.Tensor) -> bool:
    """Whether a kernel can read them as they lie: one type, no gaps."""
    return all(tensor.dtype == tensors[0].dtype and tensor.is_contiguous() for tensor in tensors)


def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """As `fused.norm`."""
    if not _alike(x, weight):
        return fused.norm(x, weight, eps)
    out, width = torch.empty_like(x), x.shape[-1]
    grid = (x.numel() // width,)
    _norm_kernel[grid](x, x, weight, out, out, width, eps, ADD=False, BLOCK=triton.next_power_of_2(width))
    return out


def add_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `fused.add_norm`."""
    if not _alike(x, residual, weight):
        return fused.add_norm(x, residual, weight, eps)
    out, total, width = torch.empty_like(x), torch.empty_like(x), x.shape[-1]
    grid = (x.numel() // width,)
    _norm_kernel[grid](x, residual, weight, out, total, width, eps, ADD=True, BLOCK=triton.next_power_of_2(width))
    return total, out


def rotate(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As `fused.rotate`."""
    if not _alike(q, k, cos, sin):
        return fused.rotate(q, k, cos, sin)
    out_q, out_k, half = torch.empty_like(q), torch.empty_like(k), q.shape[-1] // 2
    grid = (q.shape[0], q.shape[1] + k.shape[1])
    block = triton.next_power_of_2(half)
    _rotate_kernel[grid](q, k, cos, sin, out_q, out_k, q.shape[1], k.shape[1], HALF=half, BLOCK=block)
    return out_q, out_k


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """As `fused.gated`."""
    if not _alike(gate, up):
        return fused.gated(gate, up)
    out = torch.empty_like(gate)
    _gated_kernel[(triton.cdiv(out.numel(), _TILE),)](gate, up, out, out.numel(), BLOCK=_TILE)
    return out


def gated_halves(joined: torch.Tensor) -> torch.Tensor:
    """As `fused.gated_halves`."""
    rows, width = joined.shape[0], joined.shape[1] // 2
    out = joined.new_empty(rows, width)
    _gated_halves_kernel[(rows, triton.cdiv(width, _TILE))](joined, out, width, BLOCK=_TILE)
    return out


def turn_and_store(
    joined: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, keys: torch.Tensor, values: torch.Tensor,
    index: torch.Tensor, tokens: int,
) -> torch.Tensor:  # fmt: skip
    """As `fused.turn_and_store`."""
    if not _alike(joined, cos, sin, keys, values):
        return fused.turn_and_store(joined, cos, sin, keys, values, index, tokens)
    groups, dim = keys.shape[1], keys.shape[3]
    heads = joined.shape[1] // dim - 2 * groups
    q = joined.new_empty(joined.shape[0], heads, dim)
    _turn_and_store_kernel[(joined.shape[0], heads + 2 * groups)](
        joined, cos, sin, q, keys, values, index, tokens, HEADS=heads, GROUPS=groups, HALF=dim // 2,
        BLOCK=triton.next_power_of_2(dim // 2),
    )  # fmt: skip
    return q


def attend_one(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, positions: torch.Tensor, mask: Mask, scale: float
) -> torch.Tensor:
    """As `fused.attend_one`, reading of each row what it has: `positions` say that, and the mask is not computed.

    A row whose position is not among those read only fills up: it reads nothing, and its result is 0.
    """
    rows, groups, each, dim = q.shape
    alike = q.dtype == keys.dtype == values.dtype and q.is_contiguous() and keys.stride() == values.stride()
    if not ATTENDS_ONE or not alike or keys.stride()[2:] != (dim, 1) or dim not in (16, 32, 64, 128, 256):
        return fused.attend_one(q, keys, values, positions, mask, scale)
    read = keys.shape[2]
    splits = fused.splits(rows * groups, read)
    out = torch.empty_like(q)
    sums = out if splits == 1 else q.new_empty(rows, groups, each, splits, dim, dtype=torch.float32)
    parts = out if splits == 1 else q.new_empty(rows, groups, each, splits, dtype=torch.float32)
    _attend_one_kernel[(rows, groups, splits)](
        q, keys, values, positions, sums, parts, read, scale * math.log2(math.e), *keys.stride()[:2], EACH=each,
        DIM=dim, HEADS=max(16, triton.next_power_of_2(each)), BLOCK=min(_POSITIONS, _BYTES // (dim * q.element_size())),
        SPLITS=splits, num_warps=_WARPS, num_stages=_STAGES,
    )  # fmt: skip
    if splits > 1:
        _merge_splits_kernel[(rows * groups * each,)](sums, parts, out, DIM=dim, SPLITS=splits)
    return out


def probe(device: torch.device, dtype: torch.dtype, heads: int, groups: int, dim: int) -> None:
    """Compile and run what has the least certain way through Triton's compiler; raises whatever goes wrong."""
    x = torch.ones(2, 1, 8, device=device)
    rotate(x, x, x, x)
    position = torch.zeros(1, dtype=torch.long, device=device)
    for read in (64, 2 * fused.SPLIT):  # the second is split
        keys = torch.zeros(1, groups, read + 64, dim, device=device, dtype=dtype)[:, :, :read]
        q = keys.new_zeros(1, groups, heads // groups, dim)
        attend_one(q, keys, keys, position, lambda: (position == 0).view(1, 1, 1, 1), 1.0)
