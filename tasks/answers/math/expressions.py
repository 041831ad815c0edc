"""Expressions, conditions and sets compared by value with sympy and math-verify. Runs in a worker."""

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

from tasks.answers.math.shapes import Both, Group, Relation, Scalar, Shape, Union, is_label, read

# -- One expression: parsed by math-verify's parser, and compared by value. Runs in a worker: it has no time limit ----
# Exactly where it is plain arithmetic, else to 60 digits at fixed points, and by math-verify where that cannot tell.
# Decimals are exact: 0.333 is not 1/3.

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


# ---------------------------------------------------------------------------------------------------------------------
# Conditions, intervals, unions and sets, compared as sets of real numbers. Runs in a worker: it has no time limit.

# |x| as one side of a condition.
_ABSOLUTE = re.compile(r"\s*\|\s*([a-z])\s*\|\s*")
_SETS = {
    r"\mathbb{R}": sympy.S.Reals,
    r"\mathbb{Z}": sympy.S.Integers,
    r"\mathbb{Q}": sympy.S.Rationals,
    r"\mathbb{C}": sympy.S.Complexes,
    r"\emptyset": sympy.S.EmptySet,
}
# \mathbb{R} \setminus \{2\}, and a minus behind the name of a set.
_COMPLEMENT = re.compile(r"(.+?)\s*(?:\\setminus(?![A-Za-z])|(?<=\\mathbb\{[RZQC]\})\s*-)\s*(.+)")


def same_set(gold: Shape, answer: Shape) -> bool:
    """Compare conditions, intervals, unions and sets as sets of real numbers; False where one of them is none."""
    if not (is_condition(gold) or is_condition(answer)):
        return False  # without a condition there is nothing that being written as another kind of set could hide
    if any(isinstance(side, Scalar) and not is_condition(side) for side in (gold, answer)):
        return False  # a number is no set of numbers, and no algebra is needed to tell
    if isinstance(gold, Group) and not gold.open and not is_condition(gold):
        return False  # nor is a plain list of them
    names = [set(_unknowns(side)) for side in (gold, answer)]
    if any(len(found) > 1 for found in names) or len(names[0] | names[1]) > 1:
        return False
    left, right = _set(gold, True), _set(answer, False)
    if left is None or right is None:
        return False
    if left == right:
        return True
    difference = sympy.SymmetricDifference(left, right)
    return bool(difference.is_empty) if difference.is_empty is not None else False


def is_condition(shape: Shape) -> bool:
    """Whether it says which numbers are meant by more than listing them."""
    if isinstance(shape, Group):
        return not shape.open and any(isinstance(part, Relation) for part in shape.parts)
    if isinstance(shape, Scalar):
        return bool(re.search(r"\\mathbb|\\emptyset|\\setminus", shape.text))
    return isinstance(shape, Relation | Union | Both)


def _set(shape: Shape, gold: bool) -> Any:
    """The set of real numbers that a shape stands for, or None."""
    if isinstance(shape, Union | Both):
        parts = [_set(part, gold) for part in shape.parts]
        if any(part is None for part in parts):
            return None
        return sympy.Union(*parts) if isinstance(shape, Union) else sympy.Intersection(*parts)
    if isinstance(shape, Group):
        values: list[Any] = [parse(part.text, gold) if isinstance(part, Scalar) else None for part in shape.parts]
        if any(value is None or not value.is_number for value in values):
            if not shape.open and all(
                isinstance(part, Relation | Scalar) and is_condition(part) for part in shape.parts
            ):
                return _set(Both(shape.parts), gold)  # conditions with commas between: all hold
            return None
        if shape.open in ("(", "[") and len(values) == 2:
            closed_at_infinity = (shape.open == "[" and values[0].is_infinite) or (
                shape.close == "]" and values[1].is_infinite
            )
            if not all(value.is_extended_real for value in values):
                return None
            if closed_at_infinity or (values[0] < values[1]) != sympy.true:
                return None  # a pair, or no interval at all
            return sympy.Interval(values[0], values[1], shape.open == "(", shape.close == ")")
        return sympy.FiniteSet(*values) if shape.open in ("{", "") else None
    if isinstance(shape, Relation):
        return _solved(shape, gold)
    if isinstance(shape, Scalar):
        return _named_set(shape.text, gold)
    return None


def _unknowns(shape: Shape) -> Iterator[str]:
    """The names that conditions are about."""
    if isinstance(shape, Relation):
        for text in shape.texts:
            if is_label(text):
                yield text.strip()
            elif absolute := _ABSOLUTE.fullmatch(text):
                yield absolute.group(1)
    elif isinstance(shape, Union | Both | Group):
        for part in shape.parts:
            yield from _unknowns(part)


def is_solved(chain: Relation, gold: bool) -> bool:
    """Whether it says what one unknown is: `x<3`, `5=x`, `2<x<3`. What first has to be solved is a question."""
    at = [number for number, text in enumerate(chain.texts) if is_label(text) or _ABSOLUTE.fullmatch(text)]
    if len(at) != 1 or not (len(chain.texts) == 2 or (len(chain.texts) == 3 and at == [1])):
        return False
    if len(chain.texts) == 3 and rising(chain) is None:
        return False
    try:
        sides = [parse(text, gold) for text in chain.texts]
    except Unreadable:
        return False
    unknown = sides.pop(at[0])
    if isinstance(unknown, sympy.Abs) and not chain.equation:
        unknown = unknown.args[0]  # |x| < 4
    return isinstance(unknown, sympy.Symbol) and all(getattr(side, "is_number", False) for side in sides)


def _solved(chain: Relation, gold: bool) -> Any:
    """The numbers for which a solved condition holds; None for one that is not solved."""
    if not is_solved(chain, gold):
        return None
    sides = [parse(text, gold) for text in chain.texts]
    found: Any = sympy.S.Reals
    kinds = {"=": sympy.Eq, "<": sympy.Lt, ">": sympy.Gt, r"\le": sympy.Le, r"\ge": sympy.Ge, r"\ne": sympy.Ne}
    if not all(side.is_extended_real for side in sides):
        return None  # no order, and no set of real numbers
    for left, sign, right in zip(sides, chain.signs, sides[1:], strict=False):
        condition = kinds[sign](left, right)
        if condition in (True, False):
            found = found if condition else sympy.S.EmptySet
            continue
        try:
            found = sympy.Intersection(found, condition.as_set())
        except (NotImplementedError, TypeError, ValueError):
            return None
    return found


def _named_set(text: str, gold: bool) -> Any:
    text = text.strip()
    if text in _SETS:
        return _SETS[text]
    if match := _COMPLEMENT.fullmatch(text):
        sides = [read(side)[0] for side in match.groups()]
        if any(isinstance(side, Scalar) and not is_condition(side) for side in sides):
            return None  # a number is no set
        base, taken = (_set(side, gold) for side in sides)
        return None if base is None or taken is None else sympy.Complement(base, taken)
    value = parse(text, gold)
    return sympy.FiniteSet(value) if getattr(value, "is_number", False) and value.is_real else None


def rising(chain: Relation) -> Relation | None:
    r"""The chain with all signs `<`, `\le` (or `\ne`, which stays); None where they point both ways."""
    if set(chain.signs) <= {"<", r"\le"} or chain.signs == (r"\ne",):
        return chain
    if set(chain.signs) <= {">", r"\ge"}:
        turned = tuple("<" if sign == ">" else r"\le" for sign in reversed(chain.signs))
        return Relation(tuple(reversed(chain.texts)), turned)
    return None
