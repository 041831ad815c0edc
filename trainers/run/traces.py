"""Episodes of training as traces of trackio: each reply and each observation is a message of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agents.exports.texts import facts, is_error, messages, outcome
from agents.rollout import RolloutResult
from agents.trajectory import Trajectory

TRACKIO = "trackio"
KEY = "episodes"
"""The name that the traces of a step stand under."""


def trace(step: int, episode: Trajectory, prompt: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Messages and metadata of an episode's trace.

    The environment's messages have the role `user`, as in the conversation that the policy had. The facts of each turn
    (exit code, signal, tokens) are metadata.

    Args:
        step: The optimizer step that trains on it first, counted from 1.
        episode: Without a grade it has no `passed`, `rate` or `reward` here, and the status `error`.
        prompt: What the policy saw first, as text.
    """
    said = [{"role": one.role, "content": one.content} for one in messages(episode, prompt)]
    known = {key: value for key, value in outcome(episode).items() if value not in (None, "", [], {})}
    turns = [facts(turn) for turn in episode.turns]  # trackio drops what else a message holds
    return said, {"step": step, "status": "error" if is_error(episode) else "ok", **known, "turns": turns}


class Traces:
    """Sends the episodes of each step to the run of trackio that transformers has opened.

    Args:
        tokenizer: Gives the ids of prompts their text.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """As the trainer calls it: `step` optimizer steps are taken."""
        self.write(step + 1, result.trajectories)

    def write(self, step: int, episodes: Sequence[Trajectory]) -> None:
        """All episodes of one generation, under `KEY`."""
        import trackio  # the user's own: an option of transformers, checked before the run starts

        if episodes:
            prompts = [self._tokenizer.decode(episode.prompt_ids) for episode in episodes]
            made = [trace(step, episode, prompt) for episode, prompt in zip(episodes, prompts, strict=True)]
            # trackio counts what it is sent: figures of this step, which follow, then stand at its number.
            trackio.log({KEY: [trackio.Trace(said, metadata=known) for said, known in made]}, step=step - 1)
