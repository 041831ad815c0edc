"""Instructions on lists: other bullets, bullets below bullets, bullets after sentences."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import TEXT
from tasks.assertions.instructions.ifbench.base import ifbench, words
from tasks.assertions.instructions.sentences import sentences

_BULLET = re.compile(r"\s*\*(?:\s+\S|[^*\s][^*]*$)")
"""A line that begins with one `*`; `**bold**` and `*italic*` are no bullets."""
_SUB_BULLET = re.compile(r"\s*-(?!-)\s*\S")
_USUAL = re.compile(r"\s*[*\u2022\u25e6\u25aa+-]\s")
_RULE = re.compile(r"[-*_]{3,}")
"""A line across the page."""
_CLOSING = "\"'*_)]}\u2019\u201d` \t\n"


@ifbench.add(
    "format:list",
    kind="bullets of the list",
    says="is a list with '{sep}' for bullets",
    arguments={"sep": TEXT},
    fix="the text must stand at the beginning of a line with an item behind it, and no usual bullet beside it",
)
def format_list(text: str, sep: str) -> bool:
    """A list of at least two items whose bullets are a given text.

    Look at the beginnings of lines.
    """
    bullet = sep.strip()
    filled: list[bool] = []
    for line in (line.strip() for line in text.split("\n")):
        if _RULE.fullmatch(line) and line != bullet:
            continue
        if line.startswith(bullet):
            filled.append(bool(words(line.removeprefix(bullet))))
        elif _USUAL.match(line):
            return False
        elif filled:
            filled[-1] = filled[-1] or bool(words(line))  # the item may stand below its bullet
    return len(filled) > 1 and all(filled)


@format_list.published
def _(text: str, sep: str) -> bool:
    """Count it anywhere."""
    return text.count(sep) >= 2


@ifbench.add(
    "format:sub-bullets",
    kind="bullets and sub-bullets",
    says="has bullets * with at least one sub-bullet - each",
    fix="only lines that begin with `*` and `-` are bullets, not bold text or hyphens; there must be a bullet",
)
def format_sub_bullets(text: str) -> bool:
    """Bullets `*`, each with at least one sub-bullet `-`.

    Look at the beginnings of lines.
    """
    has_sub: list[bool] = []
    for line in text.split("\n"):
        if _BULLET.match(line):
            has_sub.append(False)
        elif has_sub and _SUB_BULLET.match(line):
            has_sub[-1] = True
    return bool(has_sub) and all(has_sub)


@format_sub_bullets.published
def _(text: str) -> bool:
    """Look for a hyphen after each asterisk; a text without asterisks passes."""
    return all("-" in piece for piece in text.split("*")[1:])


@ifbench.add(
    "format:no_bullets_bullets",
    kind="sentences before bullets",
    says="has at least two sentences that end in a period, then at least two bullets *",
    fix="blank lines, and text after the bullets, are allowed; the sentences must end in periods; bold is no bullet",
)
def format_no_bullets_bullets(text: str) -> bool:
    """At least two sentences that end in a period, then at least two bullets `*`.

    Count the bullets that stand behind two such sentences.
    """
    prose: list[str] = []
    count, bullets = 0, 0
    for line in (*text.split("\n"), ""):
        if not _BULLET.match(line):
            prose.append(line)
            continue
        if count < 2:
            found = sentences("\n".join(prose))
            count += sum(sentence.rstrip(_CLOSING).endswith(".") for sentence in found)
        prose = []
        bullets += count >= 2
    return bullets >= 2


@format_no_bullets_bullets.published
def _(text: str) -> bool:
    """A blank line ends the sentences, and after the first bullet each line must be one."""
    reading, count, bullets = True, 0, 0
    for line in text.split("\n"):
        if line.strip().startswith("*"):
            if count < 2:
                return False
            reading, bullets = False, bullets + 1
        elif reading:
            found = len(sentences(line.strip()))
            reading, count = found > 0, count + found
        else:
            return False
    return bullets >= 2
