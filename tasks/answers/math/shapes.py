"""What kind of thing an answer is, and what can be told of two without computer algebra."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from tasks.answers.math.exact import exact_value, factor, neutral, split_unit
from tasks.answers.math.normalise import normalise

# -- What kind of thing an answer is: a number, a word, a list, a tuple, an interval, an equation, a matrix  ----------
# Reading needs no computer algebra: an answer is cut at its outer commas, brackets and relation signs. What is left at
# the leaves is a scalar, which is compared by value elsewhere.


@dataclass(frozen=True)
class Scalar:
    """One expression. `percent`: it had a percent sign; `unit`: its unit in one spelling, or empty."""

    text: str
    percent: bool = False
    unit: str = ""

    @cached_property
    def exact(self) -> Fraction | None:
        """Its value, where it is plain arithmetic."""
        return exact_value(self.text)


@dataclass(frozen=True)
class Word:
    """An answer in words, or a letter to choose."""

    text: str


@dataclass(frozen=True)
class Group:
    """Several answers: `open` is `(`, `[`, `{`, or empty for a plain list; brackets may differ, as in `[2,5)`."""

    open: str
    close: str
    parts: tuple[Shape, ...]

    @property
    def ordered(self) -> bool:
        """Whether the order counts: in brackets it does, in sets and plain lists not, unless dots stand for more."""
        return self.open in ("(", "[") or any(part == Dots() for part in self.parts)


@dataclass(frozen=True)
class Dots:
    """The dots of an elided sequence."""


@dataclass(frozen=True)
class Union:
    """A union of sets, or conditions of which one must hold."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Both:
    """Conditions that must all hold."""

    parts: tuple[Shape, ...]


@dataclass(frozen=True)
class Relation:
    r"""A chain: `texts[0] signs[0] texts[1] ...`; signs are `=`, `<`, `>`, `\le`, `\ge`, `\ne`."""

    texts: tuple[str, ...]
    signs: tuple[str, ...]

    @property
    def equation(self) -> bool:
        """Whether all signs are equality."""
        return set(self.signs) == {"="}


@dataclass(frozen=True)
class Matrix:
    """Rows of entries. `bars`: it stands for its determinant."""

    rows: tuple[tuple[Shape, ...], ...]
    bars: bool = False


@dataclass(frozen=True)
class Based:
    """Digits to a base."""

    digits: str
    base: int


@dataclass(frozen=True)
class Clock:
    """Whole numbers with colons between: a time or a ratio, compared part by part. `half`: am, pm or empty."""

    parts: tuple[int, ...]
    half: str = ""


@dataclass(frozen=True)
class Residues:
    """The whole numbers with these remainders. `name`: what is one of them, or empty; `written`: as they stand."""

    name: str
    written: tuple[int, ...]
    modulus: int

    @property
    def remainders(self) -> frozenset[int]:
        """Each from 0 up to the modulus."""
        return frozenset(number % self.modulus for number in self.written)


Shape = Scalar | Word | Group | Dots | Union | Both | Relation | Matrix | Based | Clock | Residues

