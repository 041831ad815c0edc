"""Exact values of plain arithmetic, and units of measure by one spelling each."""

from __future__ import annotations

import re
from fractions import Fraction

# ---------------------------------------------------------------------------------------------------------------------
# Exact values of plain arithmetic: integers, decimals, fractions, sums, products and small powers, as a `Fraction`.
#
# Most answers are such numbers, and none of them needs a computer algebra system, or may be rounded.

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


# -- Units of measure at the end of an answer: taken off, and known by one spelling each ------------------------------

_SPELLINGS = {
    "percent": "% percent percentage pct", "degree": "degree degrees deg ^\\circ", "dollar": "dollar dollars usd",
    "cent": "cent cents", "inch": "inch inches", "foot": "foot feet ft", "yard": "yard yards yd yds",
    "mile": "mile miles mi", "mm": "mm millimeter millimeters millimetres",
    "cm": "cm centimeter centimeters centimetres",
    "m": "meter meters metre metres", "km": "km kilometer kilometers kilometres", "mg": "mg milligram milligrams",
    "g": "gram grams gm gms", "kg": "kg kilogram kilograms", "pound": "pound pounds lb lbs",
    "ounce": "ounce ounces oz", "ton": "ton tons", "second": "second seconds sec secs",
    "minute": "minute minutes min mins", "hour": "hour hours hr hrs", "day": "day days", "week": "week weeks",
    "month": "month months", "year": "year years", "liter": "liter liters litre litres",
    "ml": "ml milliliter milliliters", "gallon": "gallon gallons", "unit": "unit units",
    "point": "point points", "radian": "radian radians",
    "way": "way ways", "person": "person people persons student students", "integer": "integer integers",
}  # fmt: skip
_IN_SMALLEST = {
    unit: (number, Fraction(size))
    for number, sizes in enumerate((
        {"cent": 1, "dollar": 100}, {"mm": 1, "cm": 10, "m": 1000, "km": 10**6},
        {"inch": 1, "foot": 12, "yard": 36, "mile": 63360}, {"mg": 1, "g": 1000, "kg": 10**6}, {"ml": 1, "liter": 1000},
        {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}, {"ounce": 1, "pound": 16},
    ))
    for unit, size in sizes.items()
}  # fmt: skip
_KNOWN = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_SPEEDS = {"mph": "mile/hour", "kmh": "km/hour", "kph": "km/hour", "kmph": "km/hour"}
_PER = {"h": "hour", "s": "second"}
"""Units of one letter behind a stroke."""
_POWERS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}
_LETTERS = frozenset("mgshlL")
"""Units of one letter; other letters are names."""
_MEANING_WORDS = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred hundreds thousand thousands million
millions billion billions trillion trillions quadrillion dozen dozens score half halves third thirds fourth fourths
quarter quarters fifth fifths sixth sixths seventh sevenths eighth eighths ninth ninths tenth tenths hundredth
hundredths thousandth thousandths millionth millionths gross k mil bn mn kilo mega giga
double triple twice thrice itself squared cubed factorial plus minus add subtract over divided multiplied power
root mod modulo base bar repeating recurring remainder negative positive choose log ln sin cos tan pi infinity
infinite prime sum product inverse reciprocal raised exponent to from through between until
or and not no non if iff than nor neither either but except excluding unless when where without instead rather
isn is are was be more less fewer greater most least above below under up almost nearly about approximately
approx around roughly maybe perhaps probably possibly likely wrong false incorrect impossible never none nothing
invalid undefined unknown any all every other another also both true equals equal am pm noon midnight
"""
_MEANING = frozenset(_MEANING_WORDS.split())
"""Words beside a number that say more than what is counted."""
_END = re.compile(
    r"(?:\\text\{(?P<text>[^{}]*)\}|(?P<sign>%|\^\\circ)|(?<![A-Za-z\\])(?P<word>[A-Za-z]{2,}))"
    r"\s*(?:\^\{(?P<power>[23])\})?\s*[./]?\s*$"
)


def split_unit(text: str) -> tuple[str, str]:
    r"""Return an answer without the unit at its end, and the unit in one spelling: `cm^2`; empty where there is none.

    `\text{...}` behind a value is a unit if it is `neutral`; a plain word must be a known one. Of an answer that is
    words alone nothing is taken.
    """
    whole = text
    found: list[str] = []
    while (match := _END.search(text)) and text[: match.start()].strip():
        word = match.group("word")
        if word is not None and word.lower() not in _KNOWN and word.lower() not in _POWERS:
            break
        rest = text[: match.start()]
        if word is not None and not re.search(r"[\d})]\s*$|[A-Za-z]\s+$", rest):
            break
        if match.group("text") is not None and not (neutral(match.group("text")) or _temperature(rest, match)):
            break
        inside = match.group("text") if match.group("text") is not None else (word or match.group("sign"))
        found.insert(0, inside + (f"^{match.group('power')}" if match.group("power") else ""))
        text = rest.rstrip(" /")
    unit = one_spelling(" ".join(found))
    return (whole, "") if unit.startswith("^") else (text, unit)  # "squared" alone is no unit


def factor(unit: str, other: str) -> Fraction | None:
    """How many of the other unit one unit is; None where they measure different things, or are not known."""
    one, two = _IN_SMALLEST.get(unit), _IN_SMALLEST.get(other)
    return one[1] / two[1] if one is not None and two is not None and one[0] == two[0] else None


def _temperature(rest: str, match: re.Match[str]) -> bool:
    return rest.rstrip().endswith(r"\circ") and match.group("text").strip() in ("C", "F")


def neutral(words: str) -> bool:
    """Whether words beside a number only say what is counted, so that they may go: `cm`, `cm^2`, `apples`."""
    names = re.findall(r"[A-Za-z]+", words)
    known = one_spelling(words)
    if (known and not known.startswith("^")) or not words.strip(" .,"):
        return True
    return bool(names and re.fullmatch(r"[A-Za-z .,/-]*", words)) and all(
        name in _LETTERS or (len(name) > 1 and name.lower() not in _MEANING and name.lower() not in _POWERS)
        for name in names
    )


def one_spelling(words: str) -> str:
    """Return a unit in one spelling, or empty where some word of it is unknown."""
    names: list[str] = []
    power = ""
    for word in re.findall(r"[A-Za-z]+|\^\{?\d\}?|%|\^\\circ", words):
        low = word.lower()
        if low in _POWERS:
            power = _POWERS[low]
        elif re.fullmatch(r"\^\{?\d\}?", low):
            power = "^" + low.strip("^{}")
        elif low in _KNOWN or low in _SPEEDS:
            names.append(_KNOWN.get(low) or _SPEEDS[low])
        elif names and (low == "per" or low in _PER):
            names += [_PER[low]] if low in _PER else []
        elif low == "m":
            names.append("m")
        else:
            return ""
    return "/".join(names) + power
