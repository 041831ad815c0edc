"""What the two stock loops count, so that they can be compared with the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.policy import Sampling


@dataclass(slots=True)
class Played:
    """What a loop played.

    Attributes:
        episodes: Episodes that came to their end.
        passed: Those that passed.
        turns: Replies.
        tokens: Sampled ids.
        seconds: Wall time of all of it; `model_seconds` of it inside `generate`.
    """

    episodes: int = 0
    passed: int = 0
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0


def generate_settings(sampling: Sampling, eos_ids: frozenset[int], pad: int) -> dict[str, Any]:
    """Arguments of `generate` for plain sampling from the full distribution until a turn ends."""
    return {
        "do_sample": True,
        "temperature": sampling.temperature,
        "top_k": 0,
        "top_p": 1.0,
        "eos_token_id": sorted(eos_ids),
        "pad_token_id": pad,
    }


def until_end(ids: list[int], eos_ids: frozenset[int]) -> list[int]:
    """A row of `generate` without the padding behind its end-of-turn id."""
    end = next((at + 1 for at, token in enumerate(ids) if token in eos_ids), len(ids))
    return ids[:end]
