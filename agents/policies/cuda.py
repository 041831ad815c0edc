"""Prefills and decode steps as CUDA graphs: shapes are fixed, one launch replays a whole forward.

A graph belongs to a number of rows and of positions read (a prefill also of ids), all rounded up, so that few are
captured; capturing takes about as long as a few steps. What only fills up writes to the cache's last position, which no
conversation uses.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import torch

from agents.policies.decoder import Decoder, Hidden
from agents.policies.draw import Cut, Feed, Knowledge, Opening, Sampled, sample
from agents.policies.fused import FusedDecoder
from agents.policies.slots import SlotCache, sent
from agents.policy import PolicyError

MOST = 16
"""Steps between two looks of the host at most."""
_READ = 256
"""Positions read are rounded up to a multiple of this, long ones to a quarter of a power of two."""
_FEWEST = 512
"""Positions of a slot at least."""
_KEPT = 64
"""Shapes kept at most, of each kind."""
_FREE = 10**12
"""Ids times parameters that an H200 computes while the host launches one forward, about."""
_TAUGHT = 32
"""Replies over which the mean of their lengths is taken, about."""

Run = Callable[[], object]


class GraphStepper:
    """Forwards of fixed shape, captured once and replayed.

    Args:
        decoder: The model.
        cache: Its cache; a graph holds on to the tensors of it.
        capture: Record CUDA graphs; without, the same fixed-shape forward runs directly (on any device; for tests).
    """

    most = MOST
    cells = 2**26
    runs_behind = True
    ahead = True

    def __init__(self, decoder: Decoder, cache: SlotCache, *, capture: bool = True) -> None:
        self._decoder, self._cache = decoder, cache
        self.waste = _FREE // max(1, sum(p.numel() for p in decoder.base.parameters()))
        self._graphs = Graphs(capture=capture)
        self._steps: dict[_StepKey, _Step] = {}
        self._prefills: dict[_PrefillKey, _Prefill] = {}
        self._generation = -1
        self._hidden: Hidden | None = None
        self._length = float(MOST)
        cache.grown = roomy  # each growth costs all graphs

    def prefill(self, opening: Opening) -> torch.Tensor:
        """See `Stepper`."""
        rows, tokens = padded_prefill(len(opening.ids), opening.tokens, self.waste // 8)
        read = prefill_read(opening.longest)
        # One position more than is ever read: where the rows that only fill up write.
        self._cache.reserve(opening.slots, read + 1)
        return self._decoder.logits(self._of(self._prefills, _Prefill, (rows, tokens, read)).last(opening))

    def advance(self, feed: Feed) -> Sampled:
        """See `Stepper`."""
        rows, read = padded_rows(len(feed.lengths)), _padded_read(max(feed.lengths) + feed.steps)
        self._cache.reserve(rows, read + 1)
        key = (rows, read, feed.temperature, feed.draws is not None, feed.keep, feed.cut)
        return self._of(self._steps, _Step, key).advance(feed)

    def pace(self) -> int:
        """See `Stepper`: a look costs about half a step, and a row that ends between two looks idles half of them.

        Where the next ones are launched ahead it idles these, too, and only the host has the cost of a look.
        """
        return max(1, min(MOST, round(self._length**0.5)))

    def ended(self, lengths: Sequence[int]) -> None:
        """See `Stepper`."""
        for length in lengths:
            self._length += (length - self._length) / _TAUGHT

    def smaller(self, live: int, rows: int) -> bool:
        """See `Stepper`."""
        return padded_rows(live) < padded_rows(rows)

    def weights_changed(self, *, in_place: bool) -> None:
        """Forget the graphs unless every parameter stayed where it was."""
        if not in_place:
            self._forget()
            self._hidden = None

    def _forget(self) -> None:
        self._steps.clear()
        self._prefills.clear()
        self._graphs.forget()

    def _of(self, kept: dict[Any, Any], kind: Any, key: Any) -> Any:
        """What was prepared for a shape, or is prepared now; the one used last stands last."""
        if self._generation != self._cache.generation:
            self._forget()  # the cache moved
            self._generation = self._cache.generation
        if self._hidden is None:
            self._hidden = self._best_hidden()
        found = kept.pop(key, None)
        if found is None:
            while len(kept) >= _KEPT:
                kept.pop(next(iter(kept)))
            found = kind(key, self._decoder, self._hidden, self._cache, self._graphs)
        kept[key] = found
        return found

    def _best_hidden(self) -> Hidden:
        """The fused step where it fits the model and agrees with it, else the model's own modules."""
        if FusedDecoder.fits(self._decoder):
            fused = FusedDecoder(self._decoder, _kernels(self._decoder)).hidden
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


