"""Where the time of a rollout went."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Timing:
    """Where the time of a call went. Seconds of wall time.

    Attributes:
        wall_seconds: The whole call.
        model_seconds: Inside the policy.
        sandbox_seconds: Waiting for environments, and for nothing else.
        turns: Replies that were sampled and stepped (also those of episodes that started over).
        sampled_tokens: Their ids.
    """

    wall_seconds: float = 0.0
    model_seconds: float = 0.0
    sandbox_seconds: float = 0.0
    turns: int = 0
    sampled_tokens: int = 0

    @property
    def overhead_seconds(self) -> float:
        """What is neither: templates, tokens, records, threads."""
        return self.wall_seconds - self.model_seconds - self.sandbox_seconds
