"""How much memory a run needs, from the shape of its model and its settings: an estimate, before anything is loaded.

Weights, gradients and optimizer states follow from parameter counts, which are exact. Activations count what one layer
keeps for its backward pass; the figures per layer were found by counting the tensors that autograd holds, and a test
counts them again (within 15 % on the toy shapes). The cache is for full slots at the longest episode, which is an upper
bound. What an allocator keeps beyond that is in `SLACK`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from trainers.run.shapes import DecoderShape

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
GIB = 2**30
MAIN_MEMORY = "main memory"
PROGRAM = GIB
"""Python, torch and its libraries; on a GPU the context and the CUDA graphs."""
SLACK = 1.15
"""Fragments, workspaces and temporary gradients, on top of all that is counted."""
HEAD_TOKENS, HEAD_WIDTH = 4096, 32768
"""TRL computes log-probabilities in tiles of so many tokens by so many entries of the vocabulary, in float32."""
LINEAR_LAYERS = 7
"""Of one block: query, key, value, output, gate, up, down."""


@dataclass(frozen=True, slots=True)
class Load:
    """What decides the memory of a run.

    Attributes:
        shape: Of the model.
        dtype: Of its weights, by name.
        lora: Weights of the adapter; 0 trains all of the model's.
        lora_r: Its rank.
        reference: Weights that are kept once more for the KL.
        batch: Episodes of one forward and backward pass.
        slots: Episodes in flight while sampling; 0 where another program samples.
        longest: Tokens of the longest episode.
        checkpointing: Gradient checkpointing is on.
        start: Weights of the start that are kept in this memory until the confirmation.
    """

    shape: DecoderShape
    dtype: str
    lora: int
    lora_r: int
    reference: int
    batch: int
    slots: int
    longest: int
    checkpointing: bool = False
    start: int = 0


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by part, in the order in which they are shown."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All of it, with `SLACK` on what varies."""
        return PROGRAM + int(SLACK * sum(self.parts.values()))


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is: the first GPU, or the main memory."""

    name: str
    total: int
    free: int


def estimate(load: Load) -> MemoryEstimate:
    """The memory of a run at its peak, in bytes by part."""
    shape, size = load.shape, BYTES[load.dtype]
    learned, learned_size = (load.lora, 4) if load.lora else (shape.parameters, size)  # PEFT keeps adapters in float32
    parts = {
        "weights": shape.parameters * size + load.lora * 4,
        "gradients": learned * learned_size,
        "optimizer (Adam, two states)": 2 * learned * learned_size,
        "reference for the KL": load.reference * (4 if load.lora else size),
        "the start, for the confirmation": load.start * learned_size,
        "activations of one pass": load.batch * load.longest * activation_bytes(load),
        "log-probabilities": _head_bytes(load),
        "sampling: keys and values": load.slots * load.longest * shape.cache_values() * size,
        "sampling: logits": 3 * load.slots * shape.vocabulary * 4,
    }
    return MemoryEstimate({name: number for name, number in parts.items() if number})


def activation_bytes(load: Load) -> int:
    """What one token keeps for the backward pass, over all layers."""
    layer, size = _layer_bytes(load), BYTES[load.dtype]
    last = load.shape.hidden * (4 + size * (1 if load.lora else 2))  # the last norm
    if load.checkpointing:
        return load.shape.layers * load.shape.hidden * size + layer + last
    return load.shape.layers * layer + last


def _layer_bytes(load: Load) -> int:
    """Of one block: what its norms, attention and gated layer hold.

    A norm holds its input in float32, and its normalised input where its own weight is trained. A linear layer holds
    its input where its weight, or an adapter on it, is trained; an adapter in float32 holds a float32 copy for each of
    the layers that read it.
    """
    s, size = load.shape, BYTES[load.dtype]
    attention = 2 * s.query + 2 * s.key + s.qk_norm * (s.query + s.key)
    if not load.lora:
        norms = 2 * s.hidden * (4 + 2 * size) + s.qk_norm * (s.query + s.key) * size
        return norms + size * (attention + 4 * s.feed_forward)
    inner = LINEAR_LAYERS * load.lora_r * 4
    if size == 4:
        return 4 * (4 * s.hidden + attention + 4 * s.feed_forward) + inner
    copies = 4 * (5 * s.hidden + s.query + s.feed_forward)
    return 2 * s.hidden * 4 + size * (attention + 3 * s.feed_forward) + copies + inner


def _head_bytes(load: Load) -> int:
    tile = min(HEAD_TOKENS, load.batch * load.longest) * min(HEAD_WIDTH, load.shape.vocabulary) * 4
    weight = 0 if load.lora else load.shape.vocabulary * load.shape.hidden * 4  # its gradient is added up in float32
    return 2 * tile + weight


def machine(*, use_cpu: bool) -> Machine:
    """The memory that training would use here."""
    import torch

    if torch.cuda.is_available() and not use_cpu:
        free, total = torch.cuda.mem_get_info()
        return Machine(torch.cuda.get_device_name(), total, free)
    page = os.sysconf("SC_PAGE_SIZE")
    return Machine(MAIN_MEMORY, os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page)


def lines(load: Load, estimated: MemoryEstimate, has: Machine) -> Iterator[str]:
    """The estimate for people, with the remedy where it does not fit."""
    trained = f"{load.lora / 1e6:,.2f} M of an adapter trained" if load.lora else "all of them trained"
    yield (
        f"memory, estimated: {gib(estimated.total)} of {gib(has.total)} ({has.name}); "
        f"{load.shape.parameters / 1e6:,.1f} M parameters in {load.dtype}, {trained}; episodes of up to "
        f"{load.longest:,} tokens"
    )
    for name, number in estimated.parts.items():
        yield f"  {gib(number):>10}  {name}"
    yield f"  {gib(PROGRAM):>10}  the program itself; 15 % are added to the parts above"
    if estimated.total > has.total:
        yield f"  too large by {gib(estimated.total - has.total)}: {'; '.join(_remedies(load, estimated))}"


def gib(number: float) -> str:
    """Bytes as people read them."""
    return f"{number / GIB:,.2f} GiB" if number >= GIB / 100 else f"{number / 2**20:,.2f} MiB"


def _remedies(load: Load, estimated: MemoryEstimate) -> Iterator[str]:
    """What would help, what helps most first."""
    parts = estimated.parts
    choices = [
        (parts["activations of one pass"], _smaller_pass(load)),
        (parts.get("sampling: keys and values", 0), f"slots below {load.slots}, or a lower max_turn_tokens"),
        (0 if load.lora else parts["gradients"] * 3, "adapter=lora"),
        (0 if load.dtype != "float32" else parts["weights"] // 2, "dtype=bfloat16"),
        (parts.get("reference for the KL", 0), "beta=0 (no reference)"),
        (parts.get("the start, for the confirmation", 0), "confirm=0 (no confirmation)"),
    ]
    for saved, text in sorted(choices, key=lambda choice: -choice[0]):
        if saved and text:
            yield text


def _smaller_pass(load: Load) -> str:
    smaller = (
        f"per_device_train_batch_size below {load.batch} with gradient_accumulation_steps" if load.batch > 1 else ""
    )
    return " or ".join(t for t in ("" if load.checkpointing else "gradient_checkpointing", smaller) if t)
