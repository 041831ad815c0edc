"""What the IFBench instructions share: two readings, and what they call a word and a sentence."""

from __future__ import annotations

import re
import string
from abc import abstractmethod
from typing import ClassVar

from tasks.assertions.instructions.base import Instruction, InstructionError, Semantics
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.wording import whole_word

_DELETE = str.maketrans("", "", string.punctuation)
_JOINTS = re.compile(r"-{2,}|\.{2,}|[/\u2012-\u2015\u2026]")
"""Marks that stand between words with no blank beside them."""
_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")
"""From the first to the last letter or digit of a run without blanks."""


class IfbenchInstruction(Instruction):
    """An instruction with two readings: what the published evaluator computes, and what the prompt's wording asks.

    Attributes:
        fix: Where and why the readings differ, a clause for the documentation; empty where they are the same.
        needs: What must be installed for a verdict (of the fixed reading), for the documentation; mostly nothing.
    """

    fix: ClassVar[str] = ""
    needs: ClassVar[str] = ""

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the text follows the instruction, by one of its readings.

        Raises:
            InstructionError: it needs something that is not installed.
        """
        return self.published(text) if semantics is Semantics.REFERENCE else self.fixed(text)

    @abstractmethod
    def published(self, text: str) -> bool:
        """Decide as the evaluator at commit db69a6f of the benchmark does."""

    def fixed(self, text: str) -> bool:
        """Decide by the wording of the prompt; the same unless a subclass says otherwise."""
        return self.published(text)

    def in_order(self, least: str, most: str) -> None:
        """Refuse two arguments of which the first is more than the second.

        Raises:
            InstructionError: nothing lies between them.
        """
        if self.args[least] > self.args[most]:
            raise InstructionError(
                f"{self.id}: '{most}' must be at least '{least}', but {self.args[most]} is less than {self.args[least]}"
            )


def nth_sentence(text: str, number: int) -> str:
    """Return a sentence of the text, counted from 1; an empty text where there are fewer."""
    found = sentences(text)
    return found[number - 1] if len(found) >= number else ""


def words(text: str) -> list[str]:
    """Return the words of a text: runs without blanks, dashes or slashes, without the marks around them.

    `well-known`, `don't` and `3.5` are one word each; what has no letter and no digit is none.
    """
    return _WORD.findall(_JOINTS.sub(" ", text))


def without_punctuation(text: str) -> str:
    """Return the text without ASCII punctuation, not even blanks in its place: the evaluator's way to words."""
    return text.translate(_DELETE)


def bare(text: str) -> str:
    """Return the text without ASCII punctuation and blanks around it."""
    return text.strip(string.punctuation + " ")


def occurrences(word: str, text: str) -> int:
    """Count where `word` stands in the text by itself, not as a part of another word; case is ignored."""
    return sum(1 for _ in whole_word(word).finditer(text))
