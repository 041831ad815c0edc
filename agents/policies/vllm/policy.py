"""A vLLM server as a policy: what it is, asked once; ids in, ids out."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from agents.policies.remote import Outage, RemoteStream, together
from agents.policies.vllm.adapters import Adapters
from agents.policies.vllm.replicas import HEALTH, Replicas, addresses, connect
from agents.policies.vllm.reply import COMPLETIONS, Draft, answer, prompt_ids, question
from agents.policy import Abilities, Completion, PolicyError, Request, Sampling
from tasks.endpoints.flight import Flight
from tasks.endpoints.http import RETRIES, HttpError, JsonClient

# ---------------------------------------------------------------------------------------------------------------------
# What a vLLM server is, found out by asking it: which model, how long a context, whose tokenizer, which logprobs.

MODELS = "/v1/models"
_TEXT = "Run `ls -la` 12345 times;\n\tif naïve_café >= 0x7F: print('☃ déjà vu')  # TASK COMPLETE"
"""Letters, digits, runs of blanks, bytes of other scripts: tokenizers differ in those."""
_COLD = 0.25
_FLAT = 1e-3
"""Nats between the likeliest ids: less is rounding and tells nothing."""


class LogprobsMode(StrEnum):
    """What the server's `--logprobs-mode` makes of a temperature."""

    PROCESSED = "processed_logprobs"
    """Log-probabilities are those that the sampler drew from."""
    RAW = "raw_logprobs"
    """They are those at temperature 1, whatever the temperature was. The server's default."""


@dataclass(frozen=True, slots=True)
class Served:
    """What stands behind the address.

    Attributes:
        model: Name of the model that requests name.
        max_context: Longest prompt plus reply, in ids.
        logprobs: How log-probabilities are reported.
    """

    model: str
    max_context: int | None
    logprobs: LogprobsMode


def look(client: JsonClient, tokenizer: Any, model: str | None, top: int) -> Served:
    """Ask a server what it is.

    Args:
        client: Calls to it.
        tokenizer: Must give the ids that the server gives.
        model: The model wanted; `None` where only one is served.
        top: Log-probabilities that requests will ask for.

    Raises:
        PolicyError: It serves another model, with another tokenizer, or reports what this policy cannot use.
    """
    name, limit = _model(client, model)
    ids = _same_tokenizer(client, tokenizer, name)
    return Served(name, limit, _logprobs_mode(client, name, ids, top))


def _model(client: JsonClient, wanted: str | None) -> tuple[str, int | None]:
    said = client.get(MODELS)
    try:
        cards = {card["id"]: card for card in said["data"]}
    except (ValueError, KeyError, TypeError) as error:
        raise PolicyError(
            f"{client.base_url}{MODELS} is not what a vLLM server answers: {str(said)[:200]!r}"
        ) from error
    whole = [name for name, card in cards.items() if not card.get("parent")]
    if wanted is None and len(whole) != 1:
        raise PolicyError(f"{client.base_url} serves {len(whole)} models, name one of them: model={' or '.join(whole)}")
    name = whole[0] if wanted is None else wanted
    if name not in cards:
        raise PolicyError(f"{client.base_url} serves no model '{name}'; it has {', '.join(cards) or 'none'}")
    card = cards[name]
    limit = card.get("max_model_len") or cards.get(card.get("parent"), {}).get("max_model_len")
    return name, limit


def _same_tokenizer(client: JsonClient, tokenizer: Any, model: str) -> list[int]:
    """Ids of a text that both sides agree on."""
    text = _TEXT + (tokenizer.eos_token or "")
    ours = list(tokenizer.encode(text, add_special_tokens=False))
    said = client.post(COMPLETIONS, question(model, text, seed=None, cap=1, temperature=0.0, top=0))
    theirs = prompt_ids(said, client.base_url)
    if ours != theirs:
        raise PolicyError(
            f"{client.base_url} serves '{model}' with another tokenizer than this one: the same text has "
            f"{len(theirs)} ids there and {len(ours)} here, first different at "
            f"{_first_difference(ours, theirs)}. Load the tokenizer from the folder that the server was started with"
        )
    return ours


