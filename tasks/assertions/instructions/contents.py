"""Instructions on pieces that a text must hold: placeholders and a postscript."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import TEXT, Instruction, Semantics, whole
from tasks.assertions.instructions.wording import reference_pattern

_DECORATION = " \t*_>#~\"'(["


class NumberOfPlaceholders(Instruction):
    """At least so many placeholders in square brackets, each on one line. The reference counts empty ones too."""

    id = "detectable_content:number_placeholders"
    kind = "placeholders in square brackets"
    arguments = {"num_placeholders": whole()}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there are enough."""
        count = 0
        for line in text.split("\n"):
            start = line.find("[")
            while start >= 0:
                end = line.find("]", start)
                if end < 0:
                    break
                if semantics is Semantics.REFERENCE or line[start:end].strip("[ \t"):
                    count += 1
                start = line.find("[", end)
        return count >= self.args["num_placeholders"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has at least {self.args['num_placeholders']} placeholders such as [name]"


class Postscript(Instruction):
    """A postscript that starts with the marker.

    The reference is content with the marker anywhere, alone, or as a part of another ("P.P.S." holds "P.S."). Fixed: a
    line starts with it, after markup at most, and something follows.
    """

    id = "detectable_content:postscript"
    kind = "postscript"
    arguments = {"postscript_marker": TEXT}

    def prepare(self) -> None:
        """Make the pattern of each reading. Blanks between the letters of the usual markers do not matter."""
        marker = self.args["postscript_marker"].strip()
        loose = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}.get(marker)
        self._reference = loose if loose is not None else marker.lower()
        self._fixed = re.compile(loose if loose is not None else re.escape(marker), re.IGNORECASE)

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether there is one."""
        if semantics is Semantics.REFERENCE:
            return reference_pattern(self._reference, self.id, 0).search(text.lower()) is not None
        lines = text.split("\n")
        for number, line in enumerate(lines):
            found = self._fixed.match(line.lstrip(_DECORATION))
            if found:
                rest = line.lstrip(_DECORATION)[found.end() :]
                return _says_something(rest) or any(map(_says_something, lines[number + 1 :]))
        return False

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has a postscript that starts with {self.args['postscript_marker']}"


def _says_something(text: str) -> bool:
    return any(character.isalnum() for character in text)


ALL = (NumberOfPlaceholders, Postscript)
