"""Retrain's `emergence/generations.jsonl`, one reply a line, and the variant of textpolicy.

What the format lost before we read it:

* `prompt` is cut at 200 characters and `completion` at 500 (noted as `text_cut` where it has that length), and neither
  a task nor a group is named: an episode gets the id `retrain:` and a hash of its prompt, and counts its attempts
  within a step. Two prompts that begin alike look the same.
* There are no ids (textpolicy has those of the reply, with log-probabilities and entropies, but none of the prompt), no
  stop reason and no grade. Nothing can be trained on or replayed; rewards and lengths can be looked at.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

from agents.jsonl import check_lengths
from agents.records.shape import Shape
from agents.trajectory import Trajectory, Turn

RETRAIN = "retrain"
COMPLETION_CHARACTERS = 500


class _Generation(Shape):
    step: int
    prompt: str
    completion: str
    reward: float | None
    num_tokens: int | None = None
    tokens: list[int] | None = None
    logprobs: list[float] | None = None
    entropy_per_token: list[float] | None = None


class Reader:
    """Reads the records of one file in order; it counts the attempts."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, str]] = Counter()

    def read(self, record: dict[str, Any]) -> list[Trajectory]:
        """The episode of one record.

        Raises:
            RecordError: A key is missing or has a value of the wrong type; names the key.
        """
        given = _Generation.of(record)
        ids = given.tokens or []
        lists = {"logprobs": given.logprobs, "entropy_per_token": given.entropy_per_token}
        if given.tokens is not None:
            check_lengths("", lists, len(ids), "tokens")
        task = f"{RETRAIN}:{hashlib.sha256(given.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
        attempt = self._seen[given.step, task]
        self._seen[given.step, task] += 1
        turn = Turn(
            0,
            [],
            ids,
            given.logprobs if ids else None,
            given.entropy_per_token if ids else None,
            [False] * len(ids),
            None,
            given.completion,
        )
        if len(given.completion) >= COMPLETION_CHARACTERS:
            turn.notes["text_cut"] = 1.0
        if given.num_tokens is not None:
            turn.notes["num_tokens"] = float(given.num_tokens)
        episode = Trajectory(task, "", attempt, None, [], [turn], reward=given.reward, source=RETRAIN)
        episode.notes = {"step": given.step, "prompt": given.prompt, **given.other}
        return [episode]
