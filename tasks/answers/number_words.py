"""Numbers in English words: `fifteen`, `one hundred and five`, `two thirds`, `two and a half`, `negative three`."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = dict(
    zero=0, one=1, two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, eleven=11, twelve=12,
    thirteen=13, fourteen=14, fifteen=15, sixteen=16, seventeen=17, eighteen=18, nineteen=19,
)  # fmt: skip
_TENS = dict(twenty=20, thirty=30, forty=40, fifty=50, sixty=60, seventy=70, eighty=80, ninety=90)
_SIZES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = dict(half=2, third=3, quarter=4, fourth=4, fifth=5, sixth=6, seventh=7, eighth=8, ninth=9, tenth=10)
_PLURALS = {"halves": 2} | {f"{word}s": number for word, number in _PARTS.items() if word != "half"}
_MOST_WORDS = 20

WORD = "|".join(("a", "hundred", *_UNITS, *_TENS, *_SIZES, *_PARTS, *_PLURALS))
"""The words that a number is made of, for a pattern."""


def number_in_words(text: str) -> Fraction | None:
    """Return the value of a text that is one number in words and nothing else; None for any other text.

    Ordinals (`third`, `twenty-third`) and digits said one by one (`one two`) are no numbers.
    """
    words = re.split(r"[\s-]+", text.strip().lower())
    sign = -1 if words[0] in ("negative", "minus") else 1
    words = words[1:] if sign < 0 else words
    if not words or len(words) > _MOST_WORDS:
        return None
    if (part := _part(words)) is not None:
        return sign * part
    if "and" in words:
        at = len(words) - 1 - words[::-1].index("and")
        whole, part = _cardinal(words[:at]), _part(words[at + 1 :])
        if whole is not None and part is not None:
            return sign * (whole + part)
    whole = _cardinal(words)
    return None if whole is None else sign * Fraction(whole)


def _part(words: list[str]) -> Fraction | None:
    """`one third`, `a half`, `two thirds`, `half`."""
    if words == ["half"]:
        return Fraction(1, 2)
    if len(words) != 2:
        return None
    count = 1 if words[0] in ("a", "one") else _UNITS.get(words[0], 0)
    below = _PARTS.get(words[1]) if count == 1 else _PLURALS.get(words[1]) if count else None
    return None if below is None else Fraction(count, below)


def _cardinal(words: list[str]) -> int | None:
    if words == ["zero"]:
        return 0
    total = current = 0
    smallest = 10**15
    for at, word in enumerate(words):
        if word == "a" and at == 0 and words[1:2] != [] and (words[1] == "hundred" or words[1] in _SIZES):
            current = 1
        elif (unit := _UNITS.get(word)) and (current % 100 == 0 or (unit < 10 and current % 100 >= 20)):
            if current % 10:
                return None
            current += unit
        elif word in _TENS and current % 100 == 0:
            current += _TENS[word]
        elif word == "hundred" and 0 < current < 10:
            current *= 100
        elif word in _SIZES and 0 < current < 1000 and _SIZES[word] < smallest:
            smallest = _SIZES[word]
            total, current = total + current * smallest, 0
        elif not (word == "and" and 0 < at < len(words) - 1 and words[at - 1] in ("hundred", *_SIZES)):
            return None
    return total + current or None
