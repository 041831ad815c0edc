"""Instructions on the form of an answer: the official ids of IFEval and IFBench, checked offline and in linear time.

`base` says what an instruction is, `registry` knows them all by their ids, `scoring` judges a text strictly or loosely,
and `assertion` makes of each the kind `instruction`, which a task may hold.
"""

from tasks.assertions.instructions.assertion import InstructionFollowed
from tasks.assertions.instructions.base import Instruction, InstructionError, InstructionType, Semantics
from tasks.assertions.instructions.registry import IFEVAL, INSTRUCTIONS, make
from tasks.assertions.instructions.scoring import follows, variants

__all__ = [
    "IFEVAL",
    "INSTRUCTIONS",
    "Instruction",
    "InstructionError",
    "InstructionFollowed",
    "InstructionType",
    "Semantics",
    "follows",
    "make",
    "variants",
]
