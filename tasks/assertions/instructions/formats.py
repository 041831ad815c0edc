"""Instructions on how a text is laid out: bullets, highlights, sections, a title, JSON, a fixed choice of answers."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.assertions.instructions.base import TEXT, ifeval, whole
from tasks.assertions.instructions.wording import NOT_AFTER_LETTER, bounded, reference_pattern

# Markdown wants a blank behind the mark: `-5` and `*bold*` are none.
_BULLET = re.compile(r"[*+-][ \t]+\S")
_SINGLE, _DOUBLE = re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*")
# One to three stars, the same on both sides; no blank inside at either end, no letter or digit outside.
_HIGHLIGHT = re.compile(r"(?<![a-zA-Z0-9*])(\*{1,3})(?![\s*])[^\n*]*(?<!\s)\1(?![a-zA-Z0-9*])", re.ASCII)
_ANGLES = re.compile("<<+|>>+")
_SHIFTED, _SHIFTING = re.compile(r"[\w)\]] << "), re.compile(r" >> [\w(]")
"""Operators with an operand on either side: `1 << 2 and 3 >> 1`."""
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


@ifeval.add(
    "detectable_format:number_bullet_lists",
    kind="number of bullet points",
    says="has exactly {num_bullets} bullet points",
    arguments={"num_bullets": whole()},
)
def detectable_format_number_bullet_lists(text: str, num_bullets: int) -> bool:
    """Exactly so many bullet points.

    The reference counts every line that starts with a dash or with one star, so rules (`---`), negative numbers and
    lines in italics too. Fixed: a mark, a blank and a text, as in Markdown.
    """
    lines = [line.lstrip() for line in text.split("\n")]
    count = sum(1 for line in lines if _BULLET.match(line) and not _is_rule(line))
    return count == num_bullets


@detectable_format_number_bullet_lists.published
def _(text: str, num_bullets: int) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    return _starred(lines) + sum(line.startswith("-") for line in lines) == num_bullets


def _starred(lines: list[str]) -> int:
    """Count lines with one star before another character; a star that ends a line takes the next line with it."""
    count, taken = 0, False
    for number, line in enumerate(lines):
        if taken:
            taken = False
        elif line.startswith("*") and (line[1:2] not in ("", "*") or (line == "*" and number + 1 < len(lines))):
            count += 1
            taken = line == "*"
    return count


def _is_rule(line: str) -> bool:
    marks = line.replace(" ", "").replace("\t", "").rstrip()
    return len(marks) > 2 and marks in ("*" * len(marks), "-" * len(marks))


@ifeval.add(
    "detectable_format:constrained_response",
    kind="one of the given answers",
    says="gives one of these answers: " + " ".join(f"'{option}'" for option in _OPTIONS),
)
def detectable_format_constrained_response(text: str) -> bool:
    """One of the three given answers. The reference is content if the text holds any, or all, of them."""
    return sum(option in text for option in _OPTIONS) == 1


@detectable_format_constrained_response.published
def _(text: str) -> bool:
    return any(option in text for option in _OPTIONS)


@ifeval.add(
    "detectable_format:number_highlighted_sections",
    kind="highlighted parts",
    says="highlights at least {num_highlights} parts with *stars*",
    arguments={"num_highlights": whole()},
)
def detectable_format_number_highlighted_sections(text: str, num_highlights: int) -> bool:
    """At least so many parts in stars, each on one line.

    The reference takes anything between two stars, as in a product or from one bullet to the next star. Fixed: no blank
    inside the stars at either end, no letter or digit right outside them.
    """
    return sum(1 for _ in _HIGHLIGHT.finditer(text)) >= num_highlights


@detectable_format_number_highlighted_sections.published
def _(text: str, num_highlights: int) -> bool:
    found = [*_SINGLE.findall(text), *_DOUBLE.findall(text)]
    return sum(1 for inside in found if inside.strip()) >= num_highlights


@ifeval.add(
    "detectable_format:multiple_sections",
    kind="number of sections",
    says="has at least {num_sections} sections marked '{section_spliter} 1' and so on",
    arguments={"section_spliter": TEXT, "num_sections": whole()},
)
def detectable_format_multiple_sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """At least so many sections, each marked with a word and a number.

    The reference counts every place where the word stands before a number, as a pattern. Fixed: different numbers, and
    the word as a word of its own.
    """
    word = section_spliter.strip()
    before = NOT_AFTER_LETTER if re.match(r"\w", word) else ""
    numbers = re.findall(rf"{before}{re.escape(word)}\s?(\d+)", text)
    return len({number.lstrip("0") for number in numbers}) >= num_sections


@detectable_format_multiple_sections.published
def _(text: str, section_spliter: str, num_sections: int) -> bool:
    mark = reference_pattern(rf"\s?{section_spliter.strip()}\s?\d+\s?", 0)
    return len(mark.split(text)) - 1 >= num_sections


@ifeval.add(
    "detectable_format:json_format",
    kind="JSON",
    says="is JSON as a whole",
)
def detectable_format_json_format(text: str) -> bool:
    """All of it is JSON, in a fence or not. The reference takes `NaN` and `Infinity` too, which no JSON has."""
    # Numbers are not computed, so that long ones cost nothing.
    return _is_json(text, parse_constant=_refuse, parse_int=str, parse_float=str)


@detectable_format_json_format.published
def _is_json(text: str, **options: Any) -> bool:
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    text = text.removesuffix("```").strip()
    try:
        json.loads(text, **options)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not in JSON")


@ifeval.add(
    "detectable_format:title",
    kind="title",
    says="has a title such as <<title>>",
)
def detectable_format_title(text: str) -> bool:
    """A title in double angular brackets, on one line.

    The reference goes from the first pair to the last of a line. Fixed: each pair by itself, with no letter or digit
    right outside it, so that shifts in code (`a<<b; c>>d`) are no title.
    """
    return any(_title(line) for line in text.split("\n"))


@detectable_format_title.published
def _(text: str) -> bool:
    return any(_reference_title(line) for line in text.split("\n"))


def _reference_title(line: str) -> bool:
    start, end = line.find("<<"), line.rfind(">>")
    return start >= 0 and end >= start + 3 and bool(line[start : end + 2].lstrip("<").rstrip(">").strip())


def _title(line: str) -> bool:
    start = -1
    for found in _ANGLES.finditer(line):
        if found.group()[0] == "<":
            if start < 0 and not _in_word(line[max(found.start() - 1, 0) : found.start()]):
                start = found.end()
        elif start >= 0 and not _in_word(line[found.end() : found.end() + 1]):
            shifts = _SHIFTED.match(line, max(start - 4, 0)) and _SHIFTING.match(line, found.start() - 1)
            if line[start : found.start()].strip("<> \t") and not shifts:
                return True
            start = -1
    return False


def _in_word(beside: str) -> bool:
    return beside.isalnum() and bounded(beside)
