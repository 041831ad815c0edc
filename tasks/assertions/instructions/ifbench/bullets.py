"""Instructions on lists: other bullets, bullets below bullets, bullets after sentences."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import TEXT
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction, words
from tasks.assertions.instructions.sentences import sentences

_BULLET = re.compile(r"\s*\*(?:\s+\S|[^*\s][^*]*$)")
"""A line that begins with one `*`; `**bold**` and `*italic*` are no bullets."""
_SUB_BULLET = re.compile(r"\s*-(?!-)\s*\S")
_USUAL = re.compile(r"\s*[*\u2022\u25e6\u25aa+-]\s")
_RULE = re.compile(r"[-*_]{3,}")
"""A line across the page."""
_CLOSING = "\"'*_)]}\u2019\u201d` \t\n"


class BulletList(IfbenchInstruction):
    """A list of at least two items whose bullets are a given text."""

    id = "format:list"
    kind = "bullets of the list"
    arguments = {"sep": TEXT}
    fix = "the text must stand at the beginning of a line with an item behind it, and no usual bullet beside it"

    def published(self, text: str) -> bool:
        """Count it anywhere."""
        return text.count(self.args["sep"]) >= 2

    def fixed(self, text: str) -> bool:
        """Look at the beginnings of lines."""
        bullet = self.args["sep"].strip()
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

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is a list with '{self.args['sep']}' for bullets"


class SubBullets(IfbenchInstruction):
    """Bullets `*`, each with at least one sub-bullet `-`."""

    id = "format:sub-bullets"
    kind = "bullets and sub-bullets"
    fix = "only lines that begin with `*` and `-` are bullets, not bold text or hyphens; there must be a bullet"

    def published(self, text: str) -> bool:
        """Look for a hyphen after each asterisk; a text without asterisks passes."""
        return all("-" in piece for piece in text.split("*")[1:])

    def fixed(self, text: str) -> bool:
        """Look at the beginnings of lines."""
        has_sub: list[bool] = []
        for line in text.split("\n"):
            if _BULLET.match(line):
                has_sub.append(False)
            elif has_sub and _SUB_BULLET.match(line):
                has_sub[-1] = True
        return bool(has_sub) and all(has_sub)

    def describe(self) -> str:
        """Return the condition in words."""
        return "has bullets * with at least one sub-bullet - each"


class SentencesThenBullets(IfbenchInstruction):
    """At least two sentences that end in a period, then at least two bullets `*`."""

    id = "format:no_bullets_bullets"
    kind = "sentences before bullets"
    fix = "blank lines, and text after the bullets, are allowed; the sentences must end in periods; bold is no bullet"

    def published(self, text: str) -> bool:
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

    def fixed(self, text: str) -> bool:
        """Count the bullets that stand behind two such sentences."""
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

    def describe(self) -> str:
        """Return the condition in words."""
        return "has at least two sentences that end in a period, then at least two bullets *"


ALL: tuple[type[IfbenchInstruction], ...] = (BulletList, SubBullets, SentencesThenBullets)
"""The instructions of this module."""
