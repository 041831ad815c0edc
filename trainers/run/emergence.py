"""Writes `emergence/*.jsonl` as a run goes: the logs that scripts of retrain and textpolicy read.

The keys are those of `trainers.emergence`, and beside them what a step's tokens show: which were the most surprising
ones, decoded; how many belong to planning phrases; the surprisal of planning and of execution tokens, before any
operator changes it (after it: `credit/post_*` of metrics.jsonl). Tokens that were forced are in none of it.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agents.trajectory import Trajectory
from trainers.credit.batch import NO_TURN, TokenText, padded
from trainers.credit.planning import PhraseDetector, Planning
from trainers.credit.settings import CreditSettings
from trainers.emergence import generation_rows, step_row
from trainers.jsonl import append_line
from trainers.measure import is_graded
from trainers.rollouts.rules import by_place
from trainers.run.record import EMERGENCE

MOST_OF_STEP, MOST_OF_GENERATION = 20, 10
"""Most surprising tokens that a line of each file holds."""
KINDS = {"entropy": "shannon_entropy"}
"""Signals that the reference calls by another name."""


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The tokens of one episode, as `tokens` of its line has them.

    Attributes:
        ids: Of all replies.
        turn_ids: The turn of each; `NO_TURN` where it was forced.
        surprisals: In nats; `None` where the sampler gave no log-probabilities.
    """

    ids: list[int]
    turn_ids: list[int]
    surprisals: list[float] | None

    @classmethod
    def of(cls, episode: Trajectory) -> _Sampled:
        turns = episode.turns
        turn_ids = [NO_TURN if forced else turn.index for turn in turns for forced in turn.forced]
        known = all(turn.logprobs is not None for turn in turns)
        surprisals = [-value for turn in turns for value in turn.logprobs or ()] if known else None
        return cls([number for turn in turns for number in turn.ids], turn_ids, surprisals)

    def most_surprising(self, most: int) -> list[tuple[float, int]]:
        """(surprisal, place), the most surprising first; of equal ones the earlier."""
        found = [
            (value, place)
            for place, value in enumerate(self.surprisals or ())
            if self.turn_ids[place] != NO_TURN
        ]  # fmt: skip
        return heapq.nsmallest(most, found, key=lambda one: (-one[0], one[1]))


