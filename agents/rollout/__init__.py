"""Rollouts: episodes in lockstep, batched; see `agents.rollout.engine`."""

from agents.rollout.engine import RolloutEngine, RolloutResult
from agents.rollout.episode import Job
from agents.rollout.progress import RolloutProgress, RolloutState, Timing

__all__ = ["Job", "RolloutEngine", "RolloutProgress", "RolloutResult", "RolloutState", "Timing"]
