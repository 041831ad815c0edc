"""Conditions, intervals, unions and sets, compared as sets of real numbers. Runs in a worker: it has no time limit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import sympy

from tasks.assertions.math.expressions import Unreadable, parse
from tasks.assertions.math.shapes import Both, Group, Relation, Scalar, Shape, Union, is_label, read

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
