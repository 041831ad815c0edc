"""Answers that nobody would give, refused as wrong before anything parses them."""

from __future__ import annotations

import math
import re

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
