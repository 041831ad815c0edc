"""What the trainers tell people who set something that cannot work."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot work; the message names it and the remedy."""


class RewardError(ConfigError):
    """An environment paid a reward that is not a number; the message names episode and task."""
