"""The instruction to begin each section with a thesis, and where sections begin."""

from __future__ import annotations

import re

from tasks.assertions.instructions.ifbench.base import ifbench, words

# Markdown and HTML headings, and a line that is bold from end to end.
_HEADING = re.compile(r"#{1,6}\s|<h[1-6]\b|(?:\*\*|__)[^*_]+(?:\*\*|__):?$|<(b|strong)>[^<]*</\1>:?$", re.IGNORECASE)
# Italics that are closed before others open; `.*?` would run on to a later closing tag.
_THESIS = re.compile(r"(?:<p>\s*)?<(i|em)>((?:(?!</?(?:i|em)>).)*)</\1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_THESIS_START = re.compile(r"(?:<p>\s*)?<(?:i|em)>", re.IGNORECASE)


@ifbench.add(
    "format:thesis",
    kind="a thesis in italics",
    says="begins each section with a thesis statement in HTML italics",
    fix="every section, not one, begins with closed italics, with text after them; headings part sections",
)
def format_thesis(text: str) -> bool:
    """Each section begins with a thesis in HTML italics.

    Look at the beginning of each section that has a body.
    """
    found = [section.strip() for section in _sections(text) if section.strip()]
    return bool(found) and all(map(_begins_with_thesis, found))


@format_thesis.published
def _(text: str) -> bool:
    """Look for one pair of tags with something between and behind them."""
    start = text.find("<i>") if "<i>" in text else text.find("<em>")
    rest = text[start:] if start >= 0 else ""
    end = rest.find("</i>") if "</i>" in rest else rest.find("</em>")
    return end >= 0 and bool(rest[3:end].strip()) and bool(rest[end + 4 :].strip())


def _sections(text: str) -> list[str]:
    """Return the bodies under the headings, and what stands before the first one."""
    sections: list[list[str]] = [[]]
    lines = [line.strip() for line in text.split("\n")]
    following = ""  # the next line that holds something
    headings = [False] * len(lines)
    for index in range(len(lines) - 1, -1, -1):
        plain = lines[index][:1] not in ("", "<") and lines[index][-1:] not in ".!?;,"
        title = plain and len(lines[index]) <= 100 and _THESIS_START.match(following) is not None
        headings[index] = title or _HEADING.match(lines[index][:300]) is not None
        following = lines[index] or following
    for line, heading in zip(lines, headings, strict=True):
        if heading:
            sections.append([])
        else:
            sections[-1].append(line)
    return ["\n".join(section) for section in sections]


def _begins_with_thesis(section: str) -> bool:
    match = _THESIS.match(section)
    return match is not None and bool(words(match[2])) and bool(words(_TAG.sub(" ", section[match.end() :])))
