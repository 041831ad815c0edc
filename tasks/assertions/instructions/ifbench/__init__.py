"""The instructions of IFBench, 58 ids beside the 25 of IFEval."""

from __future__ import annotations

from tasks.assertions.instructions.base import InstructionType
from tasks.assertions.instructions.ifbench import (  # noqa: F401 - they fill `ifbench`
    bullets,
    count,
    custom,
    first_last,
    format,
    nesting,
    ratio,
    repeat,
    sentence,
    tables,
    thesis,
    words,
)
from tasks.assertions.instructions.ifbench.base import ifbench

ALL: tuple[InstructionType, ...] = tuple(ifbench.values())
"""All of them."""

__all__ = ["ALL"]
