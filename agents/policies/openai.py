"""Any OpenAI-compatible chat endpoint as a policy, at text level."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from agents.policies.messages import messages_of, reply_ids, with_calls
from agents.policies.remote import Outage, RemoteStream, together
from agents.policies.scripted import TOOLS_TURN, ByteTokenizer
from agents.policy import (
    LEAST_REPLY,
    Abilities,
    Completion,
    FinishReason,
    PolicyError,
    PromptTooLong,
    Request,
    Sampling,
)
from envs.calls import Call, arguments_of, written
from tasks.endpoints.chat import FILTERED, FINISH, KEY_VARIABLE, SUMS, only_choice, token_counts
from tasks.endpoints.flight import Flight
from tasks.endpoints.http import RETRIES, TOO_LARGE, HttpError, JsonClient, plain_text

# -- OpenAIPolicy: any OpenAI-compatible chat endpoint behind the Policy protocol. For measuring, not for training ----
# It works at text level: its ids are bytes (`ByteTokenizer`), which it turns back into messages for the server. What
# the server's own tokens, template and log-probabilities are stays unknown.
#
# What is the model's and what is the engine's failure: a refusal, an empty reply and a reply cut at its cap are the
# model's. No answer, a filtered one, or one that is not a reply is the engine's (`PolicyError`), never an empty
# reply.

LEFT_OUT = frozenset({"temperature", "seed"})
"""Keys that are set here, and that a server may refuse to know: `None` leaves them out."""
OURS = frozenset({"model", "messages", "tools", "stop", "n", "stream"}) | LEFT_OUT
CAPS = ("max_tokens", "max_completion_tokens")
"""What the cap on a reply is called: the second where a server says so."""

_REFUSED = (400, 413, 422)
_TOO_LONG = re.compile(r"context (length|window|size)|prompt is too long|too many (input )?tokens", re.IGNORECASE)


_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})
_Asked = tuple[Request, dict[str, Any]]
"""A request, and what of its body comes from the conversation."""
_CALLED = frozenset({"tool_calls", "tool_call", "tool_use"})
"""What servers call the end of a reply that calls a tool."""


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
        extra: Further keys of each request (`{"reasoning_effort": "low"}`); those set here are refused. `None` leaves a
            key out, `seed` and `temperature` too: for servers that refuse them.

    Raises:
        ValueError: An argument that cannot work.
    """

    abilities = Abilities(own_ids=False, logprobs=False, entropies=False, every_control=False, asynchronous=True)

    def __init__(
        self,
        model: str,
        *,
        base_url: str,
        api_key: str | None = None,
        concurrency: int = 8,
        timeout: float = 300.0,
        retries: int = RETRIES,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}: at least 1")
        given = dict(extra or {})
        self._left_out = frozenset(key for key in given if given[key] is None)
        if taken := sorted((OURS | {*CAPS}) & given.keys() - (self._left_out & LEFT_OUT)):
            raise ValueError(f"extra holds {', '.join(taken)}: set by the sampling and by the environment")
        key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
        self.model, self.extra, self.concurrency = model, given, concurrency
        self.tokenizer = ByteTokenizer()
        self.eos_ids = frozenset([self.tokenizer.eos_token_id])
        self.usage = Usage()
        self._client = JsonClient(base_url, timeout=timeout, retries=retries, key=key, key_name=KEY_VARIABLE)
        self._lock = threading.Lock()
        self._served: dict[str, set[str]] = {"model": set(), "system_fingerprint": set()}
        self._cap = CAPS[0]
        self._outage = Outage()

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One reply per request, several requests at a time. Caps are in the server's tokens.

        A cap that does not fit into the context any more is halved until the server takes it, down to `LEAST_REPLY`.

        Raises:
            PolicyError: The server is not there for anyone (`agents.policies.remote.Outage`).
            SomeFailed: It failed some, or some conversations cannot go on.
            ValueError: A request wants what no chat endpoint can: forced ids, stop texts, or a prompt without messages.
        """
        asked = [self._asked(request) for request in requests]
        return together(partial(self._reply, sampling), asked, self.concurrency, self._outage)

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> RemoteStream[_Asked]:
        """Begin to take requests (`agents.policy.Streaming`); up to `concurrency` are under way at a time."""
        return RemoteStream(self._asked, partial(self._reply, sampling), self.concurrency, self._outage, wake)

    def label(self, sampling: Sampling) -> str:
        """The decode settings for tables, with what is added to each request and what is left out."""
        label = sampling.label()
        if "temperature" in self._left_out:
            label = f"temperature of the server's own, {sampling.caps}"
        return f"{label}, {json.dumps(self.extra, sort_keys=True)}" if self.extra else label

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
            "seeds": (
                "not sent: replies are drawn with the server's own"
                if "seed" in self._left_out
                else "sent; an endpoint need not honour them"
            ),
            "usage": asdict(self.usage),
        }

    # -- one request --------------------------------------------------------------------------------------------------

    def _asked(self, request: Request) -> _Asked:
        """A request with its messages, and the tools that they may call."""
        if request.control is not None:
            raise ValueError(f"{self.model}: a chat endpoint cannot be told to put ids into a reply: use no control")
        if request.stops:
            raise ValueError(f"{self.model}: stop texts belong to prompts of running text; a chat endpoint has none")
        messages = messages_of(request.prompt_ids, self.tokenizer)
        if messages[0]["role"] != TOOLS_TURN:
            return request, {"messages": messages}
        return request, {"messages": with_calls(messages[1:]), "tools": json.loads(messages[0]["content"])}

    def _reply(self, sampling: Sampling, asked: _Asked, flight: Flight) -> Completion:
        request, conversation = asked
        body = {
            **self.extra,
            **conversation,
            "model": self.model,
            "temperature": sampling.temperature,
            "seed": request.seed,
        }
        body = {key: value for key, value in body.items() if key not in self._left_out}
        completion = None
        cap = wanted = request.cap(sampling)
        while completion is None:
            try:
                completion = self._completion(self._post(body, cap, flight), tools="tools" in conversation)
            except HttpError as error:
                if _too_long(error) and cap > LEAST_REPLY:
                    cap = max(LEAST_REPLY, cap // 2)  # few servers say how much room is left: half as much may fit
                    continue
                if own := _of_this_prompt(error, request):
                    raise own from error
                if hint := self._refused_key(error):
                    raise PolicyError(f"{error}; {hint}") from error
                raise
        completion.max_tokens = None if cap == wanted else cap
        return completion

    def _refused_key(self, error: HttpError) -> str | None:
        """What to do where the server refuses a key that can be left out."""
        if error.status not in (400, 422):
            return None
        named = next((key for key in sorted(LEFT_OUT - self._left_out) if re.search(rf"\b{key}\b", error.said)), None)
        return named and f"if it refuses the key {named}, leave that out: --request_body '{{\"{named}\": null}}'"

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

    def _completion(self, answer: dict[str, Any], *, tools: bool) -> Completion:
        choice, message = only_choice(self.model, answer)
        notes = self._note(answer, message)
        reason = choice.get("finish_reason")
        said = reason.lower() if isinstance(reason, str) else ""
        if said in FILTERED:
            raise Unanswered(f"{self.model}: the server's content filter withheld the reply")
        called = said in _CALLED or bool(message.get("tool_calls"))
        if called and not tools:
            raise PolicyError(
                f"{self.model}: the server answered with a tool call, and none was offered: its parser took the text "
                "for one. Switch that off, at the server"
            )
        ended = True if said in ("refusal", *_CALLED) else FINISH.get(said)
        if ended is None:
            shown = plain_text(reason) if isinstance(reason, str) else reason
            raise PolicyError(
                f"{self.model}: the reply ended with finish_reason {shown!r}; known are {', '.join(FINISH)}"
            )
        text = self._text(message, notes)
        if said == "refusal":
            notes["refused"] = 1.0
        if text is None and (not ended or "reasoning_chars" in notes):
            text = ""  # it thought, and said nothing
        if called:
            text = written([*self._calls(message)], text or "")
        if text is None:
            raise PolicyError(f"{self.model}: the reply's content is {type(message.get('content')).__name__}, not text")
        return _unknown(reply_ids(text, ended=ended), FinishReason.STOP if ended else FinishReason.LENGTH, notes)

    def _calls(self, message: dict[str, Any]) -> Iterator[Call]:
        """The calls of a reply; what a model wrote for arguments stays as it is where it is no JSON.

        Raises:
            PolicyError: The server sent something else.
        """
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or not calls:
            raise PolicyError(f"{self.model}: the server says that the reply calls a tool, and sent no call")
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            function = function if isinstance(function, dict) else {}
            name, arguments = function.get("name"), function.get("arguments")
            if not isinstance(name, str) or not isinstance(arguments, str | dict | None):
                raise PolicyError(f"{self.model}: the server sent a tool call without a function's name and arguments")
            given = call.get("id")
            told = arguments_of(arguments) if isinstance(arguments, str) else arguments or {}
            yield Call(name, told, given if isinstance(given, str) and given else None)

    def _text(self, message: dict[str, Any], notes: dict[str, float]) -> str | None:
        """What the reply says; reasoning and refusals among its parts are noted.

        Raises:
            PolicyError: A part is neither.
        """
        content = message.get("content")
        if content is None and isinstance(message.get("refusal"), str):
            content = [{"type": "refusal", "refusal": message["refusal"]}]
        if not isinstance(content, list):
            return content if isinstance(content, str) else None
        texts = []
        for part in content:
            kind = part.get("type") if isinstance(part, dict) else None
            if isinstance(part, str):
                texts.append(part)
            elif kind in ("text", "output_text") and isinstance(part.get("text"), str):
                texts.append(part["text"])
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                texts.append(part["refusal"])
                notes["refused"] = 1.0
            elif kind in _THOUGHTS:
                notes["reasoning_chars"] = notes.get("reasoning_chars", 0.0) + _letters(part)
            else:
                shown = plain_text(str(kind)) if isinstance(part, dict) else type(part).__name__
                raise PolicyError(f"{self.model}: the reply's content holds a part that is no text: {shown!r}")
        return "".join(texts) if texts else None

    def _note(self, answer: dict[str, Any], message: dict[str, Any]) -> dict[str, float]:
        """Count the answer; what it says about tokens and hidden reasoning, as notes of the completion."""
        counts = token_counts(answer)
        notes = {key: float(count) for key, count in counts.items()}
        thought = message.get("reasoning_content") or message.get("reasoning")
        if isinstance(thought, str):
            notes["reasoning_chars"] = float(len(thought))
        with self._lock:
            self.usage.replies += 1
            self.usage.without_usage += not counts.keys() >= set(SUMS)
            self.usage.prompt_tokens += counts.get("prompt_tokens", 0)
            self.usage.completion_tokens += counts.get("completion_tokens", 0)
            for name, values in self._served.items():
                if isinstance(answer.get(name), str):
                    values.add(plain_text(answer[name]))
        return notes


def _letters(part: Any) -> int:
    """Characters of a part's texts, which may lie in parts of their own; its signatures and names are none."""
    if isinstance(part, str):
        return len(part)
    if isinstance(part, list):
        return sum(map(_letters, part))
    if not isinstance(part, dict):
        return 0
    return sum(_letters(part.get(key)) for key in ("text", "thinking", "reasoning", "summary"))


def _too_long(error: HttpError) -> bool:
    """Whether a request was refused because prompt and cap together are more than the server takes."""
    if error.status not in _REFUSED or error.code == "content_filter":
        return bool(error.status == 429 and TOO_LARGE.match(error.said))
    return error.code == "context_length_exceeded" or bool(_TOO_LONG.search(error.said))


def _of_this_prompt(error: HttpError, request: Request) -> PolicyError | None:
    """What a refused request says about its prompt; `None` where it says nothing."""
    if error.status in _REFUSED and error.code == "content_filter":
        return Unanswered(f"the server's content filter refuses the prompt: {error.said}")
    if not _too_long(error):
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
