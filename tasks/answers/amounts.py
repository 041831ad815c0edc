"""Numbers with their units as amounts: which of them are the same, and which make one together.

`1 hour and 45 minutes` is one amount, and the same as `105 minutes`; `$0.80` is `80 cents`, `2 dozen` is 24.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile

import regex as re

from tasks.answers.numbers import Number, numbers_in, value

_UNITS: dict[str, tuple[str, Number]] = {
    name: (kind, size)
    for kind, units in dict[str, dict[str, Number]]({
        "metric length": {"mm": 1, "millimeter": 1, "millimetre": 1, "cm": 10, "centimeter": 10, "centimetre": 10,
                          "m": 1000, "meter": 1000, "metre": 1000, "km": 10**6, "kilometer": 10**6, "kilometre": 10**6},
        "length": {"in": 1, "inch": 1, "inche": 1, "ft": 12, "foot": 12, "feet": 12, "yd": 36, "yard": 36,
                   "mile": 63360},
        "metric mass": {"mg": 1, "g": 1000, "gram": 1000, "kg": 10**6, "kilogram": 10**6, "kilo": 10**6},
        "mass": {"oz": 1, "ounce": 1, "lb": 16, "pound": 16, "ton": 32000},
        "metric volume": {"ml": 1, "milliliter": 1, "millilitre": 1, "l": 1000, "liter": 1000, "litre": 1000},
        "volume": {"teaspoon": 1, "tablespoon": 3, "cup": 48, "pint": 96, "quart": 192, "gallon": 768},
        "time": {"s": 1, "sec": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hr": 3600, "hour": 3600,
                 "day": 86400, "week": 604800},
        "long time": {"month": 1, "year": 12},
        "money": {"cent": 1, "penny": 1, "pennie": 1, "dollar": 100, "$": 100},
        "count": {"": 1, "%": Fraction(1, 100), "pair": 2, "dozen": 12},
    }).items()
    for name, size in units.items()
}  # fmt: skip
"""Unit without its plural `s`: what it measures, and how large it is."""
_UNIT_BEHIND = re.compile(r"[*_)]{0,3} ?-?([A-Za-z]{1,12})\b")


@dataclass(frozen=True, slots=True)
class Amount:
    """A number with its unit, or several that make one amount: `1 hour and 45 minutes`.

    Attributes:
        start: Where its first number begins.
        end: Where its last number ends.
        kind: What it measures.
        size: How much, in the smallest unit of the kind.
        units: The size of each of its units, the smallest last.
    """

    start: int
    end: int
    kind: str
    size: Number
    units: tuple[Number, ...]

    @property
    def number(self) -> Number:
        """The amount, counted in the last of its units."""
        return Fraction(self.size) / self.units[-1]


_JOINED = re.compile(r" ?-?[A-Za-z]{1,12}\.?,? (?:and )?")
_JOINED_TO = re.compile(rf"[0-9]{_JOINED.pattern}\$?\Z")
_JOINED_ON = re.compile(rf"{_JOINED.pattern}[0-9]")


def amounts(text: str, cores: list[re.Match[str]]) -> list[Amount]:
    """Return the amounts that numbers in a text make with their units, from the left."""
    found: list[Amount] = []
    for core in cores:
        one = _amount(text, core)
        last = found[-1] if found else None
        if one is None:
            continue
        if (
            last is not None
            and last.kind == one.kind
            and max(one.size, one.units[0]) < last.units[-1]
            and _JOINED.fullmatch(text, last.end, one.start)
        ):
            found[-1] = Amount(last.start, one.end, one.kind, last.size + one.size, last.units + one.units)
        else:
            found.append(one)
    return found


def same_amounts(text: str, start: int, end: int) -> list[Number]:
    """Return an amount in its other units, and as it stands beside in others: `90 minutes (1.5 hours)`."""
    found = amounts(text, _near(text, start, end))
    here = next((at for at, one in enumerate(found) if one.end == end), None)
    if here is None:
        return []
    one = found[here]
    same = [one]
    for side in (found[:here][::-1], found[here + 1 :]):
        for other in takewhile(lambda other: (other.kind, other.size) == (one.kind, one.size), side):
            same.append(other)
            if "\n" in text[min(other.end, end) : max(other.start, start)]:
                break  # what stands in another line is looked at, but not what is beside that
    return [Fraction(one.size) / unit for other in same for unit in other.units]


def compound(text: str, start: int, end: int) -> Amount | None:
    """Return the amount of several units that begins with, or ends with, the number at a place; None if none does."""
    if not (_JOINED_TO.search(text, max(0, start - 24), start) or _JOINED_ON.match(text, end)):
        return None
    return next(
        (
            one
            for one in amounts(text, _near(text, start, end))
            if len(one.units) > 1 and (one.start == start or one.end == end)
        ),
        None,
    )


def _near(text: str, start: int, end: int) -> list[re.Match[str]]:
    start = max(0, start - 80)
    while 0 < start < end and text[start - 1] in "0123456789.,":
        start += 1  # not in the middle of a number
    return list(numbers_in(text, start, min(len(text), end + 80)))


def _amount(text: str, core: re.Match[str]) -> Amount | None:
    """The amount of one number; without a unit that is known, or any, it is a count."""
    number = value(core)
    if number is None:
        return None
    if text[max(0, core.start() - 1) : core.start()] == "$":
        name = "$"
    elif core[0].endswith("%"):
        name = "%"
    else:
        found = _UNIT_BEHIND.match(text, core.end())
        name = "" if found is None else found[1].lower()
        name = name if name in _UNITS else name.removesuffix("s")
    kind, size = _UNITS.get(name, _UNITS[""])
    return Amount(core.start(), core.end(), kind, number * size, (size,))
