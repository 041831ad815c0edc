"""Units of measure at the end of an answer: taken off, and known by one spelling each."""

from __future__ import annotations

import re

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
    "ml": "ml milliliter milliliters", "gallon": "gallon gallons", "mph": "mph", "unit": "unit units",
    "point": "point points", "radian": "radian radians",
    "way": "way ways", "person": "person people persons student students", "integer": "integer integers",
}  # fmt: skip
_KNOWN = {spelling: unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()}
_POWERS = {"square": "^2", "sq": "^2", "squared": "^2", "cubic": "^3", "cubed": "^3", "cu": "^3"}
_END = re.compile(
    r"(?:\\text\{(?P<text>[^{}]*)\}|(?P<sign>%|\^\\circ)|(?<![A-Za-z\\])(?P<word>[A-Za-z]{2,}))"
    r"\s*(?:\^\{(?P<power>[23])\})?\s*[./]?\s*$"
)


def split_unit(text: str) -> tuple[str, str]:
    r"""Return an answer without the unit at its end, and the unit in one spelling: `cm^2`; empty where there is none.

    `\text{...}` behind a value is a unit whatever it says; a plain word must be a known one. Of an answer that is words
    alone nothing is taken.
    """
    found: list[str] = []
    while (match := _END.search(text)) and text[: match.start()].strip():
        word = match.group("word")
        if word is not None and word.lower() not in _KNOWN and word.lower() not in _POWERS:
            break
        rest = text[: match.start()]
        if word is not None and not re.search(r"[\d})]\s*$|[A-Za-z]\s+$", rest):
            break
        inside = match.group("text") if match.group("text") is not None else (word or match.group("sign"))
        found.insert(0, inside + (f"^{match.group('power')}" if match.group("power") else ""))
        text = rest.rstrip(" /")
    return text, one_spelling(" ".join(found))


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
        elif low in _KNOWN:
            names.append(_KNOWN[low])
        elif low == "m":
            names.append("m")
        else:
            return ""
    return "/".join(names) + power
