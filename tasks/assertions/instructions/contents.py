"""Instructions on pieces that a text must hold: placeholders and a postscript."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tasks.assertions.instructions.base import TEXT, ifeval, whole
from tasks.assertions.instructions.wording import reference_pattern

_MARKERS = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
"""Patterns of the usual markers: blanks between their letters do not matter."""
_DECORATION = " \t*_>#~\"'(["


@ifeval.add(
    "detectable_content:number_placeholders",
    kind="placeholders in square brackets",
    says="has at least {num_placeholders} placeholders such as [name]",
    arguments={"num_placeholders": whole()},
)
def detectable_content_number_placeholders(text: str, num_placeholders: int) -> bool:
    """At least so many placeholders in square brackets, each on one line. The reference counts empty ones too."""
    return sum(1 for inside in _bracketed(text) if inside.strip("[ \t")) >= num_placeholders


@detectable_content_number_placeholders.published
def _(text: str, num_placeholders: int) -> bool:
    return sum(1 for _ in _bracketed(text)) >= num_placeholders


def _bracketed(text: str) -> Iterator[str]:
    """Yield what stands in brackets, each from its first opening one, line by line."""
    for line in text.split("\n"):
        start = line.find("[")
        while start >= 0:
            end = line.find("]", start)
            if end < 0:
                break
            yield line[start:end]
            start = line.find("[", end)


@ifeval.add(
    "detectable_content:postscript",
    kind="postscript",
    says="has a postscript that starts with {postscript_marker}",
    arguments={"postscript_marker": TEXT},
)
def detectable_content_postscript(text: str, postscript_marker: str) -> bool:
    """A postscript that starts with the marker.

    The reference is content with the marker anywhere, alone, or as a part of another ("P.P.S." holds "P.S."). Fixed: a
    line starts with it, after markup at most, and something follows.
    """
    marker = postscript_marker.strip()
    pattern = re.compile(_MARKERS.get(marker, re.escape(marker)), re.IGNORECASE)
    lines = text.split("\n")
    for number, line in enumerate(lines):
        found = pattern.match(line.lstrip(_DECORATION))
        if found:
            rest = line.lstrip(_DECORATION)[found.end() :]
            return _says_something(rest) or any(map(_says_something, lines[number + 1 :]))
    return False


@detectable_content_postscript.published
def _(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    return reference_pattern(_MARKERS.get(marker, marker.lower()), 0).search(text.lower()) is not None


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)
