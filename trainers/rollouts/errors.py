"""What a rule of the rollouts cannot work with."""

from __future__ import annotations


class RulesError(ValueError):
    """A rule cannot work with this file, pool or number of processes; the message says what to do."""
