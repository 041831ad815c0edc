"""Whether two answers are the same, decided with sympy and math-verify. Runs in a worker: it has no time limit.

An answer is read as shapes (see `shapes`); only the scalars at the leaves are parsed by math-verify's parser and
compared by value (see `expressions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import sympy
from sympy.core import random as sympy_random

from tasks.answers.math.expressions import (
    Unreadable,
    is_condition,
    is_solved,
    parse,
    rising,
    same_parsed,
    same_set,
    same_value,
)
from tasks.answers.math.extraction import minerva_form
from tasks.answers.math.normalise import normalise
from tasks.answers.math.shapes import (
    Based,
    Both,
    Clock,
    Dots,
    Group,
    Matrix,
    Relation,
    Residues,
    Scalar,
    Shape,
    Union,
    Word,
    is_label,
    read,
    same_scalar,
    same_words,
)

# One letter that is no part of a command or a word.
_NAME = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_MOST_WRITTEN_OUT = 200
_ANY_CONSTANT = re.compile(r"\+\s*[CcKk]\s*\Z")
_COUNTER = re.compile(r"(?<![\\A-Za-z])[kmn](?![A-Za-z])")
"""The names that go through the whole numbers in a family of angles."""
_QUANTITY = re.compile(r"(?:[A-Za-z](?:_\{?\w\}?)?|\^\{\d\}|\\(?:frac|cdot|sqrt)(?![A-Za-z])|[-+/ (){}])+")
_MEASURE = re.compile(
    r"(?:\|(?:\\text\{)?[A-Z]{2}\}?\||\[[A-Z]{3,6}\]|(?:P|\\Pr|\\text\{P\})\s*\([^=<>]*\)"
    r"|(?:[-+ ]*[fgh]\(-?\d+\)){1,6})"
)
"""What a question asks for: `m+n`, `\\frac{a}{b}`, `|AB|`, `P(A \\cap B)`, `f(2)+f(3)`."""
# (x,y) as the left side of (x,y)=(1,2).
_NAMED_TUPLE = re.compile(r"\([A-Za-z](?: ?, ?[A-Za-z])+\)")
# 7k+3 and 3+7k: the family of numbers with one remainder.
_LINEAR = re.compile(r"([1-9]\d{0,8})[kmnt]([-+]\d{1,9})?|(-?\d{1,9})\+([1-9]\d{0,8})[kmnt]")
_OF_X = re.compile(r"[fgh]\s*\(\s*x\s*\)")


def equivalent(gold: str, answer: str) -> bool:
    """Whether an answer is the same as the gold one, both as they stand in their boxes.

    Raises:
        Unreadable: one of them is beyond the parser, and they differ as texts.
    """
    sympy_random.seed(0)  # sympy tries random points; the verdict must not depend on what was asked before
    unread: Unreadable | None = None
    for left in read(normalise(gold)):
        for right in read(normalise(answer)):
            try:
                if same(left, right):
                    return True
            except Unreadable as error:
                unread = unread or error
    if unread is not None:
        raise unread
    return False


def computable(gold: str, _: str = "") -> bool:
    """Whether a gold answer can be computed with: compares each expression in it with itself, as `equivalent` would.

    Raises:
        Unreadable: it is beyond the parser.
    """
    sympy_random.seed(0)
    for shape in read(normalise(gold)):
        for text in _expressions(shape):
            value = parse(text, True)
            same_parsed(value, value)
    return True


def _expressions(shape: Shape) -> Iterator[str]:
    """The expressions of a gold answer that are compared by value."""
    if isinstance(shape, Scalar):
        if shape.exact is None and not is_condition(shape):
            yield shape.text
    elif isinstance(shape, Relation):
        yield from (text for text in shape.texts if not is_label(text))
    elif isinstance(shape, Matrix):
        for row in shape.rows:
            for cell in row:
                yield from _expressions(cell)
    elif isinstance(shape, Group | Union | Both):
        for part in shape.parts:
            yield from _expressions(part)


def minerva_equivalent(gold: str, answer: str) -> bool:
    """Whether the difference of two answers in Minerva's spelling simplifies to 0; unreadable ones are different."""
    sympy_random.seed(0)
    left, right = minerva_form(gold), minerva_form(answer)
    if left == right:
        return True
    try:
        difference = parse(left, True) - parse(right, False)
        return bool(sympy.simplify(difference) == 0)
    except (Unreadable, TypeError, ValueError, AttributeError):
        return False


