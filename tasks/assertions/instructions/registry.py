"""Every instruction we know by its id, and making one from what a prompt file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.assertions.instructions import (  # noqa: F401 - they fill `ifeval`
    casing,
    contents,
    formats,
    keywords,
    lengths,
    replies,
)
from tasks.assertions.instructions.base import Instruction, InstructionError, InstructionType, ifeval
from tasks.assertions.instructions.ifbench import ALL as IFBENCH
from tasks.model import nearest

IFEVAL: tuple[InstructionType, ...] = tuple(ifeval.values())
"""The 25 official ids of IFEval."""
INSTRUCTIONS: dict[str, InstructionType] = {known.id: known for known in (*IFEVAL, *IFBENCH)}
"""Every id, with what it stands for."""


def make(id: str, kwargs: Mapping[str, Any]) -> Instruction:
    """Return the instruction `id` with these arguments.

    Raises:
        InstructionError: no such id, or its arguments are wrong.
    """
    known = INSTRUCTIONS.get(id)
    if known is None:
        guess = nearest(id, INSTRUCTIONS)
        hint = f": did you mean '{guess}'?" if guess else ""
        raise InstructionError(f"unknown instruction '{id}'{hint} ({len(INSTRUCTIONS)} ids are known)")
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise InstructionError(f"{id}: the arguments must be a mapping from names to values, not {kwargs!r}")
    return known.make(kwargs)