class EmergenceLog:
    """Writer of a run's `emergence` folder; `on_episodes=EmergenceLog(...).on_episodes` in a trainer of one's own.

    Args:
        folder: The run's.
        tokenizer: Gives ids their text.
        settings: Say which condition this is, and what planning tokens are.
    """

    def __init__(self, folder: Path, tokenizer: Any, settings: CreditSettings) -> None:
        self._steps, self._generations = (folder / name for name in EMERGENCE)
        self._tokenizer = tokenizer
        self._planning = Planning(settings.planning, settings.planning_window)
        detector = self._planning.detector
        self._phrases = detector.phrases if isinstance(detector, PhraseDetector) else ()
        operators = settings.token_operators.replace(",", "_")
        self._condition = f"{settings.episode_operator}+{operators}~turn_grouping={settings.turn_grouping}"
        self._kind = KINDS.get(settings.token_signal, str(settings.token_signal))
        self._texts: dict[int, str] = {}

    def on_episodes(self, step: int, result: Any) -> None:
        """As the trainer calls it: `step` optimizer steps are taken."""
        self.write(step + 1, result.trajectories)

    def write(self, step: int, episodes: Sequence[Trajectory]) -> None:
        """A line of steps.jsonl for the episodes of one generation, and one of generations.jsonl for each with a grade.

        Args:
            step: The optimizer step that trains on them first, counted from 1.
            episodes: Attempts at a task side by side.
        """
        self._steps.parent.mkdir(parents=True, exist_ok=True)
        graded = [episode for episode in episodes if is_graded(episode)]
        tokens = [_Sampled.of(episode) for episode in graded]
        masks = self._planning_masks(tokens)
        row = step_row(step, episodes, condition=self._condition, uncertainty_kind=self._kind)
        row |= {"planning_token_ratio": _ratio(tokens, masks)} | _surprisal(tokens, masks)
        row["top_surprisal_tokens"] = self._top_of_step(graded, tokens)
        append_line(self._steps, row)
        shown = {id(e): self._of_generation(e, t, m) for e, t, m in zip(graded, tokens, masks, strict=True)}
        for group in by_place(episodes):
            prompt = self._tokenizer.decode(group[0].prompt_ids)
            of_attempt = {episode.attempt: episode for episode in group}
            for line in generation_rows(step, group, prompt):
                append_line(self._generations, line | shown[id(of_attempt[line["sample_index"]])])

    def _of_generation(self, episode: Trajectory, tokens: _Sampled, mask: np.ndarray) -> dict[str, Any]:
        said = " ".join(turn.reply.lower() for turn in episode.turns)
        return {
            "top_surprisal_tokens": [self._entry(tokens, *one) for one in tokens.most_surprising(MOST_OF_GENERATION)],
            "planning_token_ratio": _ratio([tokens], [mask]),
            "planning_phrases_found": [p for p in self._phrases if re.search(rf"\b{re.escape(p)}\b", said)],
        }

    def _top_of_step(self, graded: Sequence[Trajectory], tokens: Sequence[_Sampled]) -> list[dict[str, Any]]:
        found = [
            (-value, number, place)
            for number, of_episode in enumerate(tokens)
            for value, place in of_episode.most_surprising(MOST_OF_STEP)
        ]
        return [
            self._entry(tokens[number], -value, place)
            | {"task_id": graded[number].task_id, "sample_index": graded[number].attempt}
            for value, number, place in sorted(found)[:MOST_OF_STEP]
        ]

    def _entry(self, tokens: _Sampled, value: float, place: int) -> dict[str, Any]:
        return {"pos": place, "surprisal": round(value, 4), "token": self._text(tokens.ids[place])}

    def _text(self, number: int) -> str:
        if number not in self._texts:
            self._texts[number] = self._tokenizer.decode([number])
        return self._texts[number]

    def _planning_masks(self, sampled: Sequence[_Sampled]) -> list[np.ndarray]:
        """Where each episode's tokens belong to planning phrases."""
        if not sampled:
            return []
        turn_ids = padded([tokens.turn_ids for tokens in sampled], NO_TURN)
        ids = padded([tokens.ids for tokens in sampled], 0)
        texts = {number: self._text(number) for number in np.unique(ids[turn_ids != NO_TURN]).tolist()}
        mask = self._planning.mask(TokenText(ids, texts), turn_ids)
        return [row[: len(tokens.ids)] for row, tokens in zip(mask, sampled, strict=True)]


def _ratio(sampled: Iterable[_Sampled], masks: Sequence[np.ndarray]) -> float | None:
    """Planning tokens of all sampled ones; `None` where nothing was sampled."""
    count = sum(number != NO_TURN for tokens in sampled for number in tokens.turn_ids)
    return sum(int(mask.sum()) for mask in masks) / count if count else None


def _surprisal(sampled: Sequence[_Sampled], masks: Sequence[np.ndarray]) -> dict[str, float | None]:
    """Mean and variance over execution and planning tokens; `None` without such tokens or their log-probabilities."""
    known = [np.asarray(tokens.surprisals) for tokens in sampled if tokens.surprisals is not None]
    if len(known) < len(sampled):
        known, masks, sampled = [], [], []
    on = [np.asarray(tokens.turn_ids) != NO_TURN for tokens in sampled]
    out: dict[str, float | None] = {}
    for name, wanted in (("exec", False), ("plan", True)):
        parts = [v[there & (mask == wanted)] for v, there, mask in zip(known, on, masks, strict=True)]
        values = np.concatenate(parts) if parts else np.zeros(0)
        out[f"{name}_surprisal_mean"] = float(values.mean()) if values.size else None
        out[f"{name}_surprisal_var"] = float(values.var()) if values.size else None
    return out
