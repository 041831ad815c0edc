"""One completion request to vLLM and its answer: what is asked, and the checks without which nothing is believed."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agents.policy import FinishReason, PolicyError

COMPLETIONS = "/v1/completions"
_SEEDS = 2**63 - 1
"""vLLM takes signed 64 bits, and -1 means none."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What one request brought: the reply, or its next part.

    Attributes:
        ids: As sampled, the end-of-turn id included.
        logprobs: Of each id, as the server reports them.
        tops: The log-probabilities of the likeliest ids of each position, falling; `None` where none were asked for.
        finish: Why it ended.
    """

    ids: list[int]
    logprobs: list[float]
    tops: list[list[float]] | None
    finish: FinishReason


def question(
    model: str,
    prompt: Sequence[int] | str,
    *,
    seed: int,
    cap: int,
    temperature: float,
    top: int,
    eos_ids: Collection[int] = (),
    stops: Sequence[str] = (),
) -> dict[str, Any]:
    """The body of a request.

    Every sampling setting is named: what a request leaves out, the server takes from the model's generation_config.
    `ignore_eos` with `stop_token_ids` ends the reply at our ids and no others.
    """
    return {
        "model": model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "add_special_tokens": False,
        "max_tokens": cap,
        "min_tokens": 0,
        "n": 1,
        "seed": seed & _SEEDS,
        "temperature": temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "watermarking": False,
        "ignore_eos": True,
        "stop_token_ids": sorted(eos_ids),
        "stop": list(stops),
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "logprobs": top,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


def answer(said: dict[str, Any], asked: dict[str, Any], where: str) -> Piece:
    """Read what the server answered to `asked`.

    Raises:
        PolicyError: It is not what was asked for. Nothing of it may be used then.
    """
    choice = _choice(said, where)
    ids, sent, prompt = choice.get("token_ids"), choice.get("prompt_token_ids"), asked["prompt"]
    if ids is None or sent is None:
        raise PolicyError(f"{where} gave no token ids: it is no vLLM server, or one too old for return_token_ids")
    if sent != prompt and not isinstance(prompt, str):
        raise PolicyError(
            f"{where} ran another prompt than it was sent: {len(sent)} ids for {len(prompt)}. "
            "Something between here and the server, or a setting of it, rewrites prompts"
        )
    if not ids:
        raise PolicyError(f"{where} gave an empty reply (finish_reason {choice.get('finish_reason')!r})")
    logprobs, tops = _logprobs(choice.get("logprobs") or {}, len(ids), asked["logprobs"], where)
    return Piece(ids, logprobs, tops, _finish(choice, ids, asked, where))


def prompt_ids(said: dict[str, Any], where: str) -> list[int]:
    """The ids that the server made of a prompt that was text.

    Raises:
        PolicyError: The answer does not say.
    """
    sent = _choice(said, where).get("prompt_token_ids")
    if sent is None:
        raise PolicyError(f"{where} gave no token ids: it is no vLLM server, or one too old for return_token_ids")
    return list(sent)


def _choice(said: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        (choice,) = said["choices"]
        return dict(choice)
    except (ValueError, KeyError, TypeError) as error:
        raise PolicyError(f"{where} did not answer with one completion: {str(said)[:200]!r}") from error


def _logprobs(said: dict[str, Any], count: int, top: int, where: str) -> tuple[list[float], list[list[float]] | None]:
    """Logprobs of the ids and of the likeliest ones; beyond `top` stands the sampled id, which may not be one."""
    own = said.get("token_logprobs") or []
    if len(own) != count or not all(isinstance(value, int | float) and math.isfinite(value) for value in own):
        raise PolicyError(f"{where} gave {len(own)} log-probabilities for {count} ids, or some that are no numbers")
    if top == 0:
        return [float(value) for value in own], None
    listed = said.get("top_logprobs") or []
    tops = [sorted(entry.values(), reverse=True)[:top] for entry in listed if entry]
    if len(tops) != count:
        raise PolicyError(f"{where} gave the likeliest ids of {len(tops)} positions for {count} ids")
    return [float(value) for value in own], tops


def _finish(choice: dict[str, Any], ids: list[int], asked: dict[str, Any], where: str) -> FinishReason:
    reason, stop = choice.get("finish_reason"), choice.get("stop_reason")
    if reason == "stop" and isinstance(stop, str) and stop in asked["stop"]:
        return FinishReason.STOP_TEXT
    if reason == "stop" and ids[-1] in asked["stop_token_ids"]:
        return FinishReason.STOP
    if reason == "length" and len(ids) == asked["max_tokens"]:
        return FinishReason.LENGTH
    hint = f": if id {ids[-1]} ends a turn of this model, add it to eos_ids" if reason == "stop" else ""
    raise PolicyError(
        f"{where} ended a reply after {len(ids)} of {asked['max_tokens']} ids with finish_reason {reason!r} and "
        f"stop_reason {stop!r}{hint}"
    )
