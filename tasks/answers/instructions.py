"""Instructions on the form of an answer, by official id; judged strictly or loosely; the kind `instruction`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from tasks.answers import AnswerAssertion
from tasks.answers.ifbench import ALL as IFBENCH
from tasks.answers.ifeval import (
    Instruction,
    InstructionError,
    InstructionType,
    Semantics,
    checks,  # noqa: F401 - it fills `ifeval`
    ifeval,
)
from tasks.assertions.base import AssertionKind, AssertionResult, Outcome, Verdict, judge
from tasks.model import Text, nearest

# -- Judging one text by one instruction, strictly or loosely ---------------------------------------------------------


def follows(
    instruction: Instruction, text: str, semantics: Semantics = Semantics.FIXED, *, loose: bool = False
) -> bool:
    """Return whether the text follows the instruction. A blank text follows none.

    Args:
        instruction: What is asked; with its arguments.
        text: The whole reply.
        semantics: Which reading decides.
        loose: Whether it is enough that one of `variants(text)` follows it. Never less than the strict verdict.

    Raises:
        InstructionError: the instruction cannot be judged.
    """
    tried = variants(text) if loose else iter((text,))
    return any(instruction.follows(variant, semantics) for variant in tried if variant.strip())


def variants(text: str) -> Iterator[str]:
    """Yield the text, and what is left of it without the first line, the last, or both, each with and without stars.

    Those with a line cut off are stripped. Each variant comes once.
    """
    lines = text.split("\n")
    cuts = ("\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip())
    seen: set[str] = set()
    for cut in (text, *cuts):
        for variant in (cut, cut.replace("*", "")):
            if variant not in seen:
                seen.add(variant)
                yield variant


# -- Every instruction we know by its id, and making one from what a prompt file says ---------------------------------

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


# -- The kind `instruction`: the answer follows one instruction on its form -------------------------------------------


class InstructionFollowed(AnswerAssertion):
    """The final message follows one instruction, such as "has at least 20 words".

    An unknown id, and an argument that is missing, unknown or of the wrong kind, make the verdict error.

    Attributes:
        id: The official id, such as `length_constraints:number_words`.
        kwargs: Its arguments by their official names; those that are null count as not given.
        semantics: Which reading decides: `fixed` goes by the wording of the prompt, `reference` by the published code.
        loose: Whether the message may also be taken without its first or last line and without stars.
    """

    kind: Literal[AssertionKind.INSTRUCTION] = AssertionKind.INSTRUCTION
    id: Text
    kwargs: dict[str, Any] = Field(default_factory=dict)
    semantics: Annotated[Semantics, Field(strict=False)] = Semantics.FIXED
    loose: bool = False

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the message follows the instruction."""
        try:
            instruction = make(self.id, self.kwargs)
            message = self.answer(outcome)
            if isinstance(message, AssertionResult):
                return message
            if follows(instruction, message, self.semantics, loose=self.loose):
                return self.passed()
        except InstructionError as error:
            return self.erred(str(error))
        return self.failed(f"not followed: {instruction.describe()}")

    def self_test(self) -> list[str]:
        """Judge a plain answer, which fails or passes unless the instruction itself is at fault."""
        (found,) = judge(self, self.untouched(Outcome({}, {})))
        return [found.detail] if found.verdict is Verdict.ERROR or found.broke else []

    @property
    def feedback(self) -> str:
        """A few words that say what kind of instruction it is, and neither number nor keyword; the id if unknown."""
        try:
            return make(self.id, self.kwargs).kind
        except InstructionError:
            return self.id

    def default_name(self) -> str:
        """Return the id: where a prompt gives one twice, the task numbers them in their order."""
        return self.id

    def describe(self) -> str:
        """Return the condition in words; the id if no check can be made of it."""
        try:
            return f"the answer {make(self.id, self.kwargs).describe()}"
        except InstructionError:
            return self.id


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
