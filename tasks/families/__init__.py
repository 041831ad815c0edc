"""Procedural families: a seed becomes a task with its oracle. `generate("quickstart", n, seed)` mixes all of them."""

from tasks.families.generate import FAMILIES, MAX_TURNS, MIX, build, generate, source, stream
from tasks.families.parts import Family, TaskParts

__all__ = ["FAMILIES", "MAX_TURNS", "MIX", "Family", "TaskParts", "build", "generate", "source", "stream"]
