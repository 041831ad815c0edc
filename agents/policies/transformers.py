"""TransformersPolicy: sample from a causal LM in this process, keeping each conversation's KV cache across turns.

One call decodes one reply for every request, batched. Only the ids that the cache does not hold yet are computed; if a
prompt does not extend what is cached, the cache is cropped to the common prefix. Each row draws from its own stream of
uniforms (one per position), so what else is in the batch does not change a reply (up to floating-point ties).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from agents.policies.cuda import GraphStepper
from agents.policies.decoder import Decoder
from agents.policies.draw import EagerStepper, Feed, Sampled, Stepper, sample, top_mean, uniforms
from agents.policies.merged import SamplingCopy, sampling_dtype
from agents.policies.slots import Row, SlotTable, StopTexts
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling, TopControl

_PREFILL_CELLS = 2**24
"""Cap on rows * tokens * positions of one prefill forward: bounds the mask's memory (64 MB in float32)."""


class TransformersPolicy:
    """A policy on any decoder-only model of transformers (also inside PEFT).

    Weights may change between calls. An in-place change that torch counts is noticed and empties the cache; fused
    optimizers leave no such trace: call `renew()` after their steps. After any other kind of change (adapter switched,
    merged, loaded) call `invalidate()`.

    Args:
        model: The model; it is put into evaluation mode only while sampling.
        tokenizer: Its tokenizer.
        eos_ids: Ids that end a turn; default: the tokenizer's and the generation config's.
        device: Moves the model there; default: where it is.
        max_context: Longest prompt plus reply, in ids; default, and at most, what the model's positions allow.
        graphs: Decode with CUDA graphs; default: where the model is on a GPU.
        sample_dtype: Sample from a merged copy of the model in this type (see `merged`), `auto` in the machine's
            fastest; default: from the model itself.
        frozen: Sample from a copy in any case, in the model's own type if no other is named, with the weights of the
            last `renew` (or of now, before the first): the model may be trained in another thread meanwhile.

    Raises:
        PolicyError: The model cannot be served by this engine.
        ValueError: No end-of-turn id is known.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        eos_ids: Iterable[int] | None = None,
        device: str | torch.device | None = None,
        max_context: int | None = None,
        graphs: bool | None = None,
        sample_dtype: torch.dtype | str | None = None,
        frozen: bool = False,
    ) -> None:
        if device is not None:
            model.to(device)
        self.tokenizer = tokenizer
        self._decoder = source = Decoder(model)
        self._copy: SamplingCopy | None = None
        self._frozen = frozen
        if sample_dtype is not None or frozen:
            dtype = sampling_dtype(source.device) if sample_dtype == "auto" else sample_dtype or source.dtype
            if isinstance(dtype, str):
                raise ValueError(f"sample_dtype is {dtype!r}: use a torch.dtype, 'auto' or None")
            if dtype != source.dtype or source.adapted or frozen:  # else the copy would be the model again
                self._copy = SamplingCopy(source, dtype)
                self._decoder = Decoder(self._copy.model)
                if frozen:
                    self._copy.refresh()
        self.eos_ids = (
            frozenset(eos_ids) if eos_ids is not None else end_ids(_listed_ends(self._decoder.base), tokenizer)
        )
        if not self.eos_ids:
            raise ValueError("no end-of-turn id: the tokenizer has no eos_token; pass eos_ids=")
        limit = self._decoder.limit
        if max_context is not None and limit is not None and max_context > limit:
            raise ValueError(f"max_context is {max_context}, and this model knows {limit} positions")
        self.max_context = max_context if max_context is not None else limit
        self._table = SlotTable()
        devices = {parameter.device for parameter in self._decoder.base.parameters()}
        one_gpu = len(devices) == 1 and self._decoder.device.type == "cuda"
        if graphs and not one_gpu:
            raise ValueError(
                f"graphs=True needs a model on one GPU; this one is on {', '.join(sorted(map(str, devices)))}"
            )
        kind = GraphStepper if (one_gpu if graphs is None else graphs) else EagerStepper
        self._stepper: Stepper = kind(self._decoder, self._table.cache)
        self._version: int | None = None
        self._places: tuple[object, ...] | None = None

    @property
    def copied(self) -> bool:
        """Whether a merged copy samples, so that log-probabilities differ from the model's own by rounding."""
        return self._copy is not None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order.

        Raises:
            PolicyError: A request does not fit, or the engine failed.
        """
        if not requests:
            return []
        try:
            self._notice_changes()
            with self._decoder.sampling():
                return self._complete(requests, sampling)
        except PolicyError:
            self.invalidate()
            raise
        except (RuntimeError, MemoryError) as error:
            self.invalidate()
            raise PolicyError(f"sampling failed: {type(error).__name__}: {error}") from error
        except BaseException:
            self.invalidate()  # also on Ctrl-C: the cache may stand half-way through a swap
            raise

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over: their slots are free."""
        self._table.forget(conversations)

    def invalidate(self) -> None:
        """Empty the cache: the weights changed, so what was computed with them is stale."""
        self._table.forget()
        self._places = None
        if self._copy is not None:
            self._copy.invalidate()

    def renew(self) -> None:
        """The weights may have changed in place without a trace: nothing that was computed or copied before counts."""
        self._table.forget()
        if self._copy is not None:
            self._copy.invalidate()
            if self._frozen:
                self._copy.refresh()

    def _notice_changes(self) -> None:
        """Drop what was computed with other weights than those of now."""
        if self._copy is not None and not self._frozen:
            self._copy.refresh()
        version, places = self._decoder.version(), self._decoder.places()
        if version != self._version or places != self._places:
            self._table.forget()
            self._stepper.weights_changed(in_place=places == self._places)
        self._version, self._places = version, places

    def _complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        rows = [self._row(index, request, sampling) for index, request in enumerate(requests)]
        if len({row.conversation for row in rows}) != len(rows):
            raise PolicyError("two requests of one call name the same conversation")
        logits = self._prefill(self._table.place(rows))
        draws: torch.Tensor | None = None
        if not sampling.greedy:
            longest = max(row.cap for row in rows)
            streams = np.stack([uniforms(requests[row.index].seed, longest) for row in self._table.order])
            draws = torch.from_numpy(streams).to(logits.device)
        self._decode(logits, draws, sampling.temperature)
        return [row.completion() for row in rows]

    def _row(self, index: int, request: Request, sampling: Sampling) -> Row:
        prompt, cap = list(request.prompt_ids), request.fitting_cap(sampling, self.max_context)
        stops = StopTexts(self.tokenizer, request.stops) if request.stops else None
        return Row(index, request.conversation, prompt, cap, request.control, stops, request.fork_of, top=request.top)

    def _prefill(self, groups: list[tuple[int, int]]) -> torch.Tensor:
        """Compute what the cache lacks; logits after each prompt, `[rows, vocabulary]` in slot order."""
        parts: list[torch.Tensor] = []
        for first, last in groups:
            rows = self._table.order[first:last]
            tokens = max(row.pending for row in rows)
            cells = tokens * (max(row.kept for row in rows) + tokens)
            step = max(1, _PREFILL_CELLS // cells)
            for begin in range(first, last, step):
                parts.append(self._prefill_rows(begin, self._table.order[begin : min(begin + step, last)]))
        logits = torch.cat(parts)
        followers = self._table.order[logits.shape[0] :]
        if followers:
            at = {row.index: slot for slot, row in enumerate(self._table.order)}
            sources = [at[row.leader.index] for row in followers if row.leader is not None]
            for source in dict.fromkeys(sources):
                targets = [at[row.index] for row in followers if row.leader is self._table.order[source]]
                self._table.cache.copy_slot(source, targets, len(self._table.order[source].prompt))
                for target in targets:
                    self._table.slots[target].ids = list(self._table.slots[source].ids)
            logits = torch.cat([logits, logits[torch.tensor(sources, device=logits.device)]])
        return logits

    def _prefill_rows(self, first: int, rows: list[Row]) -> torch.Tensor:
        """One forward over the pending ids of neighbouring slots, right-padded; logits at each row's last id."""
        device = self._decoder.device
        tokens = max(row.pending for row in rows)
        read = max(row.kept for row in rows) + tokens
        ids = torch.tensor([row.prompt[row.kept :] + [0] * (tokens - row.pending) for row in rows], device=device)
        kept = torch.tensor([row.kept for row in rows], device=device)
        positions = kept.unsqueeze(1) + torch.arange(tokens, device=device)
        self._table.cache.reserve(len(self._table.slots), read)
        self._table.cache.select(first, len(rows), positions, read)
        ends = torch.tensor([row.pending - 1 for row in rows], device=device)
        with _forward():
            hidden = self._decoder.hidden(ids, positions, read, self._table.cache)
            logits = self._decoder.logits(hidden[torch.arange(len(rows), device=device), ends])
        for offset, row in enumerate(rows):
            self._table.slots[first + offset].ids = list(row.prompt)
        return logits

    def _decode(self, logits: torch.Tensor, draws: torch.Tensor | None, temperature: float) -> None:
        """Sample until every row ends; rows that ended leave the batch when they are a quarter of it."""
        rows, slots = self._table.order, self._table.slots
        controlled = any(row.control is not None for row in rows)
        looked_at = controlled or any(row.top for row in rows)
        sampled = sample(logits, temperature, None if draws is None else draws[:, 0])
        done = 0
        while True:
            tops = _top_means(rows, sampled)
            forced = _forced(rows, sampled, tops) if controlled else {}
            if forced:
                sampled.put(forced, temperature)
            steps = len(sampled.ids)
            for at, mean in tops.items():
                rows[at].top_means.append(mean)
            self._take(rows, sampled, forced, fed=done > 0)
            done += steps
            ended = sum(row.finish is not None for row in rows)
            if ended == len(rows):
                return
            ids = sampled.ids[-1]
            if 4 * ended >= len(rows):
                live = self._table.compact(rows)
                index = torch.tensor(live, device=logits.device)
                ids, draws = ids[index], None if draws is None else draws[index]
                rows = [rows[at] for at in live]
            left = max(row.cap - len(row.ids) for row in rows if row.finish is None)
            steps = 1 if looked_at else min(self._stepper.most, left)
            lengths = [len(slots[at].ids) for at in range(len(rows))]
            ahead = None if draws is None else draws[:, done : done + steps]
            with _forward():
                sampled = self._stepper.advance(Feed(ids, lengths, ahead, temperature, steps, keep=looked_at))

    def _take(self, rows: list[Row], sampled: Sampled, forced: dict[int, int], *, fed: bool) -> None:
        """Append what was sampled to the rows that have not ended; what follows an end is dropped.

        `fed`: the cache now holds each row's former last id, and all new ones but the last.
        """
        if not sampled.facts.isfinite().all():
            raise PolicyError("the model's logits are not numbers: its weights, or the type it runs in, are broken")
        chosen, facts = sampled.ids.tolist(), sampled.facts.tolist()
        for at, row in enumerate(rows):
            if row.finish is not None:
                continue
            before = len(row.ids)
            for step, ids in enumerate(chosen):
                row.take(ids[at], facts[0][step][at], facts[1][step][at], facts[2][step][at], at in forced)
                row.finish = self._finish(row)
                if row.finish is not None:
                    break
            if fed:
                self._table.slots[at].ids += row.ids[before - 1 : -1]

    def _finish(self, row: Row) -> FinishReason | None:
        if row.ids[-1] in self.eos_ids:
            return FinishReason.STOP
        if row.stops is not None and row.stops.found(row.ids):
            return FinishReason.STOP_TEXT
        return FinishReason.LENGTH if len(row.ids) == row.cap else None


@contextmanager
def _forward() -> Iterator[None]:
    """An index that the model's tables lack (an id, a position) is the engine's failure; elsewhere it is a defect."""
    try:
        yield
    except IndexError as error:
        raise PolicyError(f"the model's forward failed: {type(error).__name__}: {error}") from error


def _top_means(rows: list[Row], sampled: Sampled) -> dict[int, float]:
    """Row number to what its request's `top` asks for, of unfinished rows, at the one step that was sampled."""
    wanted = {row.top for row in rows if row.top and row.finish is None}
    if not wanted:
        return {}
    assert sampled.known is not None
    known = {count: top_mean(sampled.known, count).tolist() for count in wanted}
    return {at: known[row.top][at] for at, row in enumerate(rows) if row.top and row.finish is None}


def _forced(rows: list[Row], sampled: Sampled, tops: dict[int, float]) -> dict[int, int]:
    """What the controls of unfinished rows want instead of the ids that one step sampled: row number to id."""
    forced: dict[int, int] = {}
    entropy, top = sampled.facts[1, 0].tolist(), sampled.facts[2, 0].tolist()
    for at, row in enumerate(rows):
        if row.control is not None and row.finish is None:
            if at in tops and isinstance(row.control, TopControl):
                row.control.watch(tops[at])
            wanted = row.control.force(row.ids, entropy[at], top[at])
            if wanted is not None:
                forced[at] = wanted
    return forced


def end_ids(listed: int | list[int] | None, tokenizer: Any) -> frozenset[int]:
    """End-of-turn ids: the tokenizer's and every one that a generation config lists."""
    ids: set[int] = set()
    for value in (getattr(tokenizer, "eos_token_id", None), *(listed if isinstance(listed, list) else [listed])):
        if value is not None:
            ids.add(int(value))
    return frozenset(ids)


def _listed_ends(model: Any) -> Any:
    return getattr(getattr(model, "generation_config", None), "eos_token_id", None)
