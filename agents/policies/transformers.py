"""TransformersPolicy: sample from a causal LM in this process, keeping each conversation's KV cache across turns.

`complete` decodes one reply for every request, all together; a `stream` takes requests at any time, and gives each
reply as it ends. Only the ids that the cache does not hold yet are computed; if a prompt does not extend what is
cached, the cache is cropped to the common prefix. Each row draws from its own stream of uniforms (one per position), so
what else is in the batch does not change a reply (up to floating-point ties).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from agents.policies.batch import Batch
from agents.policies.cuda import GraphStepper
from agents.policies.decoder import Decoder, Held, Weights
from agents.policies.draw import Cut, EagerStepper, Stepper, uniforms
from agents.policies.merged import SamplingCopy, sampling_dtype
from agents.policies.slots import Row, SlotTable, StopTexts
from agents.policy import Abilities, Answer, Completion, PolicyError, Request, Sampling


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
        self._table.cache.layer_count = self._decoder.layer_count
        devices = {parameter.device for parameter in self._decoder.base.parameters()}
        one_gpu = len(devices) == 1 and self._decoder.device.type == "cuda"
        if graphs and not one_gpu:
            raise ValueError(
                f"graphs=True needs a model on one GPU; this one is on {', '.join(sorted(map(str, devices)))}"
            )
        kind = GraphStepper if (one_gpu if graphs is None else graphs) else EagerStepper
        self._stepper: Stepper = kind(self._decoder, self._table.cache)
        self._weights: Weights | None = None
        """Those that what is cached was computed with."""
        self._held = None if self._copy is None else Held(self._decoder)
        """The copy's parts: only it is never given others."""
        self._streams: weakref.WeakSet[TransformersStream] = weakref.WeakSet()

    @property
    def abilities(self) -> Abilities:
        """Everything; on a CPU rollouts are in lockstep unless asked, so that equal seeds give equal bytes."""
        return Abilities(asynchronous=self._decoder.device.type != "cpu", truncates=True)

    @property
    def copied(self) -> bool:
        """Whether a merged copy samples, so that log-probabilities differ from the model's own by rounding."""
        return self._copy is not None

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order. A stream that is open waits meanwhile, and then goes on.

        Raises:
            PolicyError: A request does not fit, its conversation is under way in a stream, or the engine failed.
        """
        if not requests:
            return []
        rows = [self._row(request, sampling) for request in requests]
        self._refuse_under_way([row.conversation for row in rows])
        with self._engine():
            held = self._notice_changes()
            with self._decoder.sampling(held):
                self._land()
                batch = self._batch(sampling)
                batch.proceed(rows)
                while batch.under_way:
                    batch.proceed()
        return [row.completion() for row in rows]

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> TransformersStream:
        """Begin to take requests that need not begin and end together; the weights are those of now until it closes.

        Streams may be open at the same time, but take turns at the cache's front, which costs a copy of their rows.

        Args:
            sampling: Decode settings of all of them.
            wake: Never called: every reply is computed by the stream's `advance`.

        Raises:
            PolicyError: The engine failed.
        """
        with self._engine():
            held = self._notice_changes()
        stream = TransformersStream(self, sampling, held)
        self._streams.add(stream)
        return stream

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over: their slots are free, and replies that they wait for are given up."""
        for stream in self._streams:
            stream._give_up(conversations)
        self._table.forget(conversations)

    def invalidate(self) -> None:
        """Empty the cache: the weights changed, so what was computed with them is stale; open streams are over."""
        self._empty(_CHANGED, over=True)
        self._weights = None
        if self._copy is not None:
            self._copy.invalidate()

    def renew(self) -> None:
        """The weights may have changed in place without a trace: nothing that was computed or copied before counts."""
        if self._copy is None:
            self._empty(_CHANGED, over=True)
        else:
            # The copy is as it was, and with it the cache and open streams, until the next call takes the weights over.
            self._copy.renew()
            if self._frozen:
                self._copy.refresh()

    def _land(self, but: TransformersStream | None = None) -> None:
        """Read what other streams launched: slots may move now, and only with what is known to stand in them."""
        for stream in self._streams:
            if stream is not but:
                stream._land()

    def _empty(self, reason: str, *, over: bool) -> None:
        """Nothing that is cached counts any more, so no reply that is under way can go on."""
        self._table.forget()
        for stream in self._streams:
            stream._lose(reason, over=over)

    def _notice_changes(self) -> Held:
        """Drop what was computed with other weights than those of now; returns the parts of what samples."""
        if self._copy is not None and not self._frozen:
            self._copy.refresh()
        held = self._held or Held(self._decoder)
        now, before = held.now(), self._weights
        if now != before:
            self._empty(_CHANGED, over=True)
            self._stepper.weights_changed(in_place=before is not None and now.places == before.places)
        self._weights = now
        return held

    @contextmanager
    def _engine(self) -> Iterator[None]:
        """Whatever fails inside empties the cache, which may stand half-way through a swap (also on Ctrl-C)."""
        try:
            yield
        except BaseException as error:
            known = isinstance(error, PolicyError)
            reason = str(error) if known else f"sampling failed: {type(error).__name__}: {error}"
            self._empty(reason, over=False)
            self._stepper.weights_changed(in_place=False)  # nor is a graph trusted that met a failure
            if isinstance(error, (RuntimeError, MemoryError)) and not known:
                raise PolicyError(reason) from error
            raise

    def _batch(self, sampling: Sampling, *, share: bool = False) -> Batch:
        cut = Cut(sampling.top_p, sampling.top_k)
        return Batch(
            self._decoder, self._table, self._stepper, self.eos_ids, sampling.temperature, share=share, cut=cut
        )

    def _row(self, request: Request, sampling: Sampling) -> Row:
        prompt, cap = list(request.prompt_ids), request.fitting_cap(sampling, self.max_context)
        draws = uniforms(request.seed, 0 if sampling.greedy else cap + self._stepper.most)
        stops = StopTexts(self.tokenizer, request.stops) if request.stops else None
        return Row(
            request.conversation, prompt, cap, request.control, draws, stops, request.fork_of, top=request.top
        )  # fmt: skip

    def _refuse_under_way(self, conversations: Sequence[str]) -> None:
        """A conversation has one slot, so it has one reply at a time."""
        if len(set(conversations)) != len(conversations):
            raise PolicyError("two requests of one call name the same conversation")
        for stream in self._streams:
            for busy in sorted(stream._under_way().intersection(conversations)):
                raise PolicyError(f"a reply of conversation {busy} is under way in a stream already: wait for it")