def _logprobs_mode(client: JsonClient, model: str, ids: list[int], top: int) -> LogprobsMode:
    """Read one position at two temperatures: only processed log-probabilities move apart when it gets colder."""
    spread = {}
    for temperature in (1.0, _COLD):
        asked = question(model, ids, seed=None, cap=1, temperature=temperature, top=max(2, top))
        try:
            piece = answer(client.post(COMPLETIONS, asked), asked, client.base_url)
        except HttpError as error:
            if error.status != 400:
                raise
            raise PolicyError(
                f"{error}. If it is about logprobs: start the server with --max-logprobs {max(2, top)}, "
                "or pass a smaller top_logprobs"
            ) from error
        assert piece.tops is not None
        values = piece.tops[0]
        if math.fsum(math.exp(min(value, 1.0)) for value in values) > 1.01:
            raise PolicyError(
                f"{client.base_url} reports logits for log-probabilities: start it with --logprobs-mode "
                f"{LogprobsMode.PROCESSED}"
            )
        spread[temperature] = values[0] - values[-1]
    if spread[1.0] < _FLAT:
        raise PolicyError(
            f"{client.base_url}: every id is equally likely to '{model}' (its {top} likeliest differ by "
            f"{spread[1.0]:.1e} nats); its weights are not loaded, or it was never trained"
        )
    ratio = spread[_COLD] / spread[1.0]
    # 1 for raw ones and 4 for processed ones; rounding of low-precision weights moves both.
    return LogprobsMode.PROCESSED if ratio > math.sqrt(1.0 / _COLD) else LogprobsMode.RAW


def _first_difference(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(ours), len(theirs)))


# -- VllmPolicy: sample from a vLLM server over HTTP, ids in and ids out; adapters are swapped while it runs ----------
# The server does the batching and keeps the KV cache of every conversation; here are the requests of one call, sent
# together, and the checks that make their answers trustworthy. See docs/vllm.md for how to start the server.

COLDEST = 0.01
"""vLLM takes lower temperatures above 0 for this one."""
_PADDING = 512
"""Models pad their vocabulary; at most to a multiple of this."""
_LOOK_AGAIN = 0.5
_LEAST = 0.1
"""Seconds between looks at a server that starts, and the least that one of them may take."""
_Asked = tuple[Request, Draft]


