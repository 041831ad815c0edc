"""Guard 4, mask by length: that exactly the sampled tokens are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.events import Facts
from trainers.guards.guard import Alarm, Guard, note, stop
from trainers.guards.levels import GuardName

TRAINED, SAMPLED = "mask/trained_tokens", "mask/sampled_tokens"
"""Tokens with loss mask 1 in the trainer's batch, and tokens that the policy sampled in episodes that count."""


@dataclass
class MaskByLength(Guard):
    """The loss mask has as many ones as tokens were sampled; padding is told by length, never by its id.

    Attributes:
        pad_id: Which id pads; `None` where it also ends replies.
        usual: Share of completions that may hold it: at temperature 1 any id is sampled now and then.
    """

    name: ClassVar[str] = GuardName.MASK_BY_LENGTH
    pad_id: int | None = None
    usual: float = 0.1

    def begin(self, facts: Facts) -> None:
        """Which id pads. One that also ends replies is expected in them."""
        self.pad_id = None if facts.pad_id in facts.eos_ids else facts.pad_id

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Completions that hold the pad id, where they are more than chance."""
        if self.pad_id is None:
            return
        hit = sum(any(self.pad_id in turn.ids for turn in episode.turns) for episode in played.trajectories)
        if hit > self.usual * len(played.trajectories):
            yield note(
                "pad_inside",
                f"mask: {hit} of {len(played.trajectories)} completions of step {step} hold the pad id {self.pad_id} "
                "inside their text. Masks are made from lengths, so nothing is lost here; code that reads the records "
                "must not look for that id.",
            )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The two counts."""
        trained, sampled = metrics.get(TRAINED), metrics.get(SAMPLED)
        if trained is not None and sampled is not None and trained != sampled:
            yield stop(
                "mask",
                f"mask: {trained:g} tokens of step {step} have loss mask 1, but the policy sampled {sampled:g}: the "
                "environment's tokens are trained, or sampled ones are not. Build the mask from token counts (the "
                "versions of trl and transformers must be those of constraints.txt).",
            )
