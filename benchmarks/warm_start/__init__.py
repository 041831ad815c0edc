"""Demonstrations for the warm start: episodes of a fictitious agent with known bad habits, made without a sandbox."""

from benchmarks.warm_start.episodes import Demonstration, demonstrations, problem_key
from benchmarks.warm_start.habits import FAULTLESS, HABITS, Recipe

__all__ = ["FAULTLESS", "HABITS", "Demonstration", "Recipe", "demonstrations", "problem_key"]
