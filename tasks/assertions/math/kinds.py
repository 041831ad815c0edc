r"""`math_equivalent` and `math_format`: whether the answer is the gold one, and whether it stands in `\boxed{...}`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.assertions.base import AssertionKind, AssertionResult, Verdict
from tasks.assertions.math.extraction import last_box
from tasks.assertions.math.judging import MathMode, judge
from tasks.assertions.on_answers import AnswerAssertion
from tasks.assertions.on_files import shorten
from tasks.model import Text, fault
from tasks.outcome import Outcome


class MathEquivalent(AnswerAssertion):
    """The answer is mathematically the gold one.

    What cannot be decided (a comparison beyond its deadline, a gold answer that cannot be read) is an error.

    Attributes:
        gold: The right answer, as it stands in the box of the gold solution.
        mode: Where the answer is looked for, and how it is compared.
    """

    kind: Literal[AssertionKind.MATH_EQUIVALENT] = AssertionKind.MATH_EQUIVALENT
    gold: Text
    mode: Annotated[MathMode, Field(strict=False)] = MathMode.FIXED

    @field_validator("gold")
    @classmethod
    def _not_blank(cls, gold: str) -> str:
        if not gold.strip():
            raise fault("gold is blank: no answer is ever right then")
        return gold

    def check(self, outcome: Outcome) -> AssertionResult:
        """Judge the final message."""
        reply = self.answer(outcome)
        if isinstance(reply, AssertionResult):
            return reply
        found = judge(self.gold, reply, self.mode)
        if found.verdict is Verdict.PASS:
            return self.passed()
        return self.failed(found.detail) if found.verdict is Verdict.FAIL else self.erred(found.detail)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"the answer is {shorten(self.gold)}"


class MathFormat(AnswerAssertion):
    r"""The answer stands in a closed `\boxed{...}` that is not empty. Whether it is right does not count."""

    kind: Literal[AssertionKind.MATH_FORMAT] = AssertionKind.MATH_FORMAT

    def check(self, outcome: Outcome) -> AssertionResult:
        """Judge the final message."""
        reply = self.answer(outcome)
        if isinstance(reply, AssertionResult):
            return reply
        return self.passed() if last_box(reply) else self.failed(r"no closed \boxed{...} with something in it")

    def describe(self) -> str:
        """Return the condition in words."""
        return r"the answer stands in \boxed{...}"
