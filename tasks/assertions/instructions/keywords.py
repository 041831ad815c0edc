"""Instructions on words and letters that must be there, or must not."""

from __future__ import annotations

from typing import Any

from tasks.assertions.instructions.base import RELATION, TEXT, TEXTS, Argument, compare, ifeval, whole
from tasks.assertions.instructions.wording import reference_pattern, whole_word


@ifeval.add(
    "keywords:existence",
    kind="words to include",
    says="includes {keywords}",
    arguments={"keywords": TEXTS},
)
def keywords_existence(text: str, keywords: tuple[str, ...]) -> bool:
    """Each keyword occurs. The reference searches for it as a pattern, and within longer words too."""
    return all(whole_word(word).search(text) for word in keywords)


@keywords_existence.published
def _(text: str, keywords: tuple[str, ...]) -> bool:
    return all(reference_pattern(word).search(text) for word in keywords)


@ifeval.add(
    "keywords:frequency",
    kind="how often a word occurs",
    says="has '{keyword}' {relation} {frequency} times",
    arguments={"keyword": TEXT, "frequency": whole(), "relation": RELATION},
)
def keywords_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    """A keyword occurs so often. The reference counts it as a pattern, and within longer words too."""
    return compare(sum(1 for _ in whole_word(keyword.strip()).finditer(text)), relation, frequency)


@keywords_frequency.published
def _(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return compare(sum(1 for _ in reference_pattern(keyword.strip()).finditer(text)), relation, frequency)


@ifeval.add(
    "keywords:forbidden_words",
    kind="words to avoid",
    says="does not use {forbidden_words}",
    arguments={"forbidden_words": TEXTS},
)
def keywords_forbidden_words(text: str, forbidden_words: tuple[str, ...]) -> bool:
    """No forbidden word occurs as a word of its own. The reference takes it as a pattern."""
    return not any(whole_word(word).search(text) for word in forbidden_words)


@keywords_forbidden_words.published
def _(text: str, forbidden_words: tuple[str, ...]) -> bool:
    return not any(reference_pattern(rf"\b{word}\b").search(text) for word in forbidden_words)


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


@ifeval.add(
    "keywords:letter_frequency",
    kind="how often a letter occurs",
    says="has the letter '{letter}' {let_relation} {let_frequency} times",
    arguments={"letter": Argument(_character), "let_frequency": whole(), "let_relation": RELATION},
)
def keywords_letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    """A character occurs so often, in either case.

    The reference replaces a character that is no Latin letter by one drawn at random, so it has no verdict of its own
    then: the given one is counted in both readings.
    """
    count = text.lower().count(letter.lower())
    return compare(count, let_relation, let_frequency)
