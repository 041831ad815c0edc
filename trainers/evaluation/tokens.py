"""What an evaluation took: tokens of an episode, as the engine or the endpoint counts them, and their price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from agents.trajectory import Trajectory, Turn
from tasks.endpoints.chat import Price

KINDS = ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens")
"""Notes of a turn where an endpoint counts."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Sums over episodes. A conversation's first message counts again in the prompt of every turn.

    Attributes:
        episodes: All that were played; `replies` their turns, `uncounted` of them without counts.
        prompt: Tokens of prompts, those of `cached` included; `None` where nobody told of any, as for the next two.
        completion: Of replies, those of `reasoning` included.
    """

    episodes: int
    replies: int
    uncounted: int
    prompt: int
    completion: int
    cached: int | None = None
    reasoning: int | None = None

    def cost(self, price: Price) -> float:
        """What the counted replies cost."""
        return price.cost(self.prompt, self.completion, self.cached or 0)

    def to_json(self, price: Price | None = None) -> dict[str, Any]:
        """A JSON-able record, with the cost where there is a price."""
        return {**asdict(self), **({} if price is None else {"price": asdict(price), "cost": self.cost(price)})}

    def lines(self, passed: int, price: Price | None = None) -> list[str]:
        """For people: means of an episode, and the cost."""
        kinds = [("prompt", self.prompt), ("cached", self.cached), ("completion", self.completion)]
        kinds.append(("reasoning", self.reasoning))
        means = ", ".join(f"{name} {count / self.episodes:,.1f}" for name, count in kinds if count is not None)
        missing = f" ({self.uncounted} of {self.replies} replies came without counts)" if self.uncounted else ""
        lines = [f"mean tokens of an episode: {means}{missing}"]
        if price is not None:
            cost = self.cost(price)
            each = f", {cost / passed:.6g} for each pass" if passed else ""
            lines.append(f"cost: {cost:.6g}, {cost / self.episodes:.6g} an episode{each}{missing}")
        return lines


def count(episodes: Sequence[Trajectory], *, own_ids: bool, skipped: Sequence[int] | None = None) -> Tokens | None:
    """Add up what episodes took.

    Args:
        episodes: All of them, graded or not.
        own_ids: Ids are the model's own, so that they can be counted here.
        skipped: First turns of each that do not count; default: all do.

    Returns:
        The sums; `None` where nobody counted.
    """
    starts = [0] * len(episodes) if skipped is None else skipped
    turns = [turn for episode, start in zip(episodes, starts, strict=True) for turn in episode.turns[start:]]
    if own_ids:
        prompts = sum(
            len(p) for episode, start in zip(episodes, starts, strict=True) for p in episode.prompts()[start:]
        )
        sampled = sum(len(turn.ids) + sum(len(one.ids) for one in turn.candidates) for turn in turns)
        return Tokens(len(episodes), len(turns), 0, prompts, sampled) if turns else None
    sums = {kind: [round(turn.notes[kind]) for turn in turns if kind in turn.notes] for kind in KINDS}
    counted = sum(map(_is_counted, turns))
    if not counted:
        return None
    prompt, completion, cached, reasoning = (sum(found) if found else None for found in sums.values())
    return Tokens(len(episodes), len(turns), len(turns) - counted, prompt or 0, completion or 0, cached, reasoning)


def _is_counted(turn: Turn) -> bool:
    return KINDS[0] in turn.notes and KINDS[1] in turn.notes
