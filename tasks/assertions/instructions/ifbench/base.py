"""What the IFBench instructions share: what they call a word and a sentence.

Their published readings decide as the evaluator at commit db69a6f of the benchmark does.
"""

from __future__ import annotations

import re
import string

from tasks.assertions.instructions.base import InstructionSet
from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.wording import whole_word

ifbench = InstructionSet()
"""The 58 ids that IFBench has beside those of IFEval, once the modules that hold their checks are imported."""

_DELETE = str.maketrans("", "", string.punctuation)
_JOINTS = re.compile(r"-{2,}|\.{2,}|[/\u2012-\u2015\u2026]")
"""Marks that stand between words with no blank beside them."""
_WORD = re.compile(r"[^\W_](?:\S*[^\W_])?")
"""From the first to the last letter or digit of a run without blanks."""


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
