"""Episodes as messages, with what their records do not say in words: the first prompt, the intent, the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agents.commands import recorded_model, run_of
from agents.policy import FinishReason
from agents.trajectory import Trajectory, Turn
from agents.view.collect import tokenizers_near
from agents.view.pack import Tokenizers, safe
from agents.view.wanted import Wanted
from envs.episode import StopReason
from tasks.model import LONE_SURROGATES

UNKNOWN = "unknown"
"""Stands where a format needs a name that the records do not have."""


class Texts:
    """What stands beside the episodes of one file.

    Args:
        file: Of episodes; the folder of its run says which model played and where the tasks are.
        tokenizers: Ids as text.
        wanted: Finds the tasks.

    Attributes:
        name: Of the file, without its suffix.
        without_prompt: Episodes so far whose first prompt is not known as text.
    """

    def __init__(self, file: Path, tokenizers: Tokenizers, wanted: Wanted) -> None:
        self.name, self.without_prompt = file.stem, 0
        self._file, self._run = file, run_of(file)
        self._tokenizers, self._near, self._wanted = tokenizers, tokenizers_near(self._run), wanted
        self._intents: dict[tuple[str, str], str | None] = {}

    @cached_property
    def model(self) -> str:
        """That played, as its run names it; `UNKNOWN` where none does. Raises what `recorded_model` does."""
        return recorded_model(self._file) or UNKNOWN

    def intent(self, episode: Trajectory) -> str | None:
        """What the task asks for; `None` where it is not at hand, or has changed since."""
        key = episode.task_id, episode.task_hash
        if key not in self._intents:
            found = dict(self._wanted.of(self._run or self._file.parent, self._file, [key]))
            self._intents[key] = found[key[1]]["intent"] if key[1] in found else None
        return self._intents[key]

    def prompt(self, episode: Trajectory) -> str:
        """What the model saw before its first reply, as its template wrote it; otherwise the intent, or a remark."""
        pieces = self._tokenizers.of(episode, self._near) if episode.prompt_ids else None
        if pieces is not None:
            return pieces.text(episode.prompt_ids)
        recorded = episode.notes.get("prompt")  # some foreign records have it
        if isinstance(recorded, str):
            return recorded
        self.without_prompt += 1
        return self.intent(episode) or f"(the text of the prompt is not known; task {episode.task_id})"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of an episode.

    Attributes:
        role: `user` for the prompt and for the environment, `assistant` for the policy.
        content: Its text, in characters that UTF-8 has.
        turn: The turn that it is the reply of; `None` for the others.
    """

    role: str
    content: str
    turn: Turn | None = None


def messages(episode: Trajectory, prompt: str) -> Iterator[Message]:
    """The prompt, then each reply, and what the environment answered to it where it did. Observations are whole."""
    yield Message("user", plain(prompt))
    for turn in episode.turns:
        yield Message("assistant", plain(turn.reply), turn)
        if turn.observation:
            yield Message("user", plain(turn.observation))


def plain(value: Any) -> Any:
    """`value` as any reader of JSON can hold it: see `safe`; halves of surrogate pairs become escapes, too."""
    if isinstance(value, dict):
        return {plain(str(key)): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, str):
        return str(value).encode("utf-8", LONE_SURROGATES).decode()
    return safe(value)


def seed_text(seed: int | None) -> str | None:
    """Seeds have 63 bits, and numbers of JavaScript 53: they travel as text."""
    return None if seed is None else str(seed)


def is_error(episode: Trajectory) -> bool:
    """It was broken by the machinery: it has no grade and no reward, and enters no mean."""
    return episode.stop_reason == StopReason.INFRASTRUCTURE


def facts(turn: Turn) -> dict[str, Any]:
    """What is known of a turn beside its texts and lists of ids; keys without a value are left out."""
    found = {
        "action": turn.action or None,
        "command": turn.command,
        "exit_code": turn.exit_code,
        "timed_out": turn.timed_out,
        "signal": turn.signal,
        "finish": None if turn.finish is None else turn.finish.value,
        "seed": seed_text(turn.seed),
        "tokens": len(turn.ids) or None,
        "max_tokens": turn.max_tokens,
        "uncertainty": turn.uncertainty,
        "uncertainty_bounds": turn.uncertainty_bounds,
        "rejected_candidates": len(turn.candidates) or None,
        "model_seconds": turn.model_seconds,
        "environment_seconds": turn.sandbox_seconds,
        "notes": turn.notes or None,
    }
    return {key: plain(value) for key, value in found.items() if value is not None}


def outcome(episode: Trajectory) -> dict[str, Any]:
    """What is known of an episode beside its turns: who it is, how it ended, its grade, its setting."""
    return {
        "task_id": plain(episode.task_id),
        "task_hash": episode.task_hash,
        "family": plain(episode.family),
        "attempt": episode.attempt,
        "seed": seed_text(episode.seed),
        "stop_reason": episode.stop_reason,
        "error": plain(episode.error),
        "passed": episode.passed,
        "rate": episode.rate,
        "reward": episode.reward,
        "assertions": plain(episode.assertions),
        "sampling": plain(episode.sampling),
        "environment": plain(episode.environment),
        "notes": plain(episode.notes),
        "tokenizer": episode.tokenizer,
        "source": episode.source,
    }


def was_cut(turn: Turn) -> bool:
    """The reply reached its cap."""
    return turn.finish is FinishReason.LENGTH
