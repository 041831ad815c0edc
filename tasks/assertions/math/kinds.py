r"""`math_equivalent` and `math_format`: whether the answer is the gold one, and whether it stands in `\boxed{...}`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.assertions.base import AssertionKind, AssertionResult, Verdict
from tasks.assertions.math.extraction import last_box
from tasks.assertions.math.judging import MathMode, judge
from tasks.assertions.math.pool import Status, default_pool
from tasks.assertions.on_answers import AnswerAssertion
from tasks.assertions.on_files import shorten
from tasks.model import Text, fault
from tasks.outcome import Outcome


class MathEquivalent(AnswerAssertion):
    """The answer is mathematically the gold one.

    An answer over which the comparison breaks or takes too long fails; a gold answer that cannot be computed with is an
    error.

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
        if found.verdict is Verdict.ERROR:
            return self.erred(found.detail)
        return self.broken(found.detail) if found.broke else self.failed(found.detail)

    def right_answer(self) -> str:
        """Return the gold answer in a box."""
        return rf"\boxed{{{self.gold}}}"

    def wrong_answer(self) -> str:
        """Return a number in a box that is not the gold answer."""
        return r"\boxed{-9182736}" if "9182736" not in self.gold else r"\boxed{-4567892}"

    def self_test(self) -> list[str]:
        """Also compare the gold answer with itself by computing it, not as a text."""
        found = default_pool().gold_outcome(self.gold)
        if found.status is Status.SAME:
            return super().self_test()
        return [f"the gold answer {shorten(self.gold)} cannot be computed with: {found.detail or found.status}"]

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
