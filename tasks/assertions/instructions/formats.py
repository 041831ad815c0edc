"""Instructions on how a text is laid out: bullets, highlights, sections, a title, JSON, a fixed choice of answers."""

from __future__ import annotations

import json
import re
from typing import Any

from tasks.assertions.instructions.base import TEXT, Instruction, Semantics, whole
from tasks.assertions.instructions.wording import NOT_AFTER_LETTER, bounded, reference_pattern

_BULLET = re.compile(r"[*+-][ \t]+\S")
_SINGLE, _DOUBLE = re.compile(r"\*([^\n*]*)\*"), re.compile(r"\*\*([^\n*]*)\*\*")
_HIGHLIGHT = re.compile(r"(?<![a-zA-Z0-9*])(\*{1,3})(?![\s*])[^\n*]*(?<!\s)\1(?![a-zA-Z0-9*])", re.ASCII)
_ANGLES = re.compile("<<+|>>+")
_SHIFTED, _SHIFTING = re.compile(r"[\w)\]] << "), re.compile(r" >> [\w(]")
"""Operators with an operand on either side: `1 << 2 and 3 >> 1`."""
_OPTIONS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


class NumberOfBullets(Instruction):
    """Exactly so many bullet points.

    The reference counts every line that starts with a dash or with one star, so rules (`---`), negative numbers and
    lines in italics too. Fixed: a mark, a blank and a text, as in Markdown.
    """

    id = "detectable_format:number_bullet_lists"
    kind = "number of bullet points"
    arguments = {"num_bullets": whole()}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number is met."""
        lines = [line.lstrip() for line in text.split("\n")]
        if semantics is Semantics.REFERENCE:
            return _starred(lines) + sum(line.startswith("-") for line in lines) == self.args["num_bullets"]
        count = sum(1 for line in lines if _BULLET.match(line) and not _is_rule(line))
        return count == self.args["num_bullets"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has exactly {self.args['num_bullets']} bullet points"


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


class ConstrainedResponse(Instruction):
    """One of the three given answers. The reference is content if the text holds any, or all, of them."""

    id = "detectable_format:constrained_response"
    kind = "one of the given answers"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the text gives one of the answers; fixed: one only."""
        found = sum(option in text for option in _OPTIONS)
        return found >= 1 if semantics is Semantics.REFERENCE else found == 1

    def describe(self) -> str:
        """Return the condition in words."""
        return "gives one of these answers: " + " ".join(f"'{option}'" for option in _OPTIONS)


class NumberOfHighlights(Instruction):
    """At least so many parts in stars, each on one line.

    The reference takes anything between two stars, as in a product or from one bullet to the next star. Fixed: no blank
    inside the stars at either end, no letter or digit right outside them.
    """

    id = "detectable_format:number_highlighted_sections"
    kind = "highlighted parts"
    arguments = {"num_highlights": whole()}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there are enough."""
        if semantics is Semantics.REFERENCE:
            count = sum(1 for found in _SINGLE.finditer(text) if found.group(1).strip())
            count += sum(1 for found in _DOUBLE.finditer(text) if found.group(1).strip())
        else:
            count = sum(1 for _ in _HIGHLIGHT.finditer(text))
        return count >= self.args["num_highlights"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"highlights at least {self.args['num_highlights']} parts with *stars*"


class MultipleSections(Instruction):
    """At least so many sections, each marked with a word and a number.

    The reference counts every place where the word stands before a number, as a pattern. Fixed: different numbers, and
    the word as a word of its own.
    """

    id = "detectable_format:multiple_sections"
    kind = "number of sections"
    arguments = {"section_spliter": TEXT, "num_sections": whole()}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there are enough."""
        word = self.args["section_spliter"].strip()
        if semantics is Semantics.REFERENCE:
            mark = reference_pattern(rf"\s?{word}\s?\d+\s?", self.id, 0)
            return len(mark.split(text)) - 1 >= self.args["num_sections"]
        before = NOT_AFTER_LETTER if re.match(r"\w", word) else ""
        numbers = re.findall(rf"{before}{re.escape(word)}\s?(\d+)", text)
        return len({number.lstrip("0") for number in numbers}) >= self.args["num_sections"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has at least {self.args['num_sections']} sections marked '{self.args['section_spliter']} 1' and so on"


class JsonFormat(Instruction):
    """All of it is JSON, in a fence or not. The reference takes `NaN` and `Infinity` too, which no JSON has."""

    id = "detectable_format:json_format"
    kind = "JSON"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether it can be read. Numbers are not computed, so that long ones cost nothing."""
        text = text.strip()
        for fence in ("```json", "```Json", "```JSON", "```"):
            text = text.removeprefix(fence)
        text = text.removesuffix("```").strip()
        try:
            if semantics is Semantics.REFERENCE:
                json.loads(text)
            else:
                json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
        except (ValueError, RecursionError):
            return False
        return True

    def describe(self) -> str:
        """Return the condition in words."""
        return "is JSON as a whole"


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not in JSON")


class Title(Instruction):
    """A title in double angular brackets, on one line.

    The reference goes from the first pair to the last of a line. Fixed: each pair by itself, with no letter or digit
    right outside it, so that shifts in code (`a<<b; c>>d`) are no title.
    """

    id = "detectable_format:title"
    kind = "title"

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there is one that is not blank."""
        found = _reference_title if semantics is Semantics.REFERENCE else _title
        return any(found(line) for line in text.split("\n"))

    def describe(self) -> str:
        """Return the condition in words."""
        return "has a title such as <<title>>"


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


ALL = (
    NumberOfBullets,
    ConstrainedResponse,
    NumberOfHighlights,
    MultipleSections,
    JsonFormat,
    Title,
)
