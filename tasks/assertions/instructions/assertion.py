"""The kind `instruction`: the answer follows one instruction on its form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from tasks.assertions.base import AssertionKind, AssertionResult, Verdict, judge
from tasks.assertions.instructions.base import InstructionError, Semantics
from tasks.assertions.instructions.registry import make
from tasks.assertions.instructions.scoring import follows
from tasks.assertions.on_answers import AnswerAssertion
from tasks.model import Text
from tasks.outcome import Outcome


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
