"""Decode steps as CUDA graphs: shapes are fixed, so one launch replays a whole step, and the host looks now and then.

A graph belongs to a number of rows and of positions read, both rounded up, so that few are captured; capturing takes
about as long as a few steps. Rows that only fill up write to the cache's last position, which no conversation uses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from agents.policies.decoder import Decoder, Hidden
from agents.policies.draw import Feed, Knowledge, Sampled, sample
from agents.policies.fused import FusedDecoder, can_compile
from agents.policies.slots import SlotCache
from agents.policy import PolicyError

_Key = tuple[int, int, float, bool, bool]
"""Rows, positions read, temperature, whether ids are drawn, whether the distributions are kept."""

MOST = 16
"""Steps between two looks of the host: rows that ended waste half of it on average."""
_READ = 256
"""Positions read are rounded up to a multiple of this."""
_KEPT = 24
"""Graphs kept at most."""


@dataclass(slots=True, eq=False)
class _Step:
    """One captured step and the tensors it works on."""

    ids: torch.Tensor
    positions: torch.Tensor
    advance: torch.Tensor
    uniforms: torch.Tensor
    at: torch.Tensor
    out_ids: torch.Tensor
    out_facts: torch.Tensor
    known: Knowledge | None = None
    replay: Callable[[], object] | None = None


class GraphStepper:
    """Steps of fixed shape, captured once and replayed.

    Args:
        decoder: The model.
        cache: Its cache; a graph holds on to the tensors of it.
        capture: Record CUDA graphs; without, the same fixed-shape step runs directly (on any device; for tests).
    """

    most = MOST

    def __init__(self, decoder: Decoder, cache: SlotCache, *, capture: bool = True) -> None:
        self._decoder, self._cache, self._capture = decoder, cache, capture
        self._steps: dict[_Key, _Step] = {}
        self._generation = -1
        self._pool: Any = None
        self._hidden: Hidden | None = None

    def advance(self, feed: Feed) -> Sampled:
        """See `Stepper`."""
        count, steps = len(feed.lengths), feed.steps
        rows, read = padded_rows(count), -(-(max(feed.lengths) + steps) // _READ) * _READ
        # One position more than is ever read: where the rows that only fill up write.
        self._cache.reserve(rows, read + 1)
        step = self._step((rows, read, feed.temperature, feed.draws is not None, feed.keep))
        spare = self._cache.length - 1
        device = feed.ids.device
        step.ids[:count] = feed.ids
        step.positions.copy_(torch.tensor([*feed.lengths, *[spare] * (rows - count)], device=device))
        step.advance.copy_(torch.tensor([1] * count + [0] * (rows - count), device=device))
        step.at.zero_()
        if feed.draws is not None:
            step.uniforms[:count, :steps] = feed.draws
        assert step.replay is not None
        for _ in range(steps):
            step.replay()
        known = step.known
        if known is not None:
            known = Knowledge(
                known.shifted[:count], known.weights[:count], known.total[:count],
                known.entropies[:count], known.max_logprobs[:count],
            )  # fmt: skip
        return Sampled(step.out_ids[:steps, :count].clone(), step.out_facts[:, :steps, :count].clone(), known)

    def weights_changed(self, *, in_place: bool) -> None:
        """Forget the graphs unless every parameter stayed where it was."""
        if not in_place:
            self._forget()
            self._hidden = None

    def _forget(self) -> None:
        self._steps.clear()
        self._pool = None  # a pool dies with its last graph

    def _step(self, key: _Key) -> _Step:
        if self._generation != self._cache.generation:
            self._forget()  # the cache moved
            self._generation = self._cache.generation
        step = self._steps.pop(key, None)
        if step is None:
            while len(self._steps) >= _KEPT:
                self._steps.pop(next(iter(self._steps)))
            step = self._make(key)
        self._steps[key] = step  # the one used last stands last
        return step

    def _make(self, key: _Key) -> _Step:
        rows, device = key[0], self._decoder.device
        if self._hidden is None:
            self._hidden = self._best_hidden()

        def zeros(*shape: int, dtype: torch.dtype = torch.long) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        step = _Step(
            ids=zeros(rows),
            positions=zeros(rows) + self._cache.length - 1,
            advance=zeros(rows),
            uniforms=zeros(rows, MOST, dtype=torch.float64),
            at=zeros(1),
            out_ids=zeros(MOST, rows),
            out_facts=zeros(3, MOST, rows, dtype=torch.float32),
        )

        def run() -> None:
            self._run(step, key)

        step.replay = run
        if self._capture:
            try:
                step.replay = self._record(step, run)
            except RuntimeError as error:  # some part of the model asks the host: it still runs, only slower
                self._capture = False
                reason = str(error).strip().split("\n", 1)[0]
                warnings.warn(
                    f"decoding runs slower than it could: no CUDA graph of this model ({reason})", stacklevel=2
                )
        return step

    def _best_hidden(self) -> Hidden:
        """The fused step where it fits the model and agrees with it, else the model's own modules."""
        if FusedDecoder.fits(self._decoder):
            fused = FusedDecoder(self._decoder, compiled=can_compile(self._decoder.device)).hidden
            reason = ""
            try:
                if self._decoder.decodes(fused):
                    return fused
            except PolicyError as error:  # the model's own modules may still run: the engine has tried them
                reason = f" ({str(error).strip().splitlines()[0]})"
            warnings.warn(
                f"decoding runs slower than it could: {type(self._decoder.base).__name__} does something that the "
                f"fused step does not know{reason}",
                stacklevel=2,
            )
        return self._decoder.hidden

    def _run(self, step: _Step, key: _Key) -> None:
        """One step; every tensor is the step's own."""
        _, read, temperature, draws, keep = key
        assert self._hidden is not None
        positions = step.positions.unsqueeze(1)
        self._cache.select(0, positions.shape[0], positions, read)
        hidden = self._hidden(step.ids.unsqueeze(1), positions, read, self._cache)
        logits = self._decoder.logits(hidden[:, -1])
        uniform = step.uniforms.index_select(1, step.at).squeeze(1) if draws else None
        sampled = sample(logits, temperature, uniform)
        step.out_ids.index_copy_(0, step.at, sampled.ids)
        step.out_facts.index_copy_(1, step.at, sampled.facts)
        step.ids.copy_(sampled.ids[0])
        step.positions.add_(step.advance)
        step.at.add_(1)
        if keep:
            step.known = sampled.known  # large: [rows, vocabulary]

    def _record(self, step: _Step, run: Callable[[], None]) -> Callable[[], object]:
        """Capture `run`. While it warms up, every row writes to the spare position."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                step.at.zero_()
                run()
        torch.cuda.current_stream().wait_stream(stream)
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        # Another thread may train meanwhile, and allocate: only what this one does is captured, and judged.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            run()
        return graph.replay


def padded_rows(count: int) -> int:
    """Rows of the graph that serves `count` rows: a power of two up to 16, then less than a quarter more.

    Above 16 they are multiples of an eighth of the next power of two.
    """
    if count <= 16:
        return 1 << (count - 1).bit_length()
    step = 1 << ((count - 1).bit_length() - 3)
    return -(-count // step) * step
