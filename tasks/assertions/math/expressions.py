"""One expression: parsed by math-verify's parser, and compared by value. Runs in a worker: it has no time limit.

Exactly where it is plain arithmetic, else to 60 digits at fixed points, and by math-verify where that cannot tell.
Decimals are exact: 0.333 is not 1/3.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy
from math_verify import verify

# It warns that its time limits are off; ours is the pool's.
logging.getLogger("math_verify").setLevel(logging.CRITICAL)

DIGITS = 60
"""Decimal digits to which values are computed."""
AGREE = sympy.Float(10) ** -45
"""Relative difference below which two values are the same."""
_RUNNING = (sympy.Sum, sympy.Product)
_POINTS = 40
"""Points at which expressions with names are compared, besides the first two."""
_ENOUGH = 8
"""Points at which both must have a value, for them to count as the same."""
_CONVERSION = ConversionConfig(interpret_as_mixed_fractions=False, lowercase_symbols=False)
_IMAGINARY = sympy.Symbol("i", real=True)
# x^{2}^{3}: a base with two exponents that are not nested.
_TWO_EXPONENTS = re.compile(r"\}\s*\^(?=\{[^{}]*\}\s*\^)|\^\{[^{}]*\}\s*\^|\^\w\s*\^")
# Words and signs of relations, which the parser passes over without a word.
_NO_EXPRESSION = re.compile(r"\\text\{|[<>=]|\\(?:le|ge|ne|not|notin|approx)(?![A-Za-z])")
# \angle ABC, m\angle{B}, \triangle ABC.
_FIGURE = re.compile(r"m?\s*\\(angle|triangle)\s*(?:\{\s*([A-Z]{1,4})\s*\}|([A-Z]{1,4})(?![A-Za-z]))")
_INDEXED = re.compile(r"\d\s*_")
"""Digits with an index, which the parser would drop."""
# 0.1\overline{6}: whole part, digits before the period, period.
_REPEATING = re.compile(r"(?<![\w.])(\d*)\.(\d*)\\overline\{(\d{1,100})\}")
_DECIMAL = re.compile(r"(?<![\w.])(\d*)\.(\d+)(?![\d.])")


class Unreadable(Exception):
    """An expression that the parser does not know. `gold` says whose it is."""

    def __init__(self, text: str, gold: bool) -> None:
        super().__init__(text, gold)
        self.text = text
        self.gold = gold


def parse(text: str, gold: bool) -> Any:
    """Parse one expression.

    Raises:
        Unreadable: it cannot be.
    """
    try:
        return _parsed(text)
    except (MemoryError, RecursionError):
        raise
    except Exception as error:  # the parser raises what its parts raise; whatever it is, it could not read this
        raise Unreadable(text, gold) from error


@lru_cache(maxsize=512)
def _parsed(text: str) -> Any:
    text = _FIGURE.sub(_figure, text)
    text = _REPEATING.sub(_repeating, text)
    text = _DECIMAL.sub(
        lambda match: rf"\frac{{{match.group(1) or 0}{match.group(2)}}}{{1{'0' * len(match.group(2))}}}", text
    )
    text = text.replace(r"\cr ", r"\\ ").replace("%", "")
    if _NO_EXPRESSION.search(re.sub(r"_\{[^{}]*\}", "", text)):  # a sum may start at i=1
        raise ValueError("words or a relation: the parser would drop them")
    if re.search(r"\d\s+\d", text):
        raise ValueError("two numbers side by side: the parser would multiply or add them")
    if _TWO_EXPONENTS.search(text):
        raise ValueError("two exponents on one base: the parser would drop one")
    expression = latex2sympy(
        text, is_real=True, convert_degrees=False, normalization_config=None, conversion_config=_CONVERSION
    )
    if isinstance(expression, list | tuple | str) or expression is None:
        raise ValueError("no expression")
    return expression.subs(_IMAGINARY, sympy.I) if hasattr(expression, "subs") else expression


def _figure(match: re.Match[str]) -> str:
    """One name for an angle or a triangle, which the parser would take for a product of its letters."""
    kind, points = match.group(1), match.group(2) or match.group(3)
    if kind == "angle":
        points = min(points, points[::-1])  # from either side
    return f"Z_{{{kind[0]}{points}}}"


def _repeating(match: re.Match[str]) -> str:
    whole, start, period = match.groups()
    top = int(f"{whole}{start}{period}") - int(f"{whole}{start}" or 0)
    return rf"\frac{{{top}}}{{{'9' * len(period)}{'0' * len(start)}}}"


def same_value(gold: str, answer: str) -> bool:
    """Whether two expressions have the same value.

    Raises:
        Unreadable: one of them is beyond the parser.
    """
    for text, is_gold in ((gold, True), (answer, False)):
        if _INDEXED.search(text):
            raise Unreadable(text, is_gold)
    left, right = parse(gold, True), parse(answer, False)
    return bool(left == right) or same_parsed(left, right)


def same_parsed(left: Any, right: Any) -> bool:
    """Whether two parsed expressions have the same value, the gold one first."""
    agree = _agree(left, right)
    if agree is not None:
        return agree
    try:
        return bool(verify(left, right, float_rounding=40, numeric_precision=DIGITS, timeout_seconds=None))
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return False


def _agree(gold: Any, answer: Any) -> bool | None:
    """Compare values at fixed points; None where they cannot be computed, or differ only where they are not real."""
    if not (isinstance(gold, sympy.Expr) and isinstance(answer, sympy.Expr)):
        return None
    if gold.is_Rational and answer.is_Rational:
        return bool(gold == answer)
    names = sorted(gold.free_symbols | answer.free_symbols, key=str)
    if names and (gold.has(*_RUNNING) or answer.has(*_RUNNING)):
        gold, answer = gold.doit(), answer.doit()
        if gold.has(*_RUNNING) or answer.has(*_RUNNING):
            return None  # a sum up to n has no value where n is no whole number
    sure, seen, seen_real = True, 0, 0
    limits = set() if _minds_signs(gold) else _limits(gold) | _limits(answer)
    for point in sorted(_points(names, _steep(gold) or _steep(answer)), key=lambda point: not _within(limits, point)):
        within = _within(limits, point)
        if limits and not within and seen_real >= _ENOUGH:
            return True  # they agree wherever both are real
        values = [(side.subs(point) if point else side).doit().evalf(DIGITS) for side in (gold, answer)]
        if any(value.atoms(sympy.Function) or value.free_symbols for value in values):
            return None
        if not all(value.is_number and value.is_finite for value in values):
            continue  # a pole
        gap, size = abs(values[0] - values[1]).evalf(DIGITS), max(abs(values[0]), abs(values[1]))
        if not gap.is_comparable:
            return None
        seen += 1
        seen_real += within
        if gap > AGREE * size and not (size < AGREE and not gold.is_Rational and not answer.is_Rational):
            if all(value.is_real for value in values) or all(number > 0 for number in point.values()):
                return False
            sure = False
    return True if sure and (seen >= _ENOUGH or seen and not names) else None


def _limits(expression: Any) -> set[Any]:
    """What must not be below 0 for an expression with names to be real: under roots and in logarithms."""
    roots = {power.base for power in expression.atoms(sympy.Pow) if power.exp.is_integer is not True}
    found = roots | {log.args[0] for log in expression.atoms(sympy.log)}
    return {limit for limit in found if limit.free_symbols}


def _minds_signs(expression: Any) -> bool:
    r"""Whether it is real on both sides of 0 on purpose: `|x|`, `\sqrt{x^2}`. Then half of its points do not do."""
    squares = (power.base for power in expression.atoms(sympy.Pow) if power.exp.is_Rational and power.exp.q % 2 == 0)
    return bool(expression.has(sympy.Abs) or any(base.free_symbols and base.is_nonnegative for base in squares))


def _within(limits: set[Any], point: dict[Any, Any]) -> bool:
    return all(limit.subs(point).evalf().is_nonnegative for limit in limits)


def _steep(expression: Any) -> bool:
    """Whether large numbers for its names make it too large to compute."""
    costly = expression.atoms(sympy.factorial, sympy.binomial, sympy.gamma)
    return bool(costly) or any(power.exp.free_symbols for power in expression.atoms(sympy.Pow, sympy.exp))


def _points(names: list[Any], steep: bool) -> Iterator[dict[Any, Any]]:
    """Points of all signs, orders and sizes, the same ones each time; the first two are above 0 in all names."""
    if not names:
        yield {}
        return
    for number in range(2):
        yield {name: sympy.Rational(137 + 211 * number + 59 * at, 97 + 13 * at) for at, name in enumerate(names)}
    chance = random.Random(0)
    sizes = (1, 3, 12) if steep else (1, 12, 150, 3_000, 10**7)
    for number in range(_POINTS):
        size = sizes[number % len(sizes)]
        one_sign = (1, -1, 0, 0)[number % 4]
        yield {
            name: (one_sign or chance.choice((1, -1))) * sympy.Rational(chance.randint(1, 997 * size), 997)
            for name in names
        }