def same(gold: Shape, answer: Shape) -> bool:
    """Compare two shapes, the gold one first."""
    if gold == answer and not isinstance(gold, Dots):
        return True
    if isinstance(gold, Word) or isinstance(answer, Word):
        return same_words(gold, answer)
    if isinstance(gold, Scalar) and isinstance(answer, Scalar):
        quick = same_scalar(gold, answer)
        return quick if quick is not None else same_value(*_comparable(gold, answer))
    if isinstance(gold, Based) or isinstance(answer, Based):
        return _same_digits(gold, answer)
    if isinstance(gold, Residues) or isinstance(answer, Residues):
        return _same_residues(gold, answer)
    if isinstance(gold, Matrix) and isinstance(answer, Matrix):
        return (
            gold.bars == answer.bars
            and [len(row) for row in gold.rows] == [len(row) for row in answer.rows]
            and all(
                same(left, right)
                for left_row, right_row in zip(gold.rows, answer.rows, strict=True)
                for left, right in zip(left_row, right_row, strict=True)
            )
        )
    if isinstance(gold, Relation) and isinstance(answer, Relation):
        return _same_relation(gold, answer)
    if (plain := _unlabelled(gold, True)) is not None:
        return same(plain, answer)
    if (plain := _unlabelled(answer, False)) is not None:
        return same(gold, plain)
    if isinstance(gold, Group) and isinstance(answer, Group):
        gold, answer = _written_out(gold), _written_out(answer)
        return _same_group(gold, answer) or same_set(gold, answer)
    if isinstance(gold, Clock) and isinstance(answer, Clock):
        return gold.parts == answer.parts and "" in (gold.half, answer.half)
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Scalar) and isinstance(other, Clock):
            if len(other.parts) == 2 and not other.half:  # as written: 5/2 and 5:2, not 1/5 and 6:30
                return one.text == rf"\frac{{{other.parts[0]}}}{{{other.parts[1]}}}"
            return len(other.parts) == 1 and one.exact == other.parts[0]  # 10, 10 am
    if isinstance(gold, Clock) or isinstance(answer, Clock) or isinstance(gold, Dots) or isinstance(answer, Dots):
        return False  # their equals were the same at once
    for one, other in ((gold, answer), (answer, gold)):
        if isinstance(one, Matrix) and isinstance(other, Group) and (parts := _vector(one)) and other.open == "(":
            return other.close == ")" and _same_group(Group("(", ")", parts), other)
    if isinstance(gold, Matrix) or isinstance(answer, Matrix):
        return same_value(_text(gold), _text(answer)) if isinstance(gold, Scalar | Matrix) else False
    if any(isinstance(side, Group) and side.open == "{" and len(side.parts) == 1 for side in (gold, answer)):
        left = gold.parts[0] if isinstance(gold, Group) else gold
        right = answer.parts[0] if isinstance(answer, Group) else answer
        return not isinstance(left, Group) and not isinstance(right, Group) and same(left, right)
    return same_set(gold, answer)


def _comparable(gold: Scalar, answer: Scalar) -> tuple[str, str]:
    r"""Two texts that have one value where the answers do: `60^\circ` in radians, one name for a family's number."""
    texts = [gold.text, answer.text]
    for at, (one, other) in enumerate(((gold, answer), (answer, gold))):
        if one.unit == "degree" and not other.unit and r"\pi" in other.text and r"\pi" not in one.text:
            texts[at] = rf"\frac{{({one.text})\cdot\pi}}{{180}}"
    if all(r"\pi" in text for text in texts):
        names = [set(_COUNTER.findall(text)) for text in texts]
        if len(names[0]) == len(names[1]) == 1:
            texts[1] = _COUNTER.sub(names[0].pop(), texts[1])
    if gold.text.rstrip().endswith("C") and all(_ANY_CONSTANT.search(text) for text in texts):
        texts[1] = _ANY_CONSTANT.sub("+C", texts[1])  # of integration
    return texts[0], texts[1]


def _vector(matrix: Matrix) -> tuple[Shape, ...]:
    """The entries of one row or one column; none of a larger matrix."""
    if matrix.bars or not matrix.rows or (len(matrix.rows) > 1 and any(len(row) > 1 for row in matrix.rows)):
        return ()
    return tuple(cell for row in matrix.rows for cell in row)


def _same_digits(gold: Shape, answer: Shape) -> bool:
    """Digits to a base: the base may be left out, since the question names it, but must not be another one."""
    if isinstance(gold, Based) and isinstance(answer, Based) and gold.base != answer.base:
        return False
    if not isinstance(gold, Based) and isinstance(answer, Based) and answer.base != 10:
        return False  # a gold answer without a base is a plain number
    digits = [side.digits if isinstance(side, Based) else _text(side).upper() for side in (gold, answer)]
    return digits[0].lstrip("0") == digits[1].lstrip("0") != ""