_CHANGED = "the weights changed while a stream was open, and its replies are those of one set of weights: open another"
_CLOSED = "the stream is closed"
_PATIENCE = 8
"""Decode steps that an arrival waits at most before it joins the others."""


class TransformersStream:
    """Replies under way in this process (see `agents.policy.Stream`); `TransformersPolicy.stream` makes it."""

    def __init__(self, policy: TransformersPolicy, sampling: Sampling, held: Held) -> None:
        self._policy, self._sampling = policy, sampling
        self._held, self._weights = held, policy._weights
        self._batch = policy._batch(sampling, share=True)
        self._waiting: list[Row] = []
        self._ready: list[tuple[str, Answer]] = []
        self._waited = 0
        """Decode steps since the first of `_waiting` came."""
        self._lost: str | None = None
        """Why the replies under way cannot go on."""
        self._over: str | None = None
        """Why the stream takes no more."""

    @property
    def working(self) -> bool:
        """Whether any reply is under way, waits to begin, or has an answer that nobody has taken."""
        return bool(self._batch.under_way or self._waiting or self._ready or self._lost)

    def ask(self, requests: Sequence[Request]) -> None:
        """Begin these replies with one of the next calls of `advance`.

        Raises:
            PolicyError: A conversation has a reply under way, or the stream is closed. Nothing was begun.
        """
        if self._over == _CLOSED:
            raise PolicyError(_CLOSED)
        names = [request.conversation for request in requests]
        self._policy._refuse_under_way(names)
        answers: list[Row | PolicyError] = []
        for request in requests:
            try:
                answers.append(self._policy._row(request, self._sampling))
            except PolicyError as error:  # does not fit: this request's own failure
                answers.append(error)
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, Row):
                self._waiting.append(answer)
            else:
                self._ready.append((name, answer))

    def advance(self) -> list[tuple[str, Answer]]:
        """Admit what waits, if its time has come, and decode one step (on a GPU some, in one launch of each).

        Returns:
            What has ended since the last call, by conversation.

        Raises:
            PolicyError: The engine failed, or the weights changed. Everything under way is given up.
        """
        ended: list[Row] = []
        if self._batch.under_way or self._waiting or self._lost:
            try:
                self._check()
                with self._policy._engine(), self._policy._decoder.sampling(self._held):
                    self._policy._land(but=self)
                    ended = self._compute()
            except BaseException:
                self._give_up(None)
                raise
        ready, self._ready = self._ready, []
        return ready + _answers(ended)

    def close(self) -> None:
        """Give up what is under way; the cache keeps what it has computed. Idempotent."""
        self._give_up(None)
        self._over = _CLOSED
        self._policy._streams.discard(self)

    def _compute(self) -> list[Row]:
        """Launch what comes next, and read what has ended: on a GPU that of the call before.

        So the GPU computes while the caller takes care of the replies that have ended, and has its next steps already
        while the host reads (`Batch.ahead`). Who computes while it launches has no such gain, and would hear of each
        end one step later.
        """
        behind = self._policy._stepper.runs_behind
        ended = self._batch.land() if behind and not self._batch.ahead else []
        rows: list[Row] = []
        if self._waiting and self._admits():
            rows, self._waiting, self._waited = self._waiting, [], 0
        elif self._waiting:
            self._waited += 1
        if behind:
            return ended + self._batch.proceed(rows)
        self._batch.launch(rows)
        ended = self._batch.land()
        if rows and not ended:
            self._batch.launch()
            ended = self._batch.land()
        return ended

    def _land(self) -> None:
        """Read what was launched, now; the next `advance` brings it."""
        self._ready += _answers(self._batch.land())

    def _admits(self) -> bool:
        """Whether those who wait join now: as soon as they are a quarter of what is under way, or have waited enough.

        A prefill costs about as much as a decode step, however few it is for, and so does moving slots; who waits
        leaves the batch emptier. On a CPU (`benchmarks.policy`) to admit each arrival at once gives up to a quarter
        fewer ids a second where replies have 8 ids, and as many where they have 48; to wait for a half, or for as many
        as are under way, gains nothing more. Only counts decide, no clock.
        """
        return 4 * len(self._waiting) >= self._batch.under_way or self._waited >= _PATIENCE

    def _check(self) -> None:
        """Refuse to go on with what is lost, or with other weights."""
        if self._over is None and self._held.now() != self._weights:
            self._over = _CHANGED
        reason = self._over or self._lost
        if reason is not None:
            raise PolicyError(reason)

    def _under_way(self) -> set[str]:
        return {row.conversation for row in (*self._waiting, *self._batch.rows) if row.live}

    def _give_up(self, conversations: Iterable[str] | None) -> None:
        """Nobody waits for the replies of these conversations any more; `None`: of any."""
        gone = set(self._under_way() if conversations is None else conversations)
        self._batch.give_up([row for row in self._batch.rows if row.conversation in gone and row.live])
        self._waiting = [row for row in self._waiting if row.conversation not in gone]
        self._ready = [(name, answer) for name, answer in self._ready if name not in gone]
        if conversations is None:
            self._ready, self._lost = [], None

    def _lose(self, reason: str, *, over: bool) -> None:
        """The cache was emptied: what is under way fails with the next `advance`."""
        if self._batch.under_way or self._waiting:
            self._lost = reason
        if over:
            self._over = self._over or reason
        self._batch.drop()


def _answers(ended: Iterable[Row]) -> list[tuple[str, Answer]]:
    return [(row.conversation, row.completion()) for row in ended]


def end_ids(listed: int | list[int] | None, tokenizer: Any) -> frozenset[int]:
    """End-of-turn ids: the tokenizer's and every one that a generation config lists."""
    ids: set[int] = set()
    for value in (getattr(tokenizer, "eos_token_id", None), *(listed if isinstance(listed, list) else [listed])):
        if value is not None:
            ids.add(int(value))
    return frozenset(ids)


def _listed_ends(model: Any) -> Any:
    return getattr(getattr(model, "generation_config", None), "eos_token_id", None)
