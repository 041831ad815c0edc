"""Instructions on proportions: kinds of sentence, overlap with a text, stop words, sentences of one length."""

from __future__ import annotations

import re
from collections import Counter

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction, words
from tasks.assertions.instructions.ifbench.stop_words import STOP_WORDS
from tasks.assertions.instructions.sentences import sentences

_WORD = re.compile(r"\w+")
_CLOSING = "\"'*_)]}\u2019\u201d\xbb` \t\n"
"""What may stand after the mark that ends a sentence."""


def _marks(text: str, closing: str = "") -> Counter[str]:
    """Count the last characters of the sentences; `closing` characters after them are passed over."""
    ends = (sentence.rstrip(closing) if closing else sentence for sentence in sentences(text))
    return Counter(end[-1] for end in ends if end)


class SentenceType(IfbenchInstruction):
    """Twice as many statements as questions."""

    id = "ratio:sentence_type"
    kind = "ratio of sentence types"
    fix = "there must be a question (0 statements to 0 questions is no ratio); a mark inside closing quotes counts"

    def published(self, text: str) -> bool:
        """Compare last characters; none of either kind passes."""
        marks = _marks(text)
        return marks["."] == 2 * marks["?"]

    def fixed(self, text: str) -> bool:
        """Compare the marks; at least one question."""
        marks = _marks(text, _CLOSING)
        return marks["."] == 2 * marks["?"] > 0

    def describe(self) -> str:
        """Return the condition in words."""
        return "has two statements for each question"


class SentenceBalance(IfbenchInstruction):
    """As many statements as questions as exclamations."""

    id = "ratio:sentence_balance"
    kind = "balance of sentence types"
    fix = "there must be at least one of each; a mark inside closing quotes counts"

    def published(self, text: str) -> bool:
        """Compare last characters; none of any kind passes."""
        marks = _marks(text)
        return marks["."] == marks["?"] == marks["!"]

    def fixed(self, text: str) -> bool:
        """Compare the marks; at least one of each."""
        marks = _marks(text, _CLOSING)
        return marks["."] == marks["?"] == marks["!"] > 0

    def describe(self) -> str:
        """Return the condition in words."""
        return "has as many statements as questions as exclamations"


class SentenceWords(IfbenchInstruction):
    """Three sentences of one length without a word in common."""

    id = "ratio:sentence_words"
    kind = "sentences of equal length from different words"
    fix = "the words are looked at: none may stand twice"

    def published(self, text: str) -> bool:
        """Compare the lengths only."""
        found = sentences(text)
        return len(found) == 3 and len({len(sentence.strip()) for sentence in found}) == 1

    def fixed(self, text: str) -> bool:
        """Compare the lengths, then the words; case is ignored."""
        found = words(text.casefold())
        return self.published(text) and len(found) == len(set(found))

    def describe(self) -> str:
        """Return the condition in words."""
        return "is three sentences with the same number of characters and no word twice"


class Overlap(IfbenchInstruction):
    """Share of the text's trigrams, of characters, that a reference text has too: within 2 points of a percentage."""

    id = "ratio:overlap"
    kind = "overlap with the reference text"
    arguments = {"reference_text": TEXT, "percentage": whole()}

    def prepare(self) -> None:
        """Cut up the reference text once."""
        self.trigrams = _trigrams(self.args["reference_text"])

    def published(self, text: str) -> bool:
        """Compare the sets of trigrams."""
        found = _trigrams(text)
        if not found:
            return False
        share = len(found & self.trigrams) / len(found) * 100
        return bool(self.args["percentage"] - 2 <= share <= self.args["percentage"] + 2)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"shares {self.args['percentage']}% (±2) of its character trigrams with the reference text"


class StopWords(IfbenchInstruction):
    """At most so many words in a hundred are stop words."""

    id = "ratio:stop_words"
    kind = "share of stop words"
    arguments = {"percentage": whole()}

    def published(self, text: str) -> bool:
        """Count runs of letters and digits."""
        found = _WORD.findall(text)
        share = sum(word.lower() in STOP_WORDS for word in found) / len(found) * 100 if found else 101
        return bool(found) and share <= self.args["percentage"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has at most {self.args['percentage']}% stop words"


def _trigrams(text: str) -> set[str]:
    return {text[index : index + 3] for index in range(len(text) - 2)}


ALL: tuple[type[IfbenchInstruction], ...] = (SentenceType, SentenceBalance, SentenceWords, Overlap, StopWords)
"""The instructions of this module."""