def _same_residues(gold: Shape, answer: Shape) -> bool:
    """The same remainders by the same modulus; a number is met by itself with a modulus behind it, not by a family."""
    if isinstance(gold, Residues) and isinstance(answer, Residues):
        names = {gold.name, answer.name} - {""}
        return len(names) < 2 and (gold.modulus, gold.remainders) == (answer.modulus, answer.remainders)
    if isinstance(gold, Residues) and (family := _family(answer)) is not None:
        return len({gold.name, family.name} - {""}) < 2 and (gold.modulus, gold.remainders) == (
            family.modulus,
            family.remainders,
        )
    if isinstance(gold, Scalar) and isinstance(answer, Residues):
        return not answer.name and len(answer.written) == 1 and gold.exact == answer.written[0]
    return False


def _family(shape: Shape) -> Residues | None:
    """The numbers `7k+3`, with or without `x =`, as remainders; None for what is no such family."""
    name = ""
    if isinstance(shape, Relation) and shape.equation and len(shape.texts) == 2 and is_label(shape.texts[0]):
        name, text = shape.texts[0].strip(), shape.texts[1]
    elif isinstance(shape, Scalar):
        text = shape.text
    else:
        return None
    match = _LINEAR.fullmatch(text.replace(" ", ""))
    if match is None:
        return None
    modulus, rest = (match.group(1), match.group(2)) if match.group(1) else (match.group(4), match.group(3))
    return Residues(name, (int(rest or 0),), int(modulus))


def _same_group(gold: Group, answer: Group) -> bool:
    if len(gold.parts) != len(answer.parts):
        return False
    brackets = (gold.open + gold.close, answer.open + answer.close)
    if all(brackets) and brackets[0] != brackets[1]:
        return False
    lists = [_bare_values(group) for group in (gold, answer)]
    if all(found is not None for found in lists) or not any(
        isinstance(part, Relation) for group in (gold, answer) for part in group.parts
    ):
        gold_parts, answer_parts = (found or group.parts for found, group in zip(lists, (gold, answer), strict=True))
    else:
        gold_parts, answer_parts = gold.parts, answer.parts
    if gold.ordered or answer.ordered:
        return all(
            isinstance(left, Dots) and isinstance(right, Dots) or same(left, right)
            for left, right in zip(gold_parts, answer_parts, strict=True)
        )
    return _matched(list(gold_parts), list(answer_parts))


def _written_out(group: Group) -> Group:
    r"""`1,2,\ldots,5` in full, where the first numbers say the step; the group itself where they do not."""
    if Dots() not in group.parts:
        return group
    at = group.parts.index(Dots())
    first, rest = [_whole(part) for part in group.parts[:at]], [_whole(part) for part in group.parts[at + 1 :]]
    if len(first) < 2 or not rest or None in (*first, *rest):
        return group
    known: list[int] = [number for number in (*first, *rest) if number is not None]
    step = known[1] - known[0]
    count = (known[-1] - known[0]) // step + 1 if step else 0
    if not len(known) <= count <= _MOST_WRITTEN_OUT:
        return group
    full = [known[0] + step * number for number in range(count)]
    if full[: len(first)] + full[count - len(rest) :] != known:
        return group
    return Group(group.open, group.close, tuple(Scalar(str(number)) for number in full))


def _whole(part: Shape) -> int | None:
    exact = part.exact if isinstance(part, Scalar) else None
    return int(exact) if exact is not None and exact.denominator == 1 else None


def _matched(gold: list[Shape], answer: list[Shape]) -> bool:
    """Pair each gold part with another answer part. Being the same is transitive, so the first that fits will do."""
    left = list(answer)
    unread: Unreadable | None = None
    for part in gold:
        for at, other in enumerate(left):
            try:
                if same(part, other):
                    del left[at]
                    break
            except Unreadable as error:
                unread = unread or error
        else:
            if unread is not None:
                raise unread
            return False
    return True


def _bare_values(group: Group) -> tuple[Shape, ...] | None:
    """The values of `x=1, x=2` or `x=1, 2`, where one name stands for all; None otherwise."""
    first = group.parts[0] if group.parts else None
    named = [part for part in group.parts if isinstance(part, Relation)]
    if group.open or not isinstance(first, Relation) or not all(_named(part) for part in named):
        return None if named else group.parts
    if len({part.texts[0].strip() for part in named}) != 1:
        return None
    return tuple(read(part.texts[-1])[0] if isinstance(part, Relation) else part for part in group.parts)


