"""Instructions on each sentence in turn: its length, its keyword, its alliteration."""

from __future__ import annotations

import re
import string
from itertools import groupby, pairwise

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import (
    IfbenchInstruction,
    nth_sentence,
    occurrences,
    without_punctuation,
    words,
)
from tasks.assertions.instructions.sentences import sentences


class Increment(IfbenchInstruction):
    """Each sentence has so many words more than the one before."""

    id = "sentence:increment"
    kind = "growing sentences"
    arguments = {"small_n": whole()}
    fix = "one sentence alone does not grow"

    def published(self, text: str) -> bool:
        """Compare word counts; one sentence passes."""
        return self._grows([len(without_punctuation(sentence).split()) for sentence in sentences(text)])

    def fixed(self, text: str) -> bool:
        """Compare word counts of at least two sentences."""
        counts = [count for count in (len(words(sentence)) for sentence in sentences(text)) if count]
        return len(counts) > 1 and self._grows(counts)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has {self.args['small_n']} words more in each sentence than in the one before"

    def _grows(self, counts: list[int]) -> bool:
        return all(after == before + self.args["small_n"] for before, after in pairwise(counts))


class Keyword(IfbenchInstruction):
    """A keyword stands in the N-th sentence."""

    id = "sentence:keyword"
    kind = "a keyword in a certain sentence"
    arguments = {"word": TEXT, "N": whole(1)}
    fix = "a keyword that begins or ends with a mark is found too"

    def published(self, text: str) -> bool:
        """Look between word boundaries; case is ignored."""
        sentence = nth_sentence(text, self.args["N"])
        return re.search(rf"\b{re.escape(self.args['word'])}\b", sentence, re.IGNORECASE) is not None

    def fixed(self, text: str) -> bool:
        """Look for the word by itself; case is ignored."""
        return occurrences(self.args["word"].strip(), nth_sentence(text, self.args["N"])) > 0

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has '{self.args['word']}' in sentence {self.args['N']}"


class AlliterationIncrement(IfbenchInstruction):
    """Each sentence has a longer alliteration than the one before."""

    id = "sentence:alliteration_increment"
    kind = "growing alliteration"
    fix = "the longest run of words with one first letter counts, not the sum of all runs; one sentence does not grow"

    def published(self, text: str) -> bool:
        """Add up the words of all runs of two and more; one sentence passes."""
        starts = (
            [word[0] for word in (token.lstrip(string.punctuation + " ") for token in sentence.lower().split()) if word]
            for sentence in sentences(text)
        )
        sums = [-1, *(sum(run for run in _runs(letters) if run > 1) for letters in starts)]
        return all(before < after for before, after in pairwise(sums))

    def fixed(self, text: str) -> bool:
        """Compare the longest runs of at least two sentences."""
        starts = ([word[0] for word in words(sentence.casefold())] for sentence in sentences(text))
        longest = [max(_runs(letters)) for letters in starts if letters]
        return len(longest) > 1 and all(before < after for before, after in pairwise(longest))

    def describe(self) -> str:
        """Return the condition in words."""
        return "has a longer run of words with one first letter in each sentence than in the one before"


def _runs(letters: list[str]) -> list[int]:
    return [len(list(run)) for _, run in groupby(letters)]


ALL: tuple[type[IfbenchInstruction], ...] = (Increment, Keyword, AlliterationIncrement)
"""The instructions of this module."""