def _kernels(decoder: Decoder) -> Any:
    """A module with the small functions of `fused` as kernels; `None` where there is none, on a GPU with a warning."""
    device, config = decoder.device, decoder.config
    if device.type != "cuda":
        return None
    try:
        from agents.policies import kernels as found

        dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        found.probe(device, decoder.dtype, config.num_attention_heads, config.num_key_value_heads, dim)
    except Exception as error:  # A missing compiler shows itself in many ways; it costs speed and nothing else.
        reason = str(error).strip().split("\n", 1)[0]
        warnings.warn(f"decoding runs slower than it could: Triton does not work here ({reason})", stacklevel=2)
        return None
    return found


# -- A prefill and a step of one shape, and the tensors that they work on ---------------------------------------------

_PrefillKey = tuple[int, int, int]
"""Rows, ids of a row, positions read."""
_StepKey = tuple[int, int, float, bool, bool, Cut]
"""Rows, positions read, temperature, whether ids are drawn, whether the distributions are kept, which may be drawn."""


class _Prefill:
    """Of any slots. It is captured when its shape comes a second time: many never do."""

    def __init__(self, key: _PrefillKey, decoder: Decoder, hidden: Hidden, cache: SlotCache, graphs: Graphs) -> None:
        self._key, self._hidden, self._cache, self._graphs = key, hidden, cache, graphs
        rows, tokens, _ = key
        self._ids = torch.zeros(rows, tokens, dtype=torch.long, device=decoder.device)
        self._kept, self._pending, self._slots = torch.zeros(3, rows, dtype=torch.long, device=decoder.device)
        self._last: torch.Tensor | None = None
        self._replay: Run | None = None

    def last(self, opening: Opening) -> torch.Tensor:
        """The hidden state of each row's last id, `[rows, hidden]`."""
        again, self._replay = self._replay is not None, self._replay or self._run
        if again and self._replay == self._run:
            self._pending.zero_()  # what warms up writes to the spare position
            self._replay = self._graphs.capture(self._run)
        count, device = len(opening.ids), self._ids.device
        tokens = opening.tokens
        self._ids[:count, :tokens] = sent([[*row, *[0] * (tokens - len(row))] for row in opening.ids], device)
        slots = range(opening.first, opening.first + count)
        numbers = sent([opening.kept, [len(row) for row in opening.ids], slots], device)
        self._kept[:count], self._pending[:count], self._slots[:count] = numbers
        self._pending[count:] = 0
        self._replay()
        assert self._last is not None
        return self._last[:count].clone()

    def _run(self) -> None:
        rows, tokens, read = self._key
        offsets = torch.arange(tokens, device=self._ids.device)
        positions = self._kept.unsqueeze(1) + offsets
        positions = torch.where(offsets < self._pending.unsqueeze(1), positions, self._cache.length - 1)
        self._cache.pick(self._slots, positions, read)
        hidden = self._hidden(self._ids, positions, read, self._cache)
        ends = (self._pending - 1).clamp_min(0)
        self._last = hidden[torch.arange(rows, device=ends.device), ends]


class _Step:
    """Of the slots from the first on."""

    def __init__(self, key: _StepKey, decoder: Decoder, hidden: Hidden, cache: SlotCache, graphs: Graphs) -> None:
        self._key, self._decoder, self._hidden, self._cache = key, decoder, hidden, cache
        rows, device = key[0], decoder.device
        self._ids, self._advance = torch.zeros(2, rows, dtype=torch.long, device=device)
        self._positions = torch.full((rows,), cache.length - 1, device=device)
        self._uniforms = torch.zeros(rows, MOST, dtype=torch.float64, device=device)
        self._at = torch.zeros(1, dtype=torch.long, device=device)
        self._out_ids = torch.zeros(MOST, rows, dtype=torch.long, device=device)
        self._out_facts = torch.zeros(3, MOST, rows, device=device)
        self._known: Knowledge | None = None
        self._replay = graphs.capture(self._run)

    def advance(self, feed: Feed) -> Sampled:
        """See `Stepper`."""
        count, device, spare = len(feed.lengths), self._ids.device, self._cache.length - 1
        fill = self._key[0] - count
        numbers = sent([[*feed.lengths, *[spare] * fill], [1] * count + [0] * fill], device)
        self._ids[:count] = feed.ids
        self._positions.copy_(numbers[0])
        self._advance.copy_(numbers[1])
        self._at.zero_()
        if feed.draws is not None:
            self._uniforms[:count, : feed.steps] = feed.draws
        for _ in range(feed.steps):
            self._replay()
        known = self._known
        if known is not None:
            known = Knowledge(
                known.shifted[:count], known.weights[:count], known.total[:count],
                known.entropies[:count], known.max_logprobs[:count],
            )  # fmt: skip
        return Sampled(
            self._out_ids[: feed.steps, :count].clone(), self._out_facts[:, : feed.steps, :count].clone(), known
        )

    def _run(self) -> None:
        """One step; every tensor is the step's own."""
        rows, read, temperature, draws, keep, cut = self._key
        positions = self._positions.unsqueeze(1)
        self._cache.select(0, rows, positions, read)
        hidden = self._hidden(self._ids.unsqueeze(1), positions, read, self._cache)
        logits = self._decoder.logits(hidden[:, -1])
        uniform = self._uniforms.index_select(1, self._at).squeeze(1) if draws else None
        sampled = sample(logits, temperature, uniform, cut)
        self._out_ids.index_copy_(0, self._at, sampled.ids)
        self._out_facts.index_copy_(1, self._at, sampled.facts)
        self._ids.copy_(sampled.ids[0])
        self._positions.add_(self._advance)
        self._at.add_(1)
        if keep:
            self._known = sampled.known  # large: [rows, vocabulary]