def _named(part: Relation) -> bool:
    return part.equation and is_label(part.texts[0])


def _unlabelled(shape: Shape, gold: bool) -> Shape | None:
    """The value of `x = 5`, `5 = x` or `2*3 = 6`; None for what is no equation, or a true equation of two unknowns."""
    if not isinstance(shape, Relation) or not shape.equation:
        return None
    first, last = shape.texts[0], shape.texts[-1]
    if is_label(first) or _named_tuple(first):
        return read(last)[0]
    if is_label(last) and not _NAME.search(first):
        return read(first)[0]
    if _quantity(first, gold) and not _NAME.search(last):
        return read(last)[0]
    try:
        return read(last)[0] if same(read(first)[0], read(last)[0]) else None
    except Unreadable as error:  # both sides are of one answer
        raise Unreadable(error.text, gold) from error


def _quantity(text: str, gold: bool) -> bool:
    """Whether it is what a question asks for, not an equation of an unknown or, as the gold answer, of a curve."""
    names = set(_NAME.findall(text))
    asked = len(names) > 1 and bool(_QUANTITY.fullmatch(text)) and not (gold and names & set("xyz"))
    return asked or bool(_MEASURE.fullmatch(text.strip()))


def _named_tuple(text: str) -> bool:
    """Whether it is names in the order of the alphabet, as in `(x,y)=(1,2)`."""
    names = text.replace(" ", "")[1:-1].split(",")
    return bool(_NAMED_TUPLE.fullmatch(text.strip())) and names == sorted(names)


def _same_relation(gold: Relation, answer: Relation) -> bool:
    if gold.equation and answer.equation:
        ends = [(chain.texts[0].strip(), chain.texts[-1].strip()) for chain in (gold, answer)]
        for left in (ends[0], ends[0][::-1]):
            for right in (ends[1], ends[1][::-1]):
                if is_label(left[0]) and (left[0] == right[0] or _same_function(left[0], right[0])):
                    first, second = read(left[1])[0], read(right[1])[0]
                    if same(first, second):
                        return True
        if any(r"\text{" in end for pair in ends for end in pair):
            return False
    if is_solved(gold, True) and not is_solved(answer, False):
        return False  # most likely the question itself
    if gold.equation and answer.equation:
        ends = [(chain.texts[0], chain.texts[-1]) for chain in (gold, answer)]
        return _proportional(_difference(*ends[0], gold=True), _difference(*ends[1], gold=False), negative=True)
    left_chain, right_chain = rising(gold), rising(answer)
    if left_chain is not None and right_chain is not None and left_chain.signs == right_chain.signs:
        if all(
            same(read(left)[0], read(right)[0]) for left, right in zip(left_chain.texts, right_chain.texts, strict=True)
        ):
            return True
        if len(left_chain.signs) == 1:
            first = _difference(left_chain.texts[0], left_chain.texts[1], gold=True)
            second = _difference(right_chain.texts[0], right_chain.texts[1], gold=False)
            if _proportional(first, second, negative=left_chain.signs == (r"\ne",)):
                return True
    return same_set(gold, answer)


def _same_function(one: str, other: str) -> bool:
    """Whether one is `y` and the other a function of `x`."""
    return {"y"} < {one, other} and any(_OF_X.fullmatch(name) for name in (one, other))


def _difference(left: str, right: str, gold: bool) -> Any:
    return parse(left, gold) - parse(right, gold)


def _proportional(gold: Any, answer: Any, negative: bool) -> bool:
    """Whether one expression is the other times a constant other than 0 (above 0, unless `negative`)."""
    if gold == 0 or answer == 0:
        return bool(gold == answer)
    if gold.free_symbols != answer.free_symbols:
        return False
    ratio = sympy.simplify(gold / answer)
    return bool(ratio.is_number and ratio != 0 and ratio.is_finite and (negative or ratio.is_positive))


def _text(shape: Shape) -> str:
    if isinstance(shape, Scalar | Word):
        return shape.text
    if isinstance(shape, Matrix):
        rows = (" & ".join(_text(cell) for cell in row) for row in shape.rows)
        kind = "vmatrix" if shape.bars else "pmatrix"
        return rf"\begin{{{kind}}}" + r" \\ ".join(rows) + rf"\end{{{kind}}}"
    return ""
