"""The two kinds that judge the number a reply ends with: whether it is right, and whether it is marked as asked."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.answers import AnswerAssertion
from tasks.answers.final_number import Extraction, Rule, final_number, marked_number
from tasks.answers.number_modes import EXTRACT
from tasks.answers.numbers import Number, read, same_amount
from tasks.assertions.base import AssertionKind, AssertionResult, Outcome
from tasks.assertions.on_files import shorten
from tasks.model import Text, fault


class NumberMode(StrEnum):
    """How the number is found and compared."""

    FIXED = "fixed"
    """Ours, for rewards: the last marker, else the last number; compared exactly, as numbers."""
    STRICT_HASH = "strict_hash"
    """As lm-eval's `gsm8k`, `strict-match`: first `#### N`, compared as text."""
    STRICT_PHRASE = "strict_phrase"
    """As lm-eval's `gsm8k_cot`, `strict-match`: first `The answer is N.`, compared as text."""
    FLEXIBLE = "flexible"
    """As lm-eval's `gsm8k`, `flexible-extract`: last run of digits and `$`, `.`, `,`, compared as text."""
    LAST_NUMBER = "last_number"
    """The last decimal number, compared as a number."""
    ANY = "any"
    """The first of the phrase, `flexible` and `last_number` that finds something, compared as a number."""


class MarkerMode(StrEnum):
    """Which marker the number must stand behind."""

    ANY = "any"
    """Any of those that `number_equals` knows in mode `fixed`."""
    HASH = "hash"
    """`#### N`."""
    PHRASE = "phrase"
    """`The answer is N` and the like."""
    BOX = "box"
    r"""`\\boxed{N}`."""


class NumberEquals(AnswerAssertion):
    """The reply's final number is the gold one.

    Attributes:
        gold: The right number, as text: `18`, `-3`, `70,000`, `1/2`.
        mode: How the number is found and compared. All modes but `fixed` repeat a published evaluator with its defects.
    """

    kind: Literal[AssertionKind.NUMBER_EQUALS] = AssertionKind.NUMBER_EQUALS
    gold: Text
    mode: Annotated[NumberMode, Field(strict=False)] = NumberMode.FIXED

    @field_validator("gold")
    @classmethod
    def _is_number(cls, gold: str) -> str:
        if read(gold) is None:
            raise fault(f"gold {shorten(gold)} is no number: write digits, such as 18, -3, 70,000 or 1/2")
        return gold

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the final number equals the gold one; the detail says which rule read what, and where."""
        answer = self.answer(outcome)
        if isinstance(answer, AssertionResult):
            return answer
        found = extract_number(answer, self.mode)
        if found is None:
            return self.failed("no number was found in the answer")
        if found.problem:
            return self.failed(f"{shown(found)} cannot be read as one number: {found.problem}")
        right = (
            is_number(answer, found, read(self.gold))
            if self.mode is NumberMode.FIXED
            else EXTRACT[self.mode.value][1](found.value, self.gold)
        )
        return self.passed() if right else self.failed(f"{shown(found)} is not {shorten(self.gold)}")

    def right_answer(self) -> str:
        """Return the gold number, marked in the way that the mode looks for."""
        return f"The answer is {self.gold}." if self.mode is NumberMode.STRICT_PHRASE else f"#### {self.gold}"

    def wrong_answer(self) -> str:
        """Return another number, marked likewise."""
        other = "9182736" if read(self.gold) != 9182736 else "9182737"
        return f"The answer is {other}." if self.mode is NumberMode.STRICT_PHRASE else f"#### {other}"

    def describe(self) -> str:
        """Return the condition in words."""
        how = "" if self.mode is NumberMode.FIXED else f" ({self.mode.value})"
        return f"the final number is {self.gold}{how}"


class NumberFormat(AnswerAssertion):
    """The reply marks its final number, whatever the number: the last marker is of the kind asked for and holds one.

    Attributes:
        mode: Which marker.
    """

    kind: Literal[AssertionKind.NUMBER_FORMAT] = AssertionKind.NUMBER_FORMAT
    mode: Annotated[MarkerMode, Field(strict=False)] = MarkerMode.ANY

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the last marker is of the kind asked for and holds one number."""
        answer = self.answer(outcome)
        if isinstance(answer, AssertionResult):
            return answer
        found = marked_number(answer)
        if found is None:
            return self.failed(f"no final number is marked: {_WANTED[self.mode]}")
        if found.problem:
            return self.failed(f"{shown(found)} cannot be read as one number: {found.problem}")
        if self.mode is not MarkerMode.ANY and found.rule.value != self.mode.value:
            return self.failed(f"{shown(found)} is not marked as asked: {_WANTED[self.mode]}")
        return self.passed()

    def describe(self) -> str:
        """Return the condition in words."""
        return f"the final number is marked ({self.mode.value})"


_WANTED = {
    MarkerMode.ANY: "write '#### N', '\\boxed{N}' or 'The answer is N'",
    MarkerMode.HASH: "write '#### N'",
    MarkerMode.PHRASE: "write 'The answer is N'",
    MarkerMode.BOX: "write '\\boxed{N}'",
}


def extract_number(text: str, mode: NumberMode = NumberMode.FIXED) -> Extraction | None:
    """Return what a mode takes for the final number of a text, with the rule that found it and its place; or None."""
    if mode is NumberMode.FIXED:
        return final_number(text)
    span = EXTRACT[mode.value][0](text)
    return None if span is None else Extraction(text[span[0] : span[1]], None, Rule.PUBLISHED, *span)


def is_number(text: str, found: Extraction, gold: Number | None) -> bool:
    """Whether an extracted number, or the same amount that stands beside it in another unit, is the gold one."""
    if found.number == gold:
        return True
    return found.rule is Rule.LAST_NUMBER and gold is not None and same_amount(text, found.start, found.end) == gold


def shown(found: Extraction) -> str:
    """Write what was found, by which rule and where, for details."""
    return f"{shorten(found.value)} ({found.rule.value}, characters {found.start}-{found.end})"
