"""The instructions of IFBench, 58 ids beside the 25 of IFEval."""

from __future__ import annotations

from tasks.assertions.instructions.ifbench import (
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
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction

ALL: tuple[type[IfbenchInstruction], ...] = (
    *count.ALL,
    *custom.ALL,
    *tables.ALL,
    *bullets.ALL,
    *format.ALL,
    *thesis.ALL,
    *nesting.ALL,
    *ratio.ALL,
    *repeat.ALL,
    *sentence.ALL,
    *words.ALL,
    *first_last.ALL,
)
"""All of them."""

__all__ = ["ALL", "IfbenchInstruction"]