class Graphs:
    """Captures. All graphs share one pool of memory, since no two run at a time."""

    def __init__(self, *, capture: bool) -> None:
        self._on = capture
        self._pool: Any = None
        self._stream: Any = None

    def forget(self) -> None:
        """No graph is left: a pool dies with its last one."""
        self._pool = None

    def capture(self, run: Run) -> Run:
        """`run` as a graph; itself where capture is off, or the model asks the host something and only runs slower.

        Args:
            run: Works on tensors that stay. It is called once before, with their values of now.
        """
        if not self._on:
            return run
        try:
            return self.record(run)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._on = False
            reason = str(error).strip().split("\n", 1)[0]
            warnings.warn(f"decoding runs slower than it could: no CUDA graph of this model ({reason})", stacklevel=2)
            return run

    def record(self, run: Run, *, warm: bool = False) -> Run:
        """`run` as a graph, not by `torch.cuda.graph`, which empties the allocator's cache: captures follow each other.

        Args:
            run: As of `capture`.
            warm: It has run on these shapes already, and is not called before.

        Raises:
            RuntimeError: It asks the host something; `torch.OutOfMemoryError` where memory ended.
        """
        if self._pool is None:
            self._pool, self._stream = torch.cuda.graph_pool_handle(), torch.cuda.Stream()
        graph = torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            if not warm:
                run()
            torch.cuda.synchronize()
            # Another thread may train meanwhile, and allocate: only what this one does is captured, and judged.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                run()
            except BaseException:
                with suppress(RuntimeError):  # it is invalid by now; the first error is the one to tell
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream().wait_stream(self._stream)
        return graph.replay


# -- Sizes ------------------------------------------------------------------------------------------------------------


def padded_rows(count: int) -> int:
    """Rows of a step that serves `count` rows: a power of two from 4 on, above 16 also one and a half."""
    power = max(4, 1 << (count - 1).bit_length())
    return 3 * power // 4 if power > 16 and count <= 3 * power // 4 else power


def padded_prefill(rows: int, tokens: int, waste: int) -> tuple[int, int]:
    """Rows and ids of a prefill: powers of four where no more than `waste` ids are padding, else of two."""
    fine = (1 << (rows - 1).bit_length(), max(16, 1 << (tokens - 1).bit_length()))
    coarse = (max(4, _power_of_four(rows)), max(16, _power_of_four(tokens)))
    return coarse if coarse[0] * coarse[1] - rows * tokens <= waste else fine


def _power_of_four(number: int) -> int:
    return int(1 << 2 * (((number - 1).bit_length() + 1) // 2))


def roomy(needed: int, _: int) -> int:
    """Length of slots that must have `needed` positions: a power of two, and a few that are spare."""
    return max(_FEWEST, 1 << (needed - 2).bit_length()) + 64


def prefill_read(positions: int) -> int:
    """Positions that a prefill reads: a power of two, since each number of them is a graph of its own."""
    return max(_READ, 1 << (positions - 1).bit_length())


def _padded_read(positions: int) -> int:
    """Positions that a graph reads: few sizes, at most a third more than are there."""
    step = max(_READ, (1 << (positions - 1).bit_length()) // 4)
    return -(-positions // step) * step