_OPENS, _CLOSES = {"(", "[", "{", r"\{"}, {")", "]", "}", r"\}"}
_TOKEN = re.compile(r"\\begin\{[a-z*]+\}|\\end\{[a-z*]+\}|\\[A-Za-z]+|\\.|.", re.DOTALL)
_SIGNS = {"=", "<", ">", r"\le", r"\ge", r"\ne", r"\in", r"\approx"}
_MATRIX = re.compile(r"\\begin\{([pbBvV]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}", re.DOTALL)
# 1011_2, \text{1A}_{16}, (12)_{\text{eight}}.
_BASED = re.compile(
    r"(?:\\text\{|\()?([0-9A-Za-z]+)[})]?_\{(?:\\text\{)?\(?"
    r"(\d{1,2}|two|three|four|five|six|seven|eight|nine|ten)\)?\}*"
)
_BASES = {
    name: number
    for number, name in enumerate(("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 2)
}
# 6:30, 1:2:3, 5 p.m.: a number alone is a time only with am or pm behind it.
_CLOCK = re.compile(
    r"(\d{1,6}(?: ?: ?\d{1,6})+|\d{1,2}(?= ?(?:\\text\{ ?)?[ap]\.? ?m\.?\}?$)) ?(?:\\text\{ ?)?([ap]\.? ?m\.?)?\}?",
    re.IGNORECASE,
)
# 3\text{ to }4 is 3:4.
_RATIO = re.compile(r"(\d{1,6})\s*\\text\{\s*to\s*\}\s*(\d{1,6})")
# \text{(B)} 12, \text{B.} 12: the letter of a choice and its value, not the first word of a sentence or a sum.
_CHOICE = re.compile(r"\\text\{\s*(\([A-H]\)|[A-H][.:)])\s*\}\s*((?!\\text|[-+=/<>,;^_]|or\b|and\b)\S.*)", re.DOTALL)
# 12,345 may be one number or two: `read` keeps both readings.
_THOUSANDS = re.compile(r"(?<![\d.,])([1-9]\d{0,2}(?:,\d{3})+)(?![\d,])")
_TEXT = re.compile(r"\\text\{([^{}]*)\}")
# x \equiv 3, 5 \pmod{7}, the name and the sign may be left out.
_CONGRUENCE = re.compile(r"(?:([^=]{0,40}?)\s*(?:\\equiv|=))?([^=]*)\\pmod\{(\d{1,9})\}")
_E_NOTATION = re.compile(r"(-?\d+)[eE]([-+]?\d{1,3})")
# x \mid x > 3 in braces: the condition must be about the same letter.
_BUILT = re.compile(
    r"\s*([A-Za-z])\s*(?:\\in\s*\\mathbb\{R\}\s*)?(?:\\mid(?![A-Za-z])|\||:)\s*((?=[^|:]*\1)[^|:]*[<>=\\][^|:]*)"
)
# `and` and `or` between answers, in a text or outside; not within a longer word or a command.
_AND_OR = re.compile(r"\\text\{\s*,?\s*(and|or)\s*\}|(?<![A-Za-z\\])(and|or)(?![A-Za-z])")
# red, blue and green: several words for answers, which may come in any order.
_JOINED_WORDS = re.compile(r"[A-Za-z'-]+(?:,? (?:and )?[A-Za-z'-]+){0,6},? and [A-Za-z'-]+(?: [A-Za-z'-]+)?")
_LETTERS = re.compile(r"[A-Za-z]")


def read(text: str) -> list[Shape]:
    """Return what an answer in one spelling may mean: one reading, or two where commas may be thousands."""
    joined = _THOUSANDS.sub(lambda match: match.group().replace(",", ""), text)
    readings = [_read(joined, 0)]
    if joined != text and not re.search(r",0\d", text):
        readings.append(_read(text, 0))
    if power := _E_NOTATION.fullmatch(text):  # `5e-2` is 0.05, though in a formula it may be 5e less 2
        readings.append(Scalar(rf"{power.group(1)}\cdot 10^{{{power.group(2)}}}"))
    if choice := _CHOICE.fullmatch(text):  # the letter of a choice with its value
        readings += [Word(choice.group(1)), _read(choice.group(2), 0)]
    return readings


def _read(text: str, depth: int) -> Shape:
    text = text.strip()
    if depth > 60:
        return Scalar(text)
    if whole := _TEXT.fullmatch(text):
        return _worded(whole.group(1).strip())
    if text in (r"\ldots", r"\text{etc}"):
        return Dots()
    text = _AND_OR.sub(lambda match: r"\land " if (match.group(1) or match.group(2)) == "and" else r"\lor ", text)
    if r"\pmod" in text and (residues := _residues(text)) is not None:
        return residues
    tokens = [match.group() for match in _TOKEN.finditer(text)]
    outer = _Outer(tokens)
    for cut in (outer.united, outer.joined, outer.listed, outer.related):
        if (found := cut(depth)) is not None:
            return found
    if matrix := _MATRIX.fullmatch(text):
        return Matrix(_rows(matrix.group(2), depth), matrix.group(1)[0] in "vV")
    if clock := _CLOCK.fullmatch(text):
        parts = tuple(int(part) for part in clock.group(1).split(":"))
        return Clock(parts, re.sub(r"[^apm]", "", (clock.group(2) or "").lower()))
    if ratio := _RATIO.fullmatch(text):
        return Clock((int(ratio.group(1)), int(ratio.group(2))))
    if (group := outer.group(depth)) is not None:
        return group
    if (based := _BASED.fullmatch(text)) and any(letter.isdigit() for letter in based.group(1)):
        base = int(_BASES.get(based.group(2), based.group(2)))
        return Based(based.group(1).upper(), base)
    if text.count(r"\pm") == 1 or text.count(r"\mp") == 1:
        sign = r"\pm" if r"\pm" in text else r"\mp"
        return Group("", "", tuple(_read(text.replace(sign, one), depth + 1) for one in ("+", "-")))
    return _scalar(text)


def _residues(text: str) -> Residues | None:
    match = _CONGRUENCE.fullmatch(text)
    if match is None or int(match.group(3)) == 0:
        return None
    numbers = [exact_value(part) for part in re.split(r",|\\land|\\lor", match.group(2)) if part.strip()]
    whole = tuple(int(number) for number in numbers if number is not None and number.denominator == 1)
    name = (match.group(1) or "").strip()
    if not whole or len(whole) != len(numbers) or (name and not is_label(name)):
        return None
    return Residues(name, whole, int(match.group(3)))


def _scalar(text: str) -> Shape:
    bare, unit = split_unit(text)
    percent = unit == "percent"
    if r"\text{" in bare and not re.search(r"\d|\\frac|\\pi|\\sqrt", bare):
        return Word(text)
    if all(neutral(words) for words in _TEXT.findall(bare)) and re.search(r"\d", bare):
        bare = _TEXT.sub(" ", bare)
    return Scalar(bare.strip(), percent, "" if percent else unit)


def _worded(text: str) -> Shape:
    """What stands in a text command: words, but numbers too."""
    if _JOINED_WORDS.fullmatch(text):
        text = re.sub(r",? and ", ",", text)  # in any order
    outer = _Outer(list(text))
    if (found := outer.listed(0, worded=True)) is not None:
        return found
    if not re.search(r"[A-Za-z]", text) or (":" in text and _CLOCK.fullmatch(text)):
        return _read(text, 50)
    return Word(text)


def _rows(body: str, depth: int) -> tuple[tuple[Shape, ...], ...]:
    rows = [row for row in re.split(r"\\cr(?![A-Za-z])|\\hline", body) if row.strip()]
    return tuple(tuple(_read(cell, depth + 1) for cell in row.split("&")) for row in rows)


class _Outer:
    """Cuts a list of tokens where no bracket is open."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def cut(self, at: set[str]) -> tuple[list[str], list[str]]:
        """The pieces between the outer separators, and the separators."""
        pieces: list[list[str]] = [[]]
        separators: list[str] = []
        for token, depth in self._depths():
            if depth == 0 and token in at:
                separators.append(token)
                pieces.append([])
            else:
                pieces[-1].append(token)
        return ["".join(piece).strip() for piece in pieces], separators

    def united(self, depth: int) -> Shape | None:
        pieces, cuts = self.cut({r"\cup"})
        return Union(tuple(_read(piece, depth + 1) for piece in pieces)) if cuts else None

    def joined(self, depth: int) -> Shape | None:
        """`and` and `or`: of conditions, or just of answers."""
        pieces, cuts = self.cut({r"\land", r"\lor"})
        if not cuts:
            return None
        shapes = [_read(piece.strip(" ,"), depth + 1) for piece in pieces if piece.strip(" ,")]
        if all(isinstance(shape, Relation) and not shape.equation for shape in shapes):
            return Both(tuple(shapes)) if set(cuts) == {r"\land"} else Union(tuple(shapes))
        if any(isinstance(shape, Relation) and not shape.equation for shape in shapes) and r"\lor" in cuts:
            return Union(tuple(shapes))
        return Group("", "", tuple(_flat(shapes)))

    def listed(self, depth: int, worded: bool = False) -> Shape | None:
        pieces, cuts = self.cut({",", ";"})
        if not cuts:
            return None
        if worded:
            return Group("", "", tuple(_worded(piece) for piece in pieces if piece))
        parts = tuple(_read(piece, depth + 1) for piece in pieces if piece)
        first = parts[0] if parts else None
        if isinstance(first, Relation) and first.signs == (r"\ne",):  # `x \ne 2, 3`
            parts = tuple(
                Relation((first.texts[0], part.text), first.signs) if isinstance(part, Scalar) else part
                for part in parts
            )
        return Group("", "", parts)

    def related(self, depth: int) -> Shape | None:
        pieces, signs = self.cut(_SIGNS)
        if not signs:
            return None
        if r"\in" in signs and signs.index(r"\in") == 0:
            return _read("".join(pieces[1:]), depth + 1)
        if r"\approx" in signs:
            at = signs.index(r"\approx")
            if at == 0 and not pieces[0] and len(pieces) == 2 and pieces[1]:
                return _read(pieces[1], depth + 1)
            if at == 0 and pieces[0] and not is_label(pieces[0]):
                return _read(pieces[0], depth + 1)
            if at:
                pieces, signs = pieces[: at + 1], signs[:at]
            else:
                signs = ["="] * len(signs)
        if not all(pieces) or r"\not" in self.tokens:
            alone = len(pieces) == 2 and not pieces[0] and signs == ["="]
            return _read(pieces[1], depth + 1) if alone else Scalar("".join(self.tokens))
        return Relation(tuple(pieces), tuple(signs))

    def group(self, depth: int) -> Shape | None:
        """Brackets around everything: a tuple, an interval, a set; around one thing they mean nothing."""
        if len(self.tokens) < 2 or self.tokens[0] not in _OPENS or self.tokens[-1] not in _CLOSES:
            return None
        if any(early for _, early in self._depths(closing=True)):
            return None
        opening, closing = self.tokens[0][-1], self.tokens[-1][-1]
        inner = _Outer(self.tokens[1:-1])
        pieces, cuts = inner.cut({",", ";"})
        if not cuts:
            text = "".join(inner.tokens)
            if (opening, closing) == ("{", "}") and self.tokens[0] == r"\{":
                if built := _BUILT.fullmatch(text):
                    return _read(built.group(2), depth + 1)
                return Group("{", "}", (_read(text, depth + 1),)) if text.strip() else Scalar(r"\emptyset")
            if (opening, closing) != ("(", ")"):
                return None
            shape = _read(text, depth + 1)
            single = isinstance(shape, Scalar) and _LETTERS.fullmatch(shape.text)
            return Word(text) if single else shape
        return Group(opening, closing, tuple(_read(piece, depth + 1) for piece in pieces))

    def _depths(self, closing: bool = False) -> Iterator[tuple[str, int]]:
        """Each token with the number of brackets open at it; with `closing`, 1 where the outermost one closes early."""
        depth, last = 0, len(self.tokens) - 1
        for number, token in enumerate(self.tokens):
            if token in _OPENS or token.startswith(r"\begin{"):
                if not closing:
                    yield token, depth + 1
                depth += 1
            elif token in _CLOSES or token.startswith(r"\end{"):
                depth = max(depth - 1, 0)
                yield token, (1 if depth == 0 and number != last else 0) if closing else depth + 1
            elif not closing:
                yield token, depth


def _flat(shapes: list[Shape]) -> Iterator[Shape]:
    for shape in shapes:
        if isinstance(shape, Group) and not shape.open:
            yield from shape.parts
        else:
            yield shape


_LABEL = re.compile(
    r"(?:\\[a-z]+ ?)?(?:\\text\{[^{}]*\}|\\overline\{[A-Za-z]+\}|[A-Za-z]{1,3}|\\[a-zA-Z]+)"
    r"(?:_\{?\w+\}?|'{1,2}|\^\{-1\}(?= ?\())?(?: ?\([A-Za-z0-9, ]{1,12}\))?|\\frac\{d[a-z]?\}\{d[a-z]\}(?: ?[a-z])?"
)


def is_label(text: str) -> bool:
    r"""Whether it names something: `x`, `f(x)`, `a_1`, `AB`, `\theta`, `\text{Area}`."""
    return bool(_LABEL.fullmatch(text.strip())) and text.strip() not in ("e", "i", r"\pi", r"\infty")


# -- What can be told without computer algebra: equal spellings, plain arithmetic, words ------------------------------

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
