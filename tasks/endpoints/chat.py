"""A model behind `/chat/completions`, asked with text: what it replied, what that took, and what it cost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.endpoints import PolicyError
from tasks.endpoints.http import RETRIES, HttpError, JsonClient, plain_text

KEY_VARIABLE = "OPENAI_API_KEY"
FINISH = {
    **dict.fromkeys(("stop", "end_turn", "eos", "eos_token", "stop_sequence", "stop_token", "complete"), True),
    **dict.fromkeys(("length", "max_tokens", "max_length", "max_output_tokens", "model_length"), False),
    **dict.fromkeys(("model_context_window_exceeded", "limit"), False),
}
"""What servers call the two ends of a reply (in any case of letters): whether the model ended it, or a cap cut it."""
FILTERED = frozenset(
    {"content_filter", "safety", "sensitive", "recitation", "blocklist", "prohibited_content", "spii", "error_toxic"}
)
"""What they call a reply that was withheld."""
DETAILS = (
    ("cached_tokens", "prompt_tokens_details", "cached_tokens"),
    ("cached_tokens", "prompt_cache_hit_tokens", None),
    ("reasoning_tokens", "completion_tokens_details", "reasoning_tokens"),
)
"""Note, key of the usage, and key inside it: what some servers tell beside the two sums, which hold them."""


def _details(usage: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yield what a usage tells beside the two sums: a name of `DETAILS`, and tokens."""
    for note, outer, inner in DETAILS:
        value = usage.get(outer)
        value = value.get(inner) if inner is not None and isinstance(value, dict) else value
        if isinstance(value, int) and not isinstance(value, bool):
            yield note, value


def only_choice(model: str, answer: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The one choice of a chat completion, and its message.

    Raises:
        PolicyError: There is another number of choices, or no message in it.
    """
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1:
        raise PolicyError(
            f"{model}: expected an answer with one choice, got keys {sorted(map(plain_text, answer))[:8]}"
        )
    message = choices[0].get("message") if isinstance(choices[0], dict) else None
    if not isinstance(message, dict):
        raise PolicyError(f"{model}: the answer's choice holds no message")
    return choices[0], message


SUMS = ("prompt_tokens", "completion_tokens")


def token_counts(answer: Mapping[str, Any]) -> dict[str, int]:
    """What a completion says of its tokens: the two `SUMS`, names of `DETAILS`; nothing of what it leaves out."""
    usage = answer.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    return {key: usage[key] for key in SUMS if isinstance(usage.get(key), int)} | dict(_details(usage))


# -- What tokens cost -------------------------------------------------------------------------------------------------

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Of a million tokens, in any currency; `cached` of prompt tokens that the server had already."""

    prompt: float
    completion: float
    cached: float | None = None

    def cost(self, prompt: int, completion: int, cached: int = 0) -> float:
        """What tokens cost; those of `cached` are among those of the prompt."""
        cached = cached if self.cached is not None else 0
        spent = (prompt - cached) * self.prompt + completion * self.completion
        return (spent + cached * (self.cached or 0.0)) / MILLION


def read_price(values: Sequence[float] | None) -> Price | None:
    """`--price PROMPT COMPLETION [CACHED]`; `None` without it.

    Raises:
        ValueError: There are other numbers than two or three, or one is negative.
    """
    if values is None:
        return None
    if len(values) not in (2, 3) or not all(0 <= value < float("inf") for value in values):
        raise ValueError("--price takes two or three numbers of 0 or more: PROMPT COMPLETION [CACHED]")
    return Price(*values)


def read_body(text: str | None) -> dict[str, Any]:
    """`--request_body` as keys of a request; empty without one.

    Raises:
        ValueError: It is no JSON object.
    """
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"--request_body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ValueError('--request_body is no JSON object, as \'{"reasoning_effort": "low"}\' is')
    return body


# -- Asking -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reply:
    """What a model said to one message.

    Attributes:
        text: Its words, without hidden reasoning and without the key of the endpoint, should a server repeat that.
        problem: Why the words are not a whole reply (cut at its cap, withheld by a filter); empty for a whole one.
        prompt_tokens: As the server counts; `None` where it does not. The others likewise.
        completion_tokens: With hidden reasoning.
        cached_tokens: Of the prompt.
    """

    text: str
    problem: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class ChatModel:
    """A model that answers single messages. Threads may share it.

    Args:
        model: Its name at the endpoint.
        base_url: Address up to and with the version (`https://api.openai.com/v1`).
        body: Further keys of each request, such as `temperature` and `max_tokens`; those that are `None` are left out.
        api_key: Default: the environment's `OPENAI_API_KEY`; servers without keys need none.
        timeout: Seconds without a sign of the server after which an attempt fails.
        retries: Attempts after the first.

    Attributes:
        body: Keys of each request, beside the message and its seed.

    Raises:
        ValueError: The address or the key cannot be used.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        body: Mapping[str, Any] | None = None,
        api_key: str | None = None,
        timeout: float = 300.0,
        retries: int = RETRIES,
    ) -> None:
        key = os.environ.get(KEY_VARIABLE) if api_key is None else api_key
        self.model = model
        self.body = {"model": model, **(body or {})}
        self._client = JsonClient(base_url, timeout=timeout, retries=retries, key=key, key_name=KEY_VARIABLE)

    @property
    def base_url(self) -> str:
        """Address, as it stands in records."""
        return self._client.base_url

    def ask(self, message: str, seed: int) -> Reply:
        """Send one message of a user.

        Raises:
            PolicyError: The endpoint failed, or its answer is no chat completion.
        """
        body = {"seed": seed, **self.body, "messages": [{"role": "user", "content": message}]}
        try:
            answer = self._client.post("chat/completions", {k: v for k, v in body.items() if v is not None})
        except HttpError as error:
            if error.code == "content_filter":
                return Reply("", f"withheld by the server's filter: {error.said}")
            raise
        return self._read(answer)

    def close(self) -> None:
        """Close the connections; calls under way end. Idempotent."""
        self._client.close()

    def _read(self, answer: Mapping[str, Any]) -> Reply:
        choice, message = only_choice(self.model, answer)
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"]
        text = plain_text("".join(part for part in texts if isinstance(part, str)))
        reason = str(choice.get("finish_reason")).lower()
        problem = "" if FINISH.get(reason) else "cut at its cap" if reason in FINISH else f"ended with {reason[:40]!r}"
        problem = "withheld by the server's filter" if reason in FILTERED else problem
        counts = token_counts(answer)
        told = [counts.get(name) for name in (*SUMS, "cached_tokens")]
        return Reply(self._client.hidden(text), self._client.hidden(problem), *told)
