"""Procedural families: a seed becomes a task with its oracle.

`generate("quickstart", n, seed)` mixes the small families, `"office"` those of everyday work, `"all"` both.
"""

from tasks.families.generate import (
    ALL,
    ALL_FAMILIES,
    FAMILIES,
    MAX_TURNS,
    MIX,
    NAMES,
    OFFICE_MIX,
    build,
    generate,
    source,
    stream,
)
from tasks.families.office import OFFICE, OfficeFamily
from tasks.families.parts import Family, TaskParts

__all__ = [
    "ALL",
    "ALL_FAMILIES",
    "FAMILIES",
    "MAX_TURNS",
    "MIX",
    "NAMES",
    "OFFICE",
    "OFFICE_MIX",
    "Family",
    "OfficeFamily",
    "TaskParts",
    "build",
    "generate",
    "source",
    "stream",
]
