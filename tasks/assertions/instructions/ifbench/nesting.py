"""Instructions on brackets and quotation marks."""

from __future__ import annotations

import string
from dataclasses import dataclass

from tasks.assertions.instructions.ifbench.base import ifbench, words

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_STRAIGHT = str.maketrans("\u201c\u201d\u201e\xab\xbb", '"' * 5)
_OPEN, _CLOSE = {"\u201c": '"', "\u2018": "'"}, {"\u201d": '"', "\u2019": "'"}
_OUTER = string.digits + string.punctuation.replace('"', "")


@dataclass(slots=True)
class _Group:
    """What is open: the mark that closes it, and the depth of what was closed inside."""

    closing: str
    inside: int = 0


@ifbench.add(
    "format:parentheses",
    kind="nested brackets",
    says="nests brackets at least five deep",
    fix="all five levels must be closed; a closing bracket without an opening one is passed over",
)
def format_parentheses(text: str) -> bool:
    """Brackets of any kind, nested at least five deep.

    Measure each group that is closed: one more than the deepest within it.
    """
    opened: list[_Group] = []
    for character in text:
        if character in _PAIRS:
            opened.append(_Group(_PAIRS[character]))
        elif character in ")]}" and opened:
            if opened[-1].closing != character:
                opened = []
            elif _close(opened, len(opened) - 1) >= 5:
                return True
    return False


@format_parentheses.published
def _(text: str) -> bool:
    """After five were open at once, one that closes is enough."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if character in _PAIRS:
            opened.append(_PAIRS[character])
            deepest = max(deepest, len(opened))
        elif character in ")]}":
            if not opened or opened[-1] != character:
                opened, deepest = [], 0
                continue
            opened.pop()
            if deepest >= 5:
                return True
    return False


@ifbench.add(
    "format:quotes",
    kind="nested quotes",
    says="nests quotes at least three deep, double and single in turn",
    fix="an apostrophe is no quotation mark; curly marks are; all three levels must be one inside the other",
)
def format_quotes(text: str) -> bool:
    """Quotation marks, double and single in turn, nested at least three deep.

    Measure each quote that is closed: one more than the deepest within it.
    """
    opened: list[_Group] = []  # double and single in turn
    for index, character in enumerate(text):
        mark = _OPEN.get(character) or _CLOSE.get(character) or character
        if mark not in "\"'":
            continue
        before, after = text[index - 1 : index], text[index + 1 : index + 2]
        if mark == "'" and before.isalnum() and after.isalnum():
            continue  # an apostrophe
        same = bool(opened) and opened[-1].closing == mark
        if same and character == "'" and not before.strip() and after.isalnum():
            opened[-1] = _Group(mark)  # this one opens, so the last one was an apostrophe, such as in 'tis
            continue
        begins = character not in _CLOSE and not before.isalnum() and bool(after.strip())
        if character in _OPEN or (begins and not same):
            if not same:
                opened.append(_Group(mark))
            continue
        # If it is not the last one that it closes, that one was no quotation mark.
        level = len(opened) - (1 if same else 2)
        if level >= 0 and _close(opened, level) >= 3:
            return True
    return False


@format_quotes.published
def _(text: str) -> bool:
    """After some depth was reached, three levels less is enough, wherever they were."""
    opened: list[str] = []
    deepest = 0
    for character in text:
        if opened and character == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif character in "\"'":
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@ifbench.add(
    "format:quote_unquote",
    kind="explanations after quotes",
    says="explains each quoted phrase, behind it and without quotes",
    fix="there must be a quoted phrase; curly quotes are quotes; marks alone are no explanation",
)
def format_quote_unquote(text: str) -> bool:
    """Behind each quoted phrase stands an explanation without quotes.

    Take every second piece between the marks; each needs a word.
    """
    pieces = text.replace("'\"'", "").translate(_STRAIGHT).split('"')
    return len(pieces) > 2 and len(pieces) % 2 == 1 and all(words(piece) for piece in pieces[2::2])


@format_quote_unquote.published
def _(text: str) -> bool:
    """No two marks in a row, and none at the end; a text without quotes passes."""
    plain = "".join(text.replace("'\"'", "").split())
    return '""' not in plain and not plain.strip(_OUTER).endswith('"')


def _close(opened: list[_Group], level: int) -> int:
    """Close the group at `level`, with what is open inside it, and return how deep it was."""
    depth = opened[level].inside + 1
    del opened[level:]
    if opened:
        opened[-1].inside = max(opened[-1].inside, depth)
    return depth
