"""Extraction of numbers as published evaluators do it, bug for bug, so that their numbers can be repeated.

| mode | evaluator | which text | compared |
|---|---|---|---|
| `strict_hash` | lm-eval `gsm8k`, `strict-match` | first `#### N` | as text |
| `strict_phrase` | lm-eval `gsm8k_cot`, `strict-match` | first `The answer is N` and one more character | as text |
| `flexible` | lm-eval `gsm8k`, `flexible-extract` | last run of digits, `$`, `.`, `,` | as text |
| `last_number` | rlvr-experiments, `last_number` | last decimal number | as numbers |
| `any` | rlvr-experiments, `any` | what finds something: `The answer is N.`, `flexible`, `last_number` | as numbers |

As text means: commas and dollar signs deleted, what stands up to `#### ` and one final full stop too, then equal.
"""

from __future__ import annotations

import re as fast_re
from collections import deque
from collections.abc import Callable
from fractions import Fraction

import regex as re  # possessive quantifiers of `re` match wrongly before Python 3.11.5 (gh-106052)

_HASH = re.compile(r"#### (-?[0-9.,]+)")
_PHRASE = re.compile(r"The answer is (-?[0-9.,]+).")
_PHRASE_STOP = re.compile(r"The answer is (-?[0-9.,]+)\.")
_FLEXIBLE = fast_re.compile(r"(?s:.*)(?<![$0-9.,])([$0-9.,]{2,}|[0-9])")
"""The last match of `-?[$0-9.,]{2,}|-?[0-9]+` without its sign: the last whole run that is one."""
_LAST = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_LAST_GROUPED = re.compile(r"-?[0-9]++(?:,[0-9]++)*+(?:\.[0-9]+)?")
_READABLE = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)")
_MOST_DIGITS = 1000

Span = tuple[int, int]
"""First character and the one after the last."""


def strict_hash(text: str) -> Span | None:
    """Return where the number after the first `#### ` stands, or None."""
    found = _HASH.search(text)
    return found.span(1) if found else None


def strict_phrase(text: str) -> Span | None:
    """Return where the number of the first `The answer is N.` stands, or None.

    The published pattern takes any character for the full stop: where none follows the number, its last digit is lost.
    """
    found = _PHRASE.search(text)
    return found.span(1) if found else None


def flexible(text: str) -> Span | None:
    """Return where the last run of digits and `$`, `.`, `,` stands, or None; a run of points alone is one too."""
    found = _FLEXIBLE.match(text)
    if found is None:
        return None
    start, end = found.span(1)
    return start - (text[start - 1 : start] == "-"), end


def last_number(text: str) -> Span | None:
    """Return where the last decimal number stands, or None; `10-5` ends with -5."""
    found = deque(_LAST_GROUPED.finditer(text), maxlen=1)
    return found[0].span() if found else None


def any_number(text: str) -> Span | None:
    """Return what the first of three rules finds: the phrase with a real full stop, `flexible`, `last_number`."""
    phrase = _PHRASE_STOP.search(text) if "The answer is " in text else None
    return phrase.span(1) if phrase else flexible(text) or last_number(text)


def same_text(found: str, gold: str) -> bool:
    """Compare as lm-eval's `exact_match` does with the patterns that `gsm8k` tells it to ignore."""
    return _bare(found) == _bare(gold)


def same_number(found: str, gold: str) -> bool:
    """Compare as numbers, exactly; what is no number equals nothing."""
    left, right = _number(found), _number(gold)
    return left is not None and left == right


def _bare(text: str) -> str:
    text = text.replace(",", "").replace("$", "")
    text = text[text.rfind("#### ") + 5 :] if "#### " in text else text
    return text.removesuffix(".").lower()


def _number(text: str) -> int | Fraction | None:
    text = text.replace(",", "").replace("$", "").strip()
    if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    if len(text) > _MOST_DIGITS or not _READABLE.fullmatch(text):
        return None
    return Fraction(text.removesuffix("."))


EXTRACT: dict[str, tuple[Callable[[str], Span | None], Callable[[str, str], bool]]] = {
    "strict_hash": (strict_hash, same_text),
    "strict_phrase": (strict_phrase, same_text),
    "flexible": (flexible, same_text),
    "last_number": (last_number, same_number),
    "any": (any_number, same_number),
}
"""Mode: where it looks, and how it compares what it finds with the gold answer."""
