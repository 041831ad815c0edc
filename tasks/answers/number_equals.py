"""The kinds `number_equals` and `number_format` (GSM8K), and the published ways to find the number."""

from __future__ import annotations

import re as fast_re
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Literal

import regex as re  # possessive quantifiers of `re` match wrongly before Python 3.11.5 (gh-106052)
from pydantic import Field, field_validator

from tasks.answers import AnswerAssertion
from tasks.answers.amounts import same_amounts
from tasks.answers.final_number import Extraction, Rule, final_number, marked_number
from tasks.answers.numbers import Number, read
from tasks.answers.restated import said_again
from tasks.assertions.base import AssertionKind, AssertionResult, Outcome
from tasks.assertions.on_files import shorten
from tasks.model import Text, fault

# -- Extraction of numbers as published evaluators do it, bug for bug, so that their numbers can be repeated ----------
# | mode | evaluator | which text | compared |
# |---|---|---|---|
# | `strict_hash` | lm-eval `gsm8k`, `strict-match` | first `#### N` | as text |
# | `strict_phrase` | lm-eval `gsm8k_cot`, `strict-match` | first `The answer is N` and one more character | as text |
# | `flexible` | lm-eval `gsm8k`, `flexible-extract` | last run of digits, `$`, `.`, `,` | as text |
# | `last_number` | rlvr-experiments, `last_number` | last decimal number | as numbers |
# | `any` | rlvr-experiments, `any` | what finds something: `The answer is N.`, `flexible`, `last_number` | as numbers
# |
#
# As text means: commas and dollar signs deleted, what stands up to `#### ` and one final full stop too, then equal.

_HASH = re.compile(r"#### (-?[0-9.,]+)")
_PHRASE = re.compile(r"The answer is (-?[0-9.,]+).")
_PHRASE_STOP = re.compile(r"The answer is (-?[0-9.,]+)\.")
_FLEXIBLE = fast_re.compile(r"(?s:.*)(?<![$0-9.,])([$0-9.,]{2,}|[0-9])")
"""The last match of `-?[$0-9.,]{2,}|-?[0-9]+` without its sign: the last whole run that is one."""
_LAST = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_LAST_GROUPED = re.compile(r"-?[0-9]++(?:,[0-9]++)*+(?:\.[0-9]+)?")
_READABLE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_MOST_DIGITS = 1000

Span = tuple[int, int]
"""First character and the one after the last."""


def strict_hash(text: str) -> Span | None:
    """Return where the number after the first `#### ` stands, or None."""
    found = _HASH.search(text)
    return found.span(1) if found else None


def strict_phrase(text: str) -> Span | None:
    """Return where the number of the first `The answer is N.` stands, or None.

    The published pattern takes any character for the full stop: where none follows the number, its last digit is lost.
    """
    found = _PHRASE.search(text)
    return found.span(1) if found else None


def flexible(text: str) -> Span | None:
    """Return where the last run of digits and `$`, `.`, `,` stands, or None; a run of points alone is one too."""
    found = _FLEXIBLE.match(text)
    if found is None:
        return None
    start, end = found.span(1)
    return start - (text[start - 1 : start] == "-"), end


def last_number(text: str) -> Span | None:
    """Return where the last decimal number stands, or None; `10-5` ends with -5."""
    found = deque(_LAST_GROUPED.finditer(text), maxlen=1)
    return found[0].span() if found else None


def any_number(text: str) -> Span | None:
    """Return what the first of three rules finds: the phrase with a real full stop, `flexible`, `last_number`."""
    phrase = _PHRASE_STOP.search(text) if "The answer is " in text else None
    return phrase.span(1) if phrase else flexible(text) or last_number(text)


def same_text(found: str, gold: str) -> bool:
    """Compare as lm-eval's `exact_match` does with the patterns that `gsm8k` tells it to ignore."""
    return _bare(found) == _bare(gold)


def same_number(found: str, gold: str) -> bool:
    """Compare as numbers, exactly; what is no number equals nothing."""
    left, right = _number(found), _number(gold)
    return left is not None and left == right


def _bare(text: str) -> str:
    text = text.replace(",", "").replace("$", "")
    text = text[text.rfind("#### ") + 5 :] if "#### " in text else text
    return text.removesuffix(".").lower()


def _number(text: str) -> int | Fraction | None:
    text = text.replace(",", "").replace("$", "").strip()
    if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    if len(text) > _MOST_DIGITS or not _READABLE.fullmatch(text):
        return None
    return Fraction(text.removesuffix("."))


EXTRACT: dict[str, tuple[Callable[[str], Span | None], Callable[[str, str], bool]]] = {
    "strict_hash": (strict_hash, same_text),
    "strict_phrase": (strict_phrase, same_text),
    "flexible": (flexible, same_text),
    "last_number": (last_number, same_number),
    "any": (any_number, same_number),
}
"""Mode: where it looks, and how it compares what it finds with the gold answer."""


# -- The two kinds that judge the number a reply ends with: whether it is right, and whether it is marked as asked ----


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
    if found.number is None or found.number <= 0:
        return False
    if found.rule is Rule.LAST_NUMBER:
        return gold in same_amounts(text, found.start, found.end)
    again = said_again(text, found.start, found.end)
    return again is not None and gold in again.same


def shown(found: Extraction) -> str:
    """Write what was found, by which rule and where, for details."""
    return f"{shorten(found.value)} ({found.rule.value}, characters {found.start}-{found.end})"
