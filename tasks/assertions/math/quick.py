"""What can be told without computer algebra: equal spellings, plain arithmetic, words."""

from __future__ import annotations

import re
from fractions import Fraction

from tasks.assertions.math.normalise import normalise
from tasks.assertions.math.shapes import Group, Scalar, Shape, Word, read
from tasks.assertions.math.units import factor

_ONLY_LETTERS = re.compile(r"[A-Za-z]{2,}")
_PRODUCT = re.compile(r"[abcdfghj-npqrstvwxyz]{2,3}")
"""Letters side by side that are a product, in any order, and not a word or a line of geometry."""
_PLAIN_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]{2,}")


def quick_verdict(gold: str, answer: str) -> bool | None:
    """Compare two answers as they stand in their boxes; None if that takes more than spelling and plain arithmetic."""
    left, right = normalise(gold), normalise(answer)
    if left == right and left:
        return True
    found: bool | None = False
    for one in read(left):
        for other in read(right):
            if one == other:
                return True
            if not (isinstance(one, Scalar) and isinstance(other, Scalar)):
                found = None
                continue
            verdict = same_scalar(one, other)
            if verdict:
                return True
            if verdict is None:
                found = None
    return found


def list_length(gold: str) -> int:
    """Return how many answers a gold answer lists: a plain list or a set; 1 for what is no list."""
    shape = read(normalise(gold))[-1]
    return len(shape.parts) if isinstance(shape, Group) and shape.open in ("", "{") else 1


def same_scalar(gold: Scalar, answer: Scalar) -> bool | None:
    """Compare two scalars by spelling and exact value; None where that cannot tell."""
    if gold.unit and answer.unit and gold.unit != answer.unit:
        times = factor(gold.unit, answer.unit)  # 75 cents are 0.75 dollars, and 75 dollars are not
        exact = gold.exact is not None and answer.exact is not None and times is not None
        return exact and gold.exact * times == answer.exact  # type: ignore[operator]
    if _tight(gold.text) == _tight(answer.text) != "":
        return True
    if _PLAIN_WORDS.fullmatch(gold.text) and _PLAIN_WORDS.fullmatch(answer.text) and words(gold) == words(answer):
        return True
    if _ONLY_LETTERS.fullmatch(gold.text) and _ONLY_LETTERS.fullmatch(answer.text):
        product = all(_PRODUCT.fullmatch(side.text) for side in (gold, answer))
        return None if product else False
    if gold.exact is None or answer.exact is None:
        return None
    if gold.percent == answer.percent:
        return gold.exact == answer.exact
    return bool(_values(gold) & _values(answer))


def _tight(text: str) -> str:
    """Without the blanks that mean nothing: all but those between digits or letters."""
    return re.sub(r"(?<![0-9A-Za-z]) | (?![0-9A-Za-z])", "", text)


def _values(scalar: Scalar) -> set[Fraction | None]:
    """A percentage is its number, since golds leave the sign out, and the hundredth of it."""
    value = scalar.exact
    return {value, value / 100} if scalar.percent and value is not None else {value}


def same_words(gold: Shape, answer: Shape) -> bool:
    """Compare answers of which at least one is words: case, wrapper, brackets and hyphens do not count."""
    left, right = words(gold), words(answer)
    return bool(left) and left == right


def words(shape: Shape) -> str:
    """Return an answer in words in one spelling; empty for what is no word."""
    if not isinstance(shape, Scalar | Word):
        return ""
    text = re.sub(r"\\text\{([^{}]*)\}", r" \1 ", shape.text)
    text = re.sub(r"[-_~\u2019']+", " ", text.lower())
    text = re.sub(r"(?<=\d)(?:st|nd|rd|th)\b", "", text)
    text = re.sub(r"\s+", " ", text).strip(' .,:;!*()[]{}"`')
    return re.sub(r"^(?:the|a|an) (?=\w{2})", "", text)
