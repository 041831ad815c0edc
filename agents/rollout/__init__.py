"""Rollouts: many episodes at once, asynchronous or in lockstep; see `agents.rollout.engine`."""

from agents.rollout.engine import RolloutEngine, RolloutMode, RolloutResult
from agents.rollout.episode import Job
from agents.rollout.progress import RolloutProgress, RolloutState, Timing

__all__ = ["Job", "RolloutEngine", "RolloutMode", "RolloutProgress", "RolloutResult", "RolloutState", "Timing"]
