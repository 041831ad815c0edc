"""What a vLLM server is, found out by asking it: which model, how long a context, whose tokenizer, which logprobs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agents.policies.http import HttpError, JsonClient
from agents.policies.vllm.reply import COMPLETIONS, answer, prompt_ids, question
from agents.policy import PolicyError

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
    said = client.post(COMPLETIONS, question(model, text, seed=0, cap=1, temperature=0.0, top=0))
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
        asked = question(model, ids, seed=0, cap=1, temperature=temperature, top=max(2, top))
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
