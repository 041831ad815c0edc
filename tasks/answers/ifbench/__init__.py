"""The instructions of IFBench, 58 ids beside the 25 of IFEval."""

from __future__ import annotations

from tasks.answers.ifbench import counts, formats, lists, words  # noqa: F401 - they fill `ifbench`
from tasks.answers.ifbench.base import ifbench
from tasks.answers.ifeval import InstructionType

ALL: tuple[InstructionType, ...] = tuple(ifbench.values())
"""All of them."""

__all__ = ["ALL"]
