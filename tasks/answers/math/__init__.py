"""Whether a mathematical answer is right: the kinds `math_equivalent` and `math_format`, from a reply to a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, field_validator

from tasks.answers import AnswerAssertion
from tasks.answers.math.extraction import find_answer, joined_boxes, last_box, minerva_answer, minerva_form
from tasks.answers.math.pool import Pool, Reply, Status, default_pool
from tasks.answers.math.shapes import list_length, quick_verdict
from tasks.assertions.base import AssertionKind, AssertionResult, Outcome, Verdict
from tasks.assertions.on_files import shorten
from tasks.model import Text, fault

# -- Answers that nobody would give, refused as wrong before anything parses them -------------------------------------

MAX_LENGTH = 1000
"""Characters of an answer; a longer gold answer may be met by one of twice its length."""
MAX_NESTING = 64
"""How deep brackets of all kinds may stand in each other."""
MAX_TOWER = 3
"""How many exponents may stand in each other: `9^{9^{9^{9}}}` has three."""

MAX_FACTORIAL = 1000
"""The largest number whose factorial is computed, and up to which a sum runs."""
MAX_EXPONENT = 10_000
"""The largest exponent, or number in a binomial, that is computed."""

# Thousands, so that 10,000,000! counts as one number.
_SEPARATOR = re.compile(r"(?<=\d)(?:\{,\}|,|\\,)(?:\\!)?(?=\d{3})")
_NUMBER = re.compile(r"(\d+)(?:[\s})]*\^[\s{(]*(\d+))?")
# n! and (...)!; `again` marks n!!, which grows so much faster that hardly any is computed.
_FACTORIAL = re.compile(r"(?P<of>\d+|[({][^!]{0,60}[)}])\s*!(?P<again>[\s)}]*!)?")
# The number that an exponent starts with, and what it is raised to itself.
_EXPONENT = re.compile(r"\^[\s{(+-]*(?:\\left)?[\s(]*(\d+(?:[\s})]*\^[\s{(]*\d+)?)")
_BINOMIAL = re.compile(r"binom([^=]{0,60})")
# The bounds of a sum or product, in either order, one level of braces inside.
_SUM = re.compile(r"\\(?:sum|prod)\s*((?:[_^]\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|\w)\s*){1,2})")
# What a backslash escapes is no bracket, but \left before an exponent belongs to it.
_BRACKET = re.compile(r"\\.|\^\s*(?:\\left\s*)?[{(]|[\^{}()\[\]]", re.DOTALL)


def refusal(gold: str, answer: str) -> str | None:
    """Return why an answer is refused, or None. What the gold answer itself needs is never refused."""
    allowed = max(MAX_LENGTH, 2 * len(gold))
    if len(answer) > allowed:
        return f"the answer is {len(answer)} characters long; at most {allowed} are read"
    nesting, tower = depths(answer)
    if nesting > MAX_NESTING or tower > MAX_TOWER:
        gold_nesting, gold_tower = depths(gold)
        if nesting > max(MAX_NESTING, gold_nesting):
            return f"the answer has brackets {nesting} deep; at most {MAX_NESTING} are read"
        if tower > max(MAX_TOWER, gold_tower):
            return f"the answer has exponents {tower} deep; at most {MAX_TOWER} are computed"
    if tower < MAX_TOWER and (costs := _costs(answer) - _costs(gold)):
        return f"the answer has too large a {min(costs)} to compute"
    return None


def _costs(text: str) -> set[str]:
    """What in it is too large to compute: a factorial, exponent, binomial or bound of a sum."""
    text = _SEPARATOR.sub("", text)
    found: set[str] = set()
    for match in _FACTORIAL.finditer(text):
        limit = 10 if match.group("again") else MAX_FACTORIAL
        if _largest(match.group("of")) > limit:
            found.add("factorial")
    if any(_largest(match.group(1)) > MAX_EXPONENT for match in _EXPONENT.finditer(text)):
        found.add("exponent")
    if any(_largest(match.group(1)) > MAX_EXPONENT for match in _BINOMIAL.finditer(text)):
        found.add("binomial")
    if any(_largest(match.group(1)) > MAX_FACTORIAL for match in _SUM.finditer(text)):
        found.add("sum")
    return found


def _largest(text: str) -> float:
    """The largest whole number or power of two of them in a text."""
    largest = 0.0
    for match in _NUMBER.finditer(text):
        digits, power = match.group(1), match.group(2)
        if len(digits) > 15 or (power and len(digits) * int(power[:9]) > 300):
            return math.inf
        largest = max(largest, float(digits) ** int(power or 1))
    return largest


def depths(text: str) -> tuple[int, int]:
    """Return how deep brackets stand in each other, and how deep exponents do. Linear."""
    stack: list[bool] = []  # of each open bracket, whether it opens an exponent
    nesting = tower = raised = 0
    for match in _BRACKET.finditer(text):
        token = match.group()
        if token == "^":
            tower = max(tower, raised + 1)
        elif token[0] == "^" or token in "{([":
            stack.append(token[0] == "^")
            raised += stack[-1]
            nesting, tower = max(nesting, len(stack)), max(tower, raised)
        elif token in "})]" and stack:
            raised -= stack.pop()
    return nesting, tower


# -- From a reply to a verdict: the answer is found, refused where absurd, compared quickly, or else by a worker ------


class MathMode(StrEnum):
    """Where the answer of a reply is looked for, and how it is compared."""

    FIXED = "fixed"
    """The last box, else a sentence that says so, else the maths at the end; compared by value."""
    BOXED = "boxed"
    r"""Only the last closed `\boxed{...}`; compared by value."""
    MINERVA = "minerva"
    """The final-answer sentence, else the last box; compared in the lossy spelling of the Minerva evaluation."""


class Reason(StrEnum):
    """Why a verdict is what it is, besides how a comparison ended (see `Status`)."""

    NO_ANSWER = "no_answer"
    """No answer was found in the reply."""
    REFUSED = "refused"
    """Nobody would answer that."""
    QUICK_SAME = "quick_same"
    """Equal as texts, or as plain arithmetic."""
    QUICK_DIFFERENT = "quick_different"
    """Different as plain arithmetic."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one reply.

    Attributes:
        verdict: Pass, fail or error.
        reason: Why: a `Reason`, or the `Status` of the comparison.
        answer: The answer found; None where there is none.
        detail: In one line, for people.
        broke: The answer kept the comparison from being carried out; a fail.
    """

    verdict: Verdict
    reason: Reason | Status
    answer: str | None
    detail: str = ""
    broke: bool = False


def judge(gold: str, reply: str, mode: MathMode = MathMode.FIXED, pool: Pool | None = None) -> Judgement:
    """Judge one reply against the gold answer (what stands in the box of the gold solution).

    From any thread of any process; `pool` is the one of the process where it is None. The verdict is error only where
    no worker can be started, or where comparing the gold answer with itself ends the same way.
    """
    answer = _find(reply, mode, gold)
    if answer is None:
        where = {MathMode.BOXED: r"no closed \boxed{...}", MathMode.MINERVA: "no final-answer sentence and no box"}
        return Judgement(Verdict.FAIL, Reason.NO_ANSWER, None, where.get(mode, "no answer was found in the reply"))
    if (refused := refusal(gold, answer)) is not None:
        return Judgement(Verdict.FAIL, Reason.REFUSED, answer, refused)
    quick = _quick(gold, answer, mode)
    if quick is not None:
        reason = Reason.QUICK_SAME if quick else Reason.QUICK_DIFFERENT
        return Judgement(*_decided(quick, gold, answer, reason))
    how = "minerva" if mode is MathMode.MINERVA else "fixed"
    workers = pool or default_pool()
    return _judged(workers.compare(gold, answer, how), gold, answer, workers)


def judge_many(
    pairs: Sequence[tuple[str, str]], mode: MathMode = MathMode.FIXED, pool: Pool | None = None
) -> list[Judgement]:
    """Judge pairs of gold answer and reply, as many at a time as the pool has workers; in the same order."""
    workers = pool or default_pool()
    if len(pairs) < 2 or workers.size == 1:
        return [judge(gold, reply, mode, workers) for gold, reply in pairs]
    with ThreadPoolExecutor(min(workers.size, len(pairs))) as threads:
        return list(threads.map(lambda pair: judge(pair[0], pair[1], mode, workers), pairs))


def _find(reply: str, mode: MathMode, gold: str) -> str | None:
    if mode is MathMode.MINERVA:
        return minerva_answer(reply)
    boxes = joined_boxes(reply)
    if len(boxes) > 1 and len(boxes) == list_length(gold):
        return ", ".join(boxes)
    found = last_box(reply) if mode is MathMode.BOXED else find_answer(reply)
    return found.text if found else None


def _decided(same: bool, gold: str, answer: str, reason: Reason | Status) -> tuple[Verdict, Reason | Status, str, str]:
    if same:
        return Verdict.PASS, reason, answer, ""
    return Verdict.FAIL, reason, answer, f"the answer is {_short(answer)}, not {_short(gold)}"


def _quick(gold: str, answer: str, mode: MathMode) -> bool | None:
    try:
        if mode is MathMode.MINERVA:
            return minerva_form(gold) == minerva_form(answer) or None
        return quick_verdict(gold, answer)
    except Exception:  # a worker meets it again, and it is told there whose doing it is
        return None


def _judged(reply: Reply, gold: str, answer: str, pool: Pool) -> Judgement:
    match reply.status:
        case Status.SAME | Status.DIFFERENT:
            return Judgement(*_decided(reply.status is Status.SAME, gold, answer, reply.status))
        case Status.UNREADABLE:
            detail = f"the answer cannot be read as maths: {_short(reply.detail)}"
            return Judgement(Verdict.FAIL, reply.status, answer, detail)
        case Status.GOLD_UNREADABLE:
            detail = f"the gold answer cannot be read as maths, and the answer differs from it: {_short(reply.detail)}"
        case _:
            detail = f"comparing {_short(answer)} with {_short(gold)}: {reply.detail or reply.status}"
    # What the gold answer does by itself is the task's fault; all else is the doing of whoever wrote the answer.
    if reply.status is Status.UNAVAILABLE or pool.gold_outcome(gold).status in (reply.status, Status.UNAVAILABLE):
        return Judgement(Verdict.ERROR, reply.status, answer, detail)
    return Judgement(Verdict.FAIL, reply.status, answer, detail, broke=True)


def _short(text: str, length: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."


# ---------------------------------------------------------------------------------------------------------------------
# `math_equivalent` and `math_format`: whether the answer is the gold one, and whether it stands in `\boxed{...}`.


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


__all__ = [
    "Judgement",
    "MathEquivalent",
    "MathFormat",
    "MathMode",
    "Pool",
    "Reason",
    "Reply",
    "Status",
    "default_pool",
    "judge",
    "judge_many",
]