class VllmPolicy:
    """A policy on a vLLM server that was started with `--logprobs-mode processed_logprobs`.

    Nothing is asked before the first use; then the server is examined once. It must give this tokenizer's ids and the
    log-probabilities of the distribution that it samples from.

    What a completion holds: `logprobs` always. `entropy_bounds` and `max_logprobs` at temperature 1 and when greedy:
    at other temperatures the server knows its likeliest ids at that temperature only, and both are `None`. `entropies`
    never. A forced id has log-probability 0: the control left no choice there.

    Args:
        url: Of the server, such as `http://127.0.0.1:8000`; `/v1` at the end is taken off. No proxy is used. Several,
            as a list or with commas between, are replicas that share the conversations.
        tokenizer: The one of the served model.
        model: Name of the served model; needed only where there are several.
        eos_ids: Ids that end a turn, and no others do; default: the tokenizer's.
        adapters: Folder to which `publish` writes, seen by the server under the same path; default: a temporary one.
        top_logprobs: Likeliest ids to ask for at each position (the server's `--max-logprobs` caps them); 0 for none.
        concurrency: Requests under way at once.
        timeout: Seconds to wait for one answer.
        retries: Further attempts after a connection error, a time-out, 429, 5xx, or an answer that is cut off.
        backoff: Seconds before the first of them; doubles up to a minute.
        extra: `{"seed": None}` sends no seeds (some builds die of them); every other key of a request is set here.
        max_context: Longest prompt plus reply, in ids; default: the server's.
        api_key: What the server was started with as `--api-key`; default: the environment's `VLLM_API_KEY`.

    Raises:
        ValueError: A setting makes no sense, the address or the key cannot be used, or no end-of-turn id is known.
    """

    abilities = Abilities(own_ids=True, logprobs=True, entropies=False, every_control=False, asynchronous=True)

    def __init__(
        self,
        url: str | Sequence[str],
        tokenizer: Any,
        *,
        model: str | None = None,
        eos_ids: Iterable[int] | None = None,
        adapters: str | Path | None = None,
        top_logprobs: int = 20,
        concurrency: int = 64,
        timeout: float = 600.0,
        retries: int = RETRIES,
        backoff: float = 0.5,
        extra: Mapping[str, Any] | None = None,
        max_context: int | None = None,
        api_key: str | None = None,
    ) -> None:
        if concurrency < 1 or retries < 0 or top_logprobs < 0 or not 0 < timeout < threading.TIMEOUT_MAX:
            raise ValueError("concurrency and timeout must be above 0, retries and top_logprobs not below")
        if wrong := sorted(key for key, value in (extra or {}).items() if key != "seed" or value is not None):
            raise ValueError(
                f"extra holds {', '.join(wrong)}: every key of a request to vLLM is set here; it may only be sent "
                'without a seed ({"seed": null})'
            )
        own = (tokenizer.eos_token_id,) if eos_ids is None else eos_ids
        self.eos_ids = frozenset(int(token) for token in own if token is not None)
        if not self.eos_ids:
            raise ValueError("no end-of-turn id: the tokenizer has no eos_token; pass eos_ids=")
        self.tokenizer = tokenizer
        self._servers = Replicas(
            [
                connect(one, timeout=timeout, retries=retries, backoff=backoff, api_key=api_key)
                for one in addresses(url)
            ],
            self._prepare,
        )
        self._adapters = Adapters(self._servers, adapters)
        self._outage, self._seeds = Outage(), not extra
        self._model, self._top, self._concurrency = model, top_logprobs, concurrency
        self._max_context = max_context
        # An upper bound of the entropy stays one when the vocabulary is taken too large, not when too small.
        self._vocabulary = -(-len(tokenizer) // _PADDING) * _PADDING
        self._served: Served | None = None
        self._examining = threading.Lock()
        self._closed = False

    # -- the server ---------------------------------------------------------------------------------------------------

    def wait_ready(self, timeout: float = 300.0) -> None:
        """Wait until the server answers, then examine it.

        Args:
            timeout: Seconds.

        Raises:
            PolicyError: It did not answer in time, or it is not what this policy needs.
        """
        deadline = time.monotonic() + timeout
        for client in self._servers.clients:
            while True:
                try:
                    client.tell(HEALTH, retries=0, timeout=max(_LEAST, deadline - time.monotonic()))
                    break
                except HttpError as error:
                    if error.status is not None and error.status < 500 and error.status not in (408, 429):
                        raise  # it is there, and says no
                    if time.monotonic() + _LOOK_AGAIN >= deadline:
                        raise PolicyError(f"no vLLM server was ready within {timeout:g} s: {error}") from error
                time.sleep(_LOOK_AGAIN)
        self._examined()

    @property
    def max_context(self) -> int | None:
        """Longest prompt plus reply, in ids."""
        limit = self._examined().max_context
        if self._max_context is None or limit is None:
            return limit if self._max_context is None else self._max_context
        if self._max_context > limit:
            raise PolicyError(
                f"max_context is {self._max_context} and the server's --max-model-len {limit}: lower the first, "
                "or raise the second"
            )
        return self._max_context

    @property
    def model(self) -> str:
        """What the next call samples from: the adapter published last, or the served model."""
        return self._adapters.current or self._examined().model

    def publish(self, model: Any) -> str:
        """Sample with the active LoRA adapter of this PEFT model from the next call on; calls under way keep theirs.

        Returns:
            The name that the server knows it by, new for every version.

        Raises:
            PolicyError: The model has no LoRA adapter, or the server does not take it; the message says what to do.
        """
        self._open()
        return self._adapters.publish(model)

    def publish_folder(self, folder: str | Path) -> str:
        """The same for a folder to which PEFT saved an adapter."""
        self._open()
        return self._adapters.publish_folder(folder)

    def close(self) -> None:
        """Take the published adapters off the server and the disk. Idempotent; the policy is of no use afterwards."""
        self._closed = True
        self._adapters.close()
        self._servers.close()

    def __enter__(self) -> VllmPolicy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- sampling -----------------------------------------------------------------------------------------------------

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order; all are under way together.

        Raises:
            PolicyError: A request cannot be served, or the server is not there for anyone
                (`agents.policies.remote.Outage`).
            SomeFailed: It failed some.
        """
        self._open()
        if not requests:
            return []
        self._check(sampling)
        asked = [self._asked(request, sampling) for request in requests]
        with self._adapters.pinned() as adapter:
            return together(partial(self._reply, sampling, adapter), asked, self._concurrency, self._outage)

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> RemoteStream[_Asked]:
        """Begin to take requests (`agents.policy.Streaming`), all of them for the adapter that is current now.

        Raises:
            PolicyError: The server is not there, or cannot sample so.
        """
        self._open()
        self._check(sampling)
        with ExitStack() as held:
            adapter = held.enter_context(self._adapters.pinned())
            reply = partial(self._reply, sampling, adapter)
            asked = partial(self._asked, sampling=sampling)
            return RemoteStream(asked, reply, self._concurrency, self._outage, wake, held.pop_all())

    def label(self, sampling: Sampling) -> str:
        """The decode settings for tables."""
        return sampling.label() if self._seeds else f'{sampling.label()}, {{"seed": null}}'

    def describe(self) -> dict[str, Any]:
        """For records: where the replies came from."""
        served = self._examined()
        said = {"kind": "vllm", "url": self._servers.url, "model": self.model, "logprobs": str(served.logprobs)}
        if not self._seeds:
            said["seeds"] = "not sent: replies are drawn with the server's own"
        counts = self._servers.replies()
        return said if len(counts) == 1 else {**said, "replies": counts}

    def forget(self, conversations: Sequence[str]) -> None:
        """They need no replica any longer; a server's cache drops what was not used for longest."""
        self._servers.forget(conversations)

    def _open(self) -> None:
        if self._closed:
            raise PolicyError("this policy was closed")

    def _check(self, sampling: Sampling) -> None:
        """Refuse what the server would sample otherwise."""
        if 0.0 < sampling.temperature < COLDEST:
            raise PolicyError(
                f"temperature {sampling.temperature:g}: vLLM samples at {COLDEST:g} instead of anything "
                "lower, without a word. Sample greedily (0), or at a temperature from there on"
            )
        if sampling.truncated:
            raise PolicyError("top_p and top_k are not asked of a vLLM server here: leave them out")
        served = self._examined()
        if sampling.temperature not in (0.0, 1.0) and served.logprobs is not LogprobsMode.PROCESSED:
            raise PolicyError(
                f"the server at {self._servers.url} reports log-probabilities at temperature 1, not those of the "
                f"distribution it samples from at temperature {sampling.temperature:g}. Remedy: start it with "
                f"--logprobs-mode {LogprobsMode.PROCESSED}, or sample at temperature 1"
            )

    def _examined(self) -> Served:
        with self._examining:
            if self._served is None:
                first, *others = self._servers.clients
                served = look(first, self.tokenizer, self._model, self._top)
                for client in others:
                    self._same(client, served)
                self._served = served
            return self._served

    def _same(self, client: JsonClient, served: Served) -> None:
        """Refuse a replica that is not what another one is."""
        found = look(client, self.tokenizer, self._model, self._top)
        if found != served:
            raise PolicyError(
                f"the replica {client.base_url} is not what the others are ({found} there, {served} here): start all "
                "with the same model and flags"
            )

    def _prepare(self, client: JsonClient) -> None:
        """Make a replica that was away fit to be used again."""
        if self._served is not None:
            self._same(client, self._served)
        self._adapters.restore(client)

    def _asked(self, request: Request, sampling: Sampling) -> _Asked:
        """A request and its empty reply, once it is sure that it can be served."""
        cap = request.fitting_cap(sampling, self.max_context)
        known = self._top > 0 and sampling.temperature in (0.0, 1.0)
        decode = partial(self.tokenizer.decode, skip_special_tokens=False)
        return request, Draft(request, cap, self.eos_ids, decode, self._vocabulary if known else None)

    def _reply(self, sampling: Sampling, adapter: str | None, asked: _Asked, flight: Flight) -> Completion:
        """One reply, in one request, or in several where a control may force ids."""
        request, draft = asked
        while draft.finish is None:
            body = question(
                adapter or self._examined().model,
                draft.prompt,
                seed=draft.seed if self._seeds else None,
                cap=draft.wanted(),
                temperature=sampling.temperature,
                top=self._top,
                eos_ids=self.eos_ids,
                stops=draft.stops,
            )
            said, where = self._servers.post(
                COMPLETIONS, body, flight,
                conversation=request.conversation, fork_of=request.fork_of, adapter=adapter is not None,
            )  # fmt: skip
            draft.take(answer(said, body, where))
        return draft.completion()
