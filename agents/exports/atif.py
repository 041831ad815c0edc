"""Episodes as trajectories of ATIF, the Agent Trajectory Interchange Format of Harbor: a JSON file for each.

https://www.harborframework.com/docs/agents/trajectory-format
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

from agents.exports.texts import UNKNOWN, Texts, facts, outcome, plain
from agents.trajectory import Trajectory, Turn

VERSION = "ATIF-v1.7"
SHELL = "bash"
"""The tool that a command is a call of."""


def trajectories(episodes: Iterable[Trajectory], texts: Texts) -> Iterator[dict[str, Any]]:
    """A trajectory for each episode. The prompt is a step of the user, each turn with its observation one of the agent.

    A command is a call of the tool `bash`. Ids and log-probabilities are metrics of the step; grade, setting and seeds
    (as text) are under `extra`.
    """
    for place, episode in enumerate(episodes):
        agent = {"name": "turngym", "version": UNKNOWN}
        if texts.model != UNKNOWN:
            agent["model_name"] = plain(texts.model)
        with_ids = bool(episode.prompt_ids) and not episode.text_only
        prompts = episode.prompts() if with_ids else [None] * len(episode.turns)
        steps: list[dict[str, Any]] = [{"step_id": 1, "source": "user", "message": plain(texts.prompt(episode))}]
        steps += [_step(turn, prompt) for turn, prompt in zip(episode.turns, prompts, strict=True)]
        yield {
            "schema_version": VERSION,
            "session_id": plain(texts.name),
            "trajectory_id": f"{plain(texts.name)}-{place}",
            "agent": agent,
            "steps": steps,
            "final_metrics": _totals(episode, prompts, len(steps)),
            "extra": {key: value for key, value in outcome(episode).items() if value not in (None, "", [], {})},
        }


def file_name(place: int, trajectory: dict[str, Any]) -> str:
    """By the number of the episode in its file, which `agents show --episode` takes."""
    return f"trajectory_{place:06d}.json"


def _step(turn: Turn, prompt: list[int] | None) -> dict[str, Any]:
    step: dict[str, Any] = {
        "step_id": turn.index + 2,
        "source": "agent",
        "message": plain(turn.reply),
        "extra": {key: value for key, value in facts(turn).items() if key != "command"},
    }
    result: dict[str, Any] = {"content": plain(turn.observation)}
    if turn.command is not None:
        call = f"call_{turn.index}"
        arguments = {"command": plain(turn.command)}
        step["tool_calls"] = [{"tool_call_id": call, "function_name": SHELL, "arguments": arguments}]
        result["source_call_id"] = call
    if turn.command is not None or turn.observation:
        step["observation"] = {"results": [result]}
    if turn.ids:
        step["metrics"] = _metrics(turn, prompt)
    return step


def _metrics(turn: Turn, prompt: list[int] | None) -> dict[str, Any]:
    beside = {
        "entropies": _finite(turn.entropies),
        "forced": turn.forced if any(turn.forced) else None,
        "rejected": [{"ids": list(one.ids), "signal": plain(one.signal)} for one in turn.candidates] or None,
    }
    found = {
        "prompt_tokens": None if prompt is None else len(prompt),
        "completion_tokens": len(turn.ids),
        "prompt_token_ids": prompt,
        "completion_token_ids": turn.ids,
        "logprobs": _finite(turn.logprobs),
        "extra": {key: value for key, value in beside.items() if value is not None} or None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _finite(values: list[float] | None) -> list[float] | None:
    """JSON has no infinity, and a list must be as long as the ids: one with such a value is left out whole."""
    return values if values is not None and all(map(math.isfinite, values)) else None


def _totals(episode: Trajectory, prompts: list[list[int]] | list[None], steps: int) -> dict[str, Any]:
    read = [len(prompt) for prompt in prompts if prompt is not None]
    found: dict[str, Any] = {"total_steps": steps}
    if read:
        found["total_prompt_tokens"] = sum(read)
    if not episode.text_only:
        found["total_completion_tokens"] = sum(len(turn.ids) for turn in episode.turns)
    return found
