"""Settings of the rollouts of training: which attempts are made and which of them are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class RolloutFields:
    """How the episodes of a step come about."""

    importance_cap: float = field(
        default=2.0,
        metadata={
            "help": "Cap on the weight exp(trained - sampled log-probability) of a token whose sampler was not exactly "
            "the trained weights (another number format, a server, older weights); an exact sampler needs none."
        },
    )

    def rollout_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        if self.importance_cap <= 0:
            yield f"importance_cap={self.importance_cap}: above 0; 1 never raises a token's weight."
