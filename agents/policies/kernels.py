"""The small functions of `fused` as Triton kernels; imported only where there is a GPU, and Triton with it.

Each is one launch, compiled in a fraction of a second whatever the shapes (torch.compile takes seconds, and again for
other shapes). Sums and roots are float32; what the model keeps between two of its operations has the model's type.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from agents.policies import fused

_TILE = 1024


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
