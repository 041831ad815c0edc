"""Instructions on each sentence in turn: its length, its keyword, its alliteration."""

from __future__ import annotations

import re
import string
from itertools import groupby, pairwise

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import (
    ifbench,
    nth_sentence,
    occurrences,
    without_punctuation,
    words,
)
from tasks.assertions.instructions.sentences import sentences


def _grows(counts: list[int], step: int) -> bool:
    return all(after == before + step for before, after in pairwise(counts))


@ifbench.add(
    "sentence:increment",
    kind="growing sentences",
    says="has {small_n} words more in each sentence than in the one before",
    arguments={"small_n": whole()},
    fix="one sentence alone does not grow",
)
def sentence_increment(text: str, small_n: int) -> bool:
    """Each sentence has so many words more than the one before.

    Compare word counts of at least two sentences.
    """
    counts = [count for count in (len(words(sentence)) for sentence in sentences(text)) if count]
    return len(counts) > 1 and _grows(counts, small_n)


@sentence_increment.published
def _(text: str, small_n: int) -> bool:
    """Compare word counts; one sentence passes."""
    return _grows([len(without_punctuation(sentence).split()) for sentence in sentences(text)], small_n)


@ifbench.add(
    "sentence:keyword",
    kind="a keyword in a certain sentence",
    says="has '{word}' in sentence {N}",
    arguments={"word": TEXT, "N": whole(1)},
    fix="a keyword that begins or ends with a mark is found too",
)
def sentence_keyword(text: str, word: str, N: int) -> bool:
    """A keyword stands in the N-th sentence.

    Look for the word by itself; case is ignored.
    """
    return occurrences(word.strip(), nth_sentence(text, N)) > 0


@sentence_keyword.published
def _(text: str, word: str, N: int) -> bool:
    """Look between word boundaries; case is ignored."""
    sentence = nth_sentence(text, N)
    return re.search(rf"\b{re.escape(word)}\b", sentence, re.IGNORECASE) is not None


@ifbench.add(
    "sentence:alliteration_increment",
    kind="growing alliteration",
    says="has a longer run of words with one first letter in each sentence than in the one before",
    fix="the longest run of words with one first letter counts, not the sum of all runs; one sentence does not grow",
)
def sentence_alliteration_increment(text: str) -> bool:
    """Each sentence has a longer alliteration than the one before.

    Compare the longest runs of at least two sentences.
    """
    starts = ([word[0] for word in words(sentence.casefold())] for sentence in sentences(text))
    longest = [max(_runs(letters)) for letters in starts if letters]
    return len(longest) > 1 and all(before < after for before, after in pairwise(longest))


@sentence_alliteration_increment.published
def _(text: str) -> bool:
    """Add up the words of all runs of two and more; one sentence passes."""
    starts = (
        [word[0] for word in (token.lstrip(string.punctuation + " ") for token in sentence.lower().split()) if word]
        for sentence in sentences(text)
    )
    sums = [-1, *(sum(run for run in _runs(letters) if run > 1) for letters in starts)]
    return all(before < after for before, after in pairwise(sums))


def _runs(letters: list[str]) -> list[int]:
    return [len(list(run)) for _, run in groupby(letters)]
