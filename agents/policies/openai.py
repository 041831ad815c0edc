"""Any OpenAI-compatible chat endpoint as a policy, at text level."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.policies.http import Flight, HttpError, JsonClient, plain_text, together
from agents.policies.scripted import ByteTokenizer
from agents.policy import (
    Abilities,
    Completion,
    FinishReason,
    PolicyError,
    PromptTooLong,
    Request,
    Sampling,
    SomeFailed,
)

# -- Messages out of the ids of a `ByteTokenizer` conversation, for engines that take text ----------------------------
# Exact, because control ids never come from content: `agents.chat` keeps them out of messages, and a policy at text
# level encodes its replies as bytes (`reply_ids`).

Message = dict[str, str]
START, END = ByteTokenizer.all_special_ids
_NEXT = "assistant\n"


def messages_of(ids: Sequence[int], tokenizer: ByteTokenizer) -> list[Message]:
    """The messages of a conversation that waits for a reply.

    Args:
        ids: As `agents.chat.Conversation` keeps them, up to the header of the next reply.
        tokenizer: Turns bytes into text; bytes that are no UTF-8 are replaced.

    Returns:
        Role and content of each message, without the empty reply at the end.

    Raises:
        ValueError: There are no turns in them (a running text, for base models), or they do not end as they should.
    """
    starts = [at for at, token in enumerate(ids) if token == START]
    if not starts or starts[0] or tokenizer.decode(ids[starts[-1] + 1 :]) != _NEXT:
        raise ValueError("the ids are no turns that wait for a reply (a prompt of running text has no messages)")
    messages = []
    for start, end in zip(starts, starts[1:], strict=False):
        turn = list(ids[start + 1 : end])
        role, _, content = tokenizer.decode(turn[: turn.index(END)]).partition("\n")
        messages.append({"role": role, "content": content})
    return messages


def reply_ids(text: str, *, ended: bool) -> list[int]:
    """A reply as ids: its bytes, whatever literals it holds, and the end-of-turn id if it `ended` or is empty."""
    ids = list(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    return [*ids, END] if ended or not ids else ids


# -- OpenAIPolicy: any OpenAI-compatible chat endpoint behind the Policy protocol. For measuring, not for training ----
# It works at text level: its ids are bytes (`ByteTokenizer`), which it turns back into messages for the server. What
# the server's own tokens, template and log-probabilities are stays unknown.
#
# What is the model's and what is the engine's failure: a refusal, an empty reply and a reply cut at its cap are the
# model's. No answer, a filtered one, or one that is not a reply is the engine's (`PolicyError`), never an empty
# reply.

KEY_VARIABLE = "OPENAI_API_KEY"
OURS = frozenset({"model", "messages", "temperature", "seed", "stop", "n", "stream"})
CAPS = ("max_tokens", "max_completion_tokens")
"""What the cap on a reply is called: the second where a server says so."""
_ONE_REQUEST = frozenset(range(400, 500)) - {401, 403, 404, 408, 429}
"""Refusals that are about one request; any other failure says that the server is not there for anyone."""

_TOO_LONG = re.compile(r"context (length|window|size)|prompt is too long|too many (input )?tokens", re.IGNORECASE)


class Unanswered(PolicyError):
    """The server will not answer this conversation; others it may."""


@dataclass(slots=True)
class Usage:
    """What a policy has asked for so far, as the server counts.

    Attributes:
        replies: Answers received; `without_usage` those that came without counts.
        prompt_tokens: Of all their prompts; a conversation's first message counts again in every turn.
        completion_tokens: Of all replies, with hidden reasoning where the server counts it.
    """

    replies: int = 0
    without_usage: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class OpenAIPolicy:
    """A model behind `/chat/completions`.

    Args:
        model: Its name there.
        base_url: Address up to and with the version (`https://api.openai.com/v1`).
        api_key: Default: the environment's `OPENAI_API_KEY`; servers without keys need none.
        concurrency: Requests under way at a time.
        timeout: Seconds without a sign of the server after which an attempt fails.
        retries: Attempts after the first.
        extra: Further keys of each request (`{"reasoning_effort": "low"}`); those set here are refused.

    Raises:
        ValueError: An argument that cannot work.
    """

    abilities = Abilities(own_ids=False, logprobs=False, entropies=False, every_control=False)

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        retries: int = 5,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: at least 1")
        if taken := sorted((OURS | {*CAPS}) & {*(extra or {})}):
            raise ValueError(f"extra holds {', '.join(taken)}: set by the sampling and by the environment")
        key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
        self.model, self.extra, self.concurrency = model, dict(extra or {}), concurrency
        self.tokenizer = ByteTokenizer()
        self.eos_ids = frozenset([self.tokenizer.eos_token_id])
        self.usage = Usage()
        self._client = JsonClient(base_url, timeout=timeout, retries=retries, key=key, key_name=KEY_VARIABLE)
        self._lock = threading.Lock()
        self._served: dict[str, set[str]] = {"model": set(), "system_fingerprint": set()}
        self._cap = CAPS[0]
        self._lone_failures = 0

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One reply per request, several requests at a time. Caps are in the server's tokens.

        Raises:
            PolicyError: The server failed every request of several, or a lone one for the second time in a row.
            SomeFailed: It failed some, or some conversations cannot go on.
            ValueError: A request wants what no chat endpoint can: forced ids, stop texts, or a prompt without messages.
        """
        if any(request.control is not None for request in requests):
            raise ValueError(f"{self.model}: a chat endpoint cannot be told to put ids into a reply: use no control")
        if any(request.stops for request in requests):
            raise ValueError(f"{self.model}: stop texts belong to prompts of running text; a chat endpoint has none")
        asked = [(request, messages_of(request.prompt_ids, self.tokenizer)) for request in requests]

        def reply(one: tuple[Request, list[dict[str, str]]], flight: Flight) -> Completion:
            return self._reply(*one, sampling, flight)

        answers = together(reply, asked, self.concurrency, caught=PolicyError)
        completions = [answer for answer in answers if isinstance(answer, Completion)]
        failures = [answer for answer in answers if isinstance(answer, PolicyError)]
        if not (failures and all(_no_server(answer) for answer in answers)):
            self._lone_failures = 0
            if failures:
                raise SomeFailed(answers)
            return completions
        if len(failures) == 1:
            self._lone_failures += 1
            if self._lone_failures == 1:
                raise SomeFailed(answers)
            raise failures[0]
        raise PolicyError(f"all {len(failures)} requests failed, the first with: {failures[0]}") from failures[0]

    def label(self, sampling: Sampling) -> str:
        """The decode settings for tables, with what is added to each request."""
        return f"{sampling.label()}, {json.dumps(self.extra, sort_keys=True)}" if self.extra else sampling.label()

    def forget(self, conversations: Sequence[str]) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def describe(self) -> dict[str, Any]:
        """For records: where the replies came from, as far as the server says, and what they took."""
        return {
            "kind": "endpoint",
            "url": self._client.base_url,
            "model": self.model,
            "server_says": {name: sorted(values) for name, values in self._served.items() if values},
            "extra": self.extra,
            "cap": self._cap,
            "level": "text: the server's tokens and chat template are its own",
            "seeds": "sent; an endpoint need not honour them",
            "usage": asdict(self.usage),
        }

    # -- one request --------------------------------------------------------------------------------------------------

    def _reply(
        self, request: Request, messages: list[dict[str, str]], sampling: Sampling, flight: Flight
    ) -> Completion:
        body = {
            **self.extra,
            "model": self.model,
            "messages": messages,
            "temperature": sampling.temperature,
            "seed": request.seed,
        }
        cap = request.cap(sampling)
        try:
            answer = self._post(body, cap, flight)
        except HttpError as error:
            if own := _of_this_prompt(error, request):
                raise own from error
            raise
        return self._completion(answer)

    def _post(self, body: dict[str, Any], cap: int, flight: Flight) -> dict[str, Any]:
        name = self._cap
        try:
            return self._client.post("chat/completions", {**body, name: cap}, flight=flight)
        except HttpError as error:
            other = error.status == 400 and CAPS[1] in error.said and not _TOO_LONG.search(error.said)
            if name != CAPS[0] or not other:
                raise
        self._cap = CAPS[1]
        return self._client.post("chat/completions", {**body, self._cap: cap}, flight=flight)

    def _completion(self, answer: dict[str, Any]) -> Completion:
        choice, message = self._only_choice(answer)
        notes = self._note(answer, message)
        finish = choice.get("finish_reason")
        if finish == "content_filter":
            raise Unanswered(f"{self.model}: the server's content filter withheld the reply")
        if finish == "tool_calls" or message.get("tool_calls"):
            raise PolicyError(
                f"{self.model}: the server answered with a tool call, and none was offered: its parser took the text "
                "for one. Switch that off, at the server"
            )
        if finish not in ("stop", "length"):
            said = finish if finish is None else plain_text(str(finish))
            raise PolicyError(f"{self.model}: the reply ended with finish_reason {said!r}; known are stop and length")
        text = message.get("content")
        if text is None and isinstance(message.get("refusal"), str):
            text, notes["refused"] = message["refusal"], 1.0
        if text is None and (finish == "length" or "reasoning_chars" in notes):
            text = ""  # it thought, and said nothing
        if not isinstance(text, str):
            raise PolicyError(f"{self.model}: the reply's content is {type(text).__name__}, not text")
        ended = finish == "stop"
        return _unknown(reply_ids(text, ended=ended), FinishReason.STOP if ended else FinishReason.LENGTH, notes)

    def _only_choice(self, answer: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        choices = answer.get("choices")
        if not isinstance(choices, list) or len(choices) != 1:
            raise PolicyError(
                f"{self.model}: expected an answer with one choice, got keys {sorted(map(plain_text, answer))[:8]}"
            )
        message = choices[0].get("message") if isinstance(choices[0], dict) else None
        if not isinstance(message, dict):
            raise PolicyError(f"{self.model}: the answer's choice holds no message")
        return choices[0], message

    def _note(self, answer: dict[str, Any], message: dict[str, Any]) -> dict[str, float]:
        """Count the answer; what it says about tokens and hidden reasoning, as notes of the completion."""
        usage = answer.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        counts = {key: usage[key] for key in ("prompt_tokens", "completion_tokens") if isinstance(usage.get(key), int)}
        notes = {key: float(count) for key, count in counts.items()}
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str):
            notes["reasoning_chars"] = float(len(thought))
        with self._lock:
            self.usage.replies += 1
            self.usage.without_usage += len(counts) < 2
            self.usage.prompt_tokens += counts.get("prompt_tokens", 0)
            self.usage.completion_tokens += counts.get("completion_tokens", 0)
            for name, values in self._served.items():
                if isinstance(answer.get(name), str):
                    values.add(plain_text(answer[name]))
        return notes


def _no_server(answer: Completion | PolicyError) -> bool:
    """Whether a request failed for a reason that is not its own: no answer, an outage, a key or a model refused."""
    return isinstance(answer, HttpError) and answer.status not in _ONE_REQUEST


def _of_this_prompt(error: HttpError, request: Request) -> PolicyError | None:
    """What a refused request says about its prompt; `None` where it says nothing."""
    if error.status not in (400, 413, 422):
        return None
    if error.code == "content_filter":
        return Unanswered(f"the server's content filter refuses the prompt: {error.said}")
    if error.code != "context_length_exceeded" and not _TOO_LONG.search(error.said):
        return None
    if request.first_turn:
        return Unanswered(
            f"the first prompt and the cap on the reply do not fit into the model's context: choose a smaller cap or "
            f"leave the task out ({error.said})"
        )
    return PromptTooLong(error.said)


def _unknown(ids: list[int], finish: FinishReason, notes: dict[str, float]) -> Completion:
    """A completion of which only the ids are known."""
    return Completion(ids, None, None, None, [False] * len(ids), finish, notes=notes)
