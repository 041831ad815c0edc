"""Settings of the rollouts of training: which attempts are made and which of them are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass
class RolloutFields:
    """How the episodes of a step come about."""

    def rollout_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        return iter(())
