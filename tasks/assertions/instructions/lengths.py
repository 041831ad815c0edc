"""Instructions on how long a text is: words, sentences, paragraphs."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import RELATION, TEXT, compare, ifeval, whole
from tasks.assertions.instructions.sentences import count_sentences, sentences
from tasks.assertions.instructions.words import count_words

_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


@ifeval.add(
    "length_constraints:number_words",
    kind="number of words",
    says="has {relation} {num_words} words",
    arguments={"num_words": whole(), "relation": RELATION},
)
def length_constraints_number_words(text: str, num_words: int, relation: str) -> bool:
    """So many runs of word characters: "don't" is two, as in the reference."""
    return compare(count_words(text), relation, num_words)


@ifeval.add(
    "length_constraints:number_sentences",
    kind="number of sentences",
    says="has {relation} {num_sentences} sentences",
    arguments={"num_sentences": whole(), "relation": RELATION},
)
def length_constraints_number_sentences(text: str, num_sentences: int, relation: str) -> bool:
    """So many sentences, as the Punkt splitter for English finds them.

    The reference counts lone marks as sentences too ("? ? ?"). Fixed: a sentence has a letter or digit.
    """
    count = sum(1 for sentence in sentences(text) if any(map(str.isalnum, sentence)))
    return compare(count, relation, num_sentences)


@length_constraints_number_sentences.published
def _(text: str, num_sentences: int, relation: str) -> bool:
    return compare(count_sentences(text), relation, num_sentences)


@ifeval.add(
    "length_constraints:number_paragraphs",
    kind="number of paragraphs",
    says="has exactly {num_paragraphs} paragraphs divided by ***",
    arguments={"num_paragraphs": whole()},
)
def length_constraints_number_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Exactly so many paragraphs, divided by `***`; a divider at the very start or end divides nothing."""
    parts = [bool(part.strip()) for part in _DIVIDER.split(text)]
    if not all(parts[1:-1]):
        return False
    return sum(parts) == num_paragraphs


@ifeval.add(
    "length_constraints:nth_paragraph_first_word",
    kind="first word of a paragraph",
    says="has exactly {num_paragraphs} paragraphs divided by blank lines, and paragraph "
    "{nth_paragraph} starts with '{first_word}'",
    arguments={"num_paragraphs": whole(1), "nth_paragraph": whole(1), "first_word": TEXT},
    at_most=("nth_paragraph", "num_paragraphs"),
)
def length_constraints_nth_paragraph_first_word(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Exactly so many paragraphs between blank lines, one of which starts with a given word.

    The reference counts the paragraphs that are not blank, but looks the paragraph up among all, blank ones included;
    it does not see through markup before the word. Fixed: both by the paragraphs that are there.
    """
    parts = [part for part in _BLANK_LINES.split(text) if part.strip()]
    if len(parts) != num_paragraphs:
        return False
    first = next((word.lower() for word in map(_bare, parts[nth_paragraph - 1].split()) if word), "")
    return bool(first) and _bare(first_word.lower()) in (first, _bare(_reference_word(first)))


@length_constraints_nth_paragraph_first_word.published
def _(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    parts = text.split("\n\n")
    count = sum(1 for part in parts if part.strip())
    words = parts[nth_paragraph - 1].split() if nth_paragraph <= count else []
    return bool(words) and count == num_paragraphs and _reference_word(words[0]) == first_word.lower()


def _reference_word(word: str) -> str:
    return re.split("[.,?!'\"]", word.lstrip("'").lstrip('"'), maxsplit=1)[0].lower()


def _bare(word: str) -> str:
    """Return the word without marks around it."""
    start, end = 0, len(word)
    while start < end and not word[start].isalnum():
        start += 1
    while end > start and not word[end - 1].isalnum():
        end -= 1
    return word[start:end]
