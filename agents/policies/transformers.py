"""TransformersPolicy: sample from a causal LM in this process, keeping each conversation's KV cache across turns.

One call decodes one reply for every request, batched. Only the ids that the cache does not hold yet are computed; if a
prompt does not extend what is cached, the cache is cropped to the common prefix. Each row draws from its own stream of
uniforms (one per position), so what else is in the batch does not change a reply (up to floating-point ties).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from agents.policies.decoder import Decoder
from agents.policies.draw import choose, know, logprobs_of, uniforms
from agents.policies.slots import Row, SlotTable
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling

_PREFILL_CELLS = 2**24
"""Cap on rows * tokens * positions of one prefill forward: bounds the mask's memory (64 MB in float32)."""


class TransformersPolicy:
    """A policy on any decoder-only model of transformers (also inside PEFT).

    Weights may change between calls: an in-place change (an optimizer step) is noticed and empties the cache; after any
    other kind (adapter switched, merged, loaded) call `invalidate()`.

    Args:
        model: The model; it is put into evaluation mode only while sampling.
        tokenizer: Its tokenizer.
        eos_ids: Ids that end a turn; default: the tokenizer's and the generation config's.
        device: Moves the model there; default: where it is.
        max_context: Longest prompt plus reply, in ids; default: what the model's positions allow.

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
    ) -> None:
        if device is not None:
            model.to(device)
        self.tokenizer = tokenizer
        self._decoder = Decoder(model)
        self.eos_ids = frozenset(eos_ids) if eos_ids is not None else _eos_ids(self._decoder.base, tokenizer)
        if not self.eos_ids:
            raise ValueError("no end-of-turn id: the tokenizer has no eos_token; pass eos_ids=")
        self.max_context = max_context if max_context is not None else self._decoder.limit
        self._table = SlotTable()
        self._version: int | None = None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order.

        Raises:
            PolicyError: A request does not fit, or the engine failed.
        """
        if not requests:
            return []
        try:
            with self._decoder.sampling():
                version = self._decoder.version()
                if version != self._version:
                    self.invalidate()
                    self._version = version
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

    def release(self) -> None:
        """Empty the cache and give its memory back."""
        self._table.release()

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
        prompt = list(request.prompt_ids)
        cap = sampling.max_tokens if request.max_tokens is None else request.max_tokens
        if not prompt or cap < 1:
            raise PolicyError(f"request {index} ({request.conversation}): {len(prompt)} prompt ids, {cap} reply ids")
        if self.max_context is not None and len(prompt) + cap > self.max_context:
            raise PolicyError(
                f"request {index} ({request.conversation}): {len(prompt)} prompt ids and up to {cap} reply ids do not "
                f"fit into the context of {self.max_context}"
            )
        return Row(index, request.conversation, prompt, cap, request.control)

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
        hidden = self._decoder.hidden(ids, positions, read, self._table.cache)
        ends = torch.tensor([row.pending - 1 for row in rows], device=device)
        for offset, row in enumerate(rows):
            self._table.slots[first + offset].ids = list(row.prompt)
        return self._decoder.logits(hidden[torch.arange(len(rows), device=device), ends])

    def _decode(self, logits: torch.Tensor, draws: torch.Tensor | None, temperature: float) -> None:
        """Sample until every row ends; rows that ended leave the batch when they are a quarter of it."""
        rows, slots, eos = self._table.order, self._table.slots, self.eos_ids
        device = logits.device
        controlled = any(row.control is not None for row in rows)
        step = 0
        while True:
            known = know(logits)
            ids = choose(known, temperature, None if draws is None else draws[:, step])
            forced = _forced(rows, ids, known.entropies, known.max_logprobs) if controlled else None
            facts = torch.stack((logprobs_of(known, ids, temperature), known.entropies, known.max_logprobs)).tolist()
            chosen = ids.tolist()
            ended = 0
            for at, row in enumerate(rows):
                if row.finish is None:
                    row.ids.append(chosen[at])
                    row.logprobs.append(facts[0][at])
                    row.entropies.append(facts[1][at])
                    row.max_logprobs.append(facts[2][at])
                    row.forced.append(forced is not None and at in forced)
                    if chosen[at] in eos:
                        row.finish = FinishReason.STOP
                    elif len(row.ids) == row.cap:
                        row.finish = FinishReason.LENGTH
                if row.finish is not None:
                    ended += 1
            if ended == len(rows):
                return
            step += 1
            if 4 * ended >= len(rows):
                live = self._table.compact(rows)
                index = torch.tensor(live, device=device)
                ids, draws = ids[index], None if draws is None else draws[index]
                rows = [rows[at] for at in live]
            lengths = [len(slots[at].ids) for at in range(len(rows))]
            read = max(lengths) + 1
            self._table.cache.reserve(len(slots), read)
            positions = torch.tensor(lengths, device=device).unsqueeze(1)
            self._table.cache.select(0, len(rows), positions, read)
            hidden = self._decoder.hidden(ids.unsqueeze(1), positions, read, self._table.cache)
            for at, row in enumerate(rows):
                if row.finish is None:
                    slots[at].ids.append(row.ids[-1])
            logits = self._decoder.logits(hidden[:, -1])


def _forced(rows: list[Row], ids: torch.Tensor, entropies: torch.Tensor, max_logprobs: torch.Tensor) -> dict[int, int]:
    """Ask each unfinished row's control; put what it forces into `ids`. Row number to forced id."""
    forced: dict[int, int] = {}
    entropy, top = entropies.tolist(), max_logprobs.tolist()
    for at, row in enumerate(rows):
        if row.control is not None and row.finish is None:
            wanted = row.control.force(row.ids, entropy[at], top[at])
            if wanted is not None:
                forced[at] = ids[at] = wanted
    return forced


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """End-of-turn ids: the tokenizer's and every one of the generation config."""
    ids: set[int] = set()
    listed = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    for value in (getattr(tokenizer, "eos_token_id", None), *(listed if isinstance(listed, list) else [listed])):
        if value is not None:
            ids.add(int(value))
    return frozenset(ids)
