r"""Exact values of plain arithmetic: integers, decimals, fractions, sums, products and small powers, as a `Fraction`.

Most answers are such numbers, and none of them needs a computer algebra system, or may be rounded.
"""

from __future__ import annotations

import re
from fractions import Fraction

MAX_DEPTH = 64
"""How deep brackets and fractions may nest."""
MAX_BITS = 20_000
"""Size of a number, its denominator included. What gets larger is left to the worker."""

_TOKEN = re.compile(r"\s*(\\frac|\\cdot|\\overline|\d+(?:\.\d*)?|\.\d+|[-+/^(){}!])")
_OPEN = {"(": ")", "{": "}"}


class _Beyond(Exception):
    """Not plain arithmetic, or too large for it."""


def exact_value(text: str) -> Fraction | None:
    """Return the value of an answer in one spelling (see `normalise`), or None if it is no small plain arithmetic."""
    tokens: list[str] = []
    at, end = 0, len(text.rstrip())
    if end > 4000:
        return None
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match.group(1))
        at = match.end()
    if not tokens:
        return None
    try:
        reader = _Reader(tokens)
        value = reader.sum(0)
        return value if reader.at == len(tokens) else None
    except (_Beyond, ZeroDivisionError):
        return None


class _Reader:
    """Reads tokens by recursive descent, so deep as `MAX_DEPTH` allows."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, expected: str = "") -> str:
        token = self.peek()
        if not token or (expected and token != expected):
            raise _Beyond
        self.at += 1
        return token

    def sum(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise _Beyond
        value = self.product(depth)
        while self.peek() in ("+", "-") and self.peek():
            sign = 1 if self.take() == "+" else -1
            value = _checked(value + sign * self.product(depth))
        return value

    def product(self, depth: int) -> Fraction:
        value = self.signed(depth)
        while (token := self.peek()) and token not in "+-)}":
            if token == "/":
                self.take()
                value = _checked(value / self.signed(depth))
            elif token == r"\cdot":
                self.take()
                value = _checked(value * self.signed(depth))
            elif token == "(" or token == r"\frac":
                value = _checked(value * self.power(depth))  # side by side
            else:
                raise _Beyond
        return value

    def signed(self, depth: int) -> Fraction:
        sign = 1
        while self.peek() in ("+", "-") and self.peek():
            sign *= 1 if self.take() == "+" else -1
        return sign * self.power(depth)

    def power(self, depth: int) -> Fraction:
        base = self.atom(depth)
        if self.peek() != "^":
            return base
        self.take()
        exponent = self.group("{", depth) if self.peek() == "{" else self.signed(depth)
        if self.peek() == "^" or exponent.denominator != 1 or abs(exponent.numerator) > MAX_BITS:
            raise _Beyond
        power = int(exponent)
        if abs(power) * max(base.numerator.bit_length(), base.denominator.bit_length()) > MAX_BITS:
            raise _Beyond
        if base == 0 and power <= 0:
            raise _Beyond
        return base**power

    def atom(self, depth: int) -> Fraction:
        token = self.take()
        if token in _OPEN:
            self.at -= 1
            return self.group(token, depth)
        if token == r"\frac":
            top = self.group("{", depth)
            return _checked(top / self.group("{", depth))
        if not (token[0].isdigit() or token[0] == "."):
            raise _Beyond
        if len(token) > MAX_BITS // 4:
            raise _Beyond
        if self.peek() == r"\overline" and "." in token:
            self.take()
            return self._repeating(token)
        if self.peek() == "!":
            raise _Beyond
        return Fraction(token if token[-1] != "." else token[:-1])

    def group(self, opening: str, depth: int) -> Fraction:
        self.take(opening)
        value = self.sum(depth + 1)
        self.take(_OPEN[opening])
        return value

    def _repeating(self, start: str) -> Fraction:
        """`0.1` with `{6}` under a bar: 1/6."""
        self.take("{")
        digits = self.take()
        self.take("}")
        if not digits.isdigit() or len(digits) > 100:
            raise _Beyond
        places = len(start) - start.index(".") - 1
        return Fraction(start + "0") + Fraction(int(digits), (10 ** len(digits) - 1) * 10**places)


def _checked(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > MAX_BITS:
        raise _Beyond
    return value
