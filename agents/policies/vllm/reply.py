"""One reply of a vLLM server: the request, its checks, pieces between forced ids."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from agents.policy import Completion, FinishReason, PlannedControl, PolicyError, Request
from agents.seeds import derive_seed
from agents.uncertainty import entropy_bounds

# -- One completion request to vLLM and its answer: what is asked, and the checks without which nothing is believed ---

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
    seed: int | None,
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
    body = {
        "model": model,
        "prompt": prompt if isinstance(prompt, str) else list(prompt),
        "add_special_tokens": False,
        "max_tokens": cap,
        "min_tokens": 0,
        "n": 1,
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
    return body if seed is None else {**body, "seed": seed & _SEEDS}


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


# -- A reply while it grows, piece by piece: where a control forces an id, the rest of the piece is thrown away -------
# A server cannot ask a control at each position. But a `PlannedControl` looks at ids alone, so it is asked afterwards,
# position by position: what was sampled before the first forced id was sampled as it should be, and what comes after
# it is sampled anew. The horizon only saves sampling ids that are thrown away.


class Draft:
    """One reply.

    Args:
        request: What was asked for.
        cap: Most ids of the reply.
        eos_ids: Ids that end it.
        decode: Text of ids, control tokens included.
        vocabulary: At least as many ids as the model has, where the likeliest ones are known at temperature 1; else
            `None`, and nothing is said about uncertainty.

    Attributes:
        finish: Why it has ended; `None` while it has not.

    Raises:
        PolicyError: No server can serve the request's control.
    """

    def __init__(
        self,
        request: Request,
        cap: int,
        eos_ids: frozenset[int],
        decode: Callable[[Sequence[int]], str],
        vocabulary: int | None,
    ) -> None:
        self.finish: FinishReason | None = None
        self._request, self._cap, self._eos_ids, self._decode = request, cap, eos_ids, decode
        self._vocabulary = vocabulary
        self._control = _planned(request)
        self._ids: list[int] = []
        self._logprobs: list[float] = []
        self._forced: list[bool] = []
        self._tops: list[list[float]] = []

    @property
    def prompt(self) -> list[int]:
        """What the next piece follows."""
        return [*self._request.prompt_ids, *self._ids]

    @property
    def seed(self) -> int:
        """Of the next piece: the request's own for the first."""
        return derive_seed(self._request.seed, len(self._ids)) if self._ids else self._request.seed

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the reply."""
        return self._request.stops

    def wanted(self) -> int:
        """How many ids to sample next."""
        room = self._cap - len(self._ids)
        free = None if self._control is None else self._control.horizon(self._ids)
        # One more than is certainly free: where nothing is forced it counts, and where something is, it has told what
        # the distribution of that position looks like.
        return room if free is None else min(room, free + 1)

    def take(self, piece: Piece) -> None:
        """Add a piece, up to the first id that the control forces instead."""
        for at, token in enumerate(piece.ids):
            put_in = None if self._control is None else self._control.force(self._ids, math.nan, math.nan)
            self._ids.append(token if put_in is None else put_in)
            self._logprobs.append(piece.logprobs[at] if put_in is None else 0.0)
            self._forced.append(put_in is not None)
            if piece.tops is not None:
                self._tops.append(piece.tops[at])
            self.finish = self._ended(piece, at, put_in is not None)
            if self.finish is not None or put_in is not None:
                return

    def completion(self) -> Completion:
        """The reply, once it has ended."""
        assert self.finish is not None
        bounds = likeliest = None
        if self._vocabulary is not None and self._tops:
            found = [entropy_bounds(top, self._vocabulary) for top in self._tops]
            bounds = [(bound.lower, bound.upper) for bound in found if bound is not None]
            likeliest = [top[0] for top in self._tops]
        return Completion(self._ids, self._logprobs, None, likeliest, self._forced, self.finish, entropy_bounds=bounds)

    def _ended(self, piece: Piece, at: int, forced: bool) -> FinishReason | None:
        if self._ids[-1] in self._eos_ids:
            return FinishReason.STOP
        if piece.finish is FinishReason.STOP_TEXT and at == len(piece.ids) - 1 and not forced:
            return FinishReason.STOP_TEXT
        # The server looked for stops in this piece alone; with a control the reply has others, and forced ids.
        if self._control is not None and self._request.stops:
            text = self._decode(self._ids)
            if any(stop in text for stop in self._request.stops):
                return FinishReason.STOP_TEXT
        return FinishReason.LENGTH if len(self._ids) == self._cap else None


def _planned(request: Request) -> PlannedControl | None:
    """The request's control, if it is one that can be asked afterwards."""
    control, name = request.control, type(request.control).__name__
    if control is None:
        return None
    if not isinstance(control, PlannedControl):
        raise PolicyError(
            f"request {request.conversation}: {name} must be asked at every position, which a server cannot do; it "
            "would have to say ahead how far it leaves the reply alone (agents.policy.PlannedControl)"
        )
    if control.reads_distribution:
        raise PolicyError(
            f"request {request.conversation}: {name} reads the full distribution of each position, which a server "
            "does not send; sample in this process for that"
        )
    return control
