"""Instructions on words and letters that must be there, or must not."""

from __future__ import annotations

from typing import Any

from tasks.assertions.instructions.base import RELATION, TEXT, TEXTS, Argument, Instruction, Semantics, compare, whole
from tasks.assertions.instructions.wording import reference_pattern, whole_word


class Existence(Instruction):
    """Each keyword occurs. The reference searches for it as a pattern, and within longer words too."""

    id = "keywords:existence"
    kind = "words to include"
    arguments = {"keywords": TEXTS}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether every keyword is found."""
        if semantics is Semantics.REFERENCE:
            return all(reference_pattern(word, self.id).search(text) for word in self.args["keywords"])
        return all(whole_word(word).search(text) for word in self.args["keywords"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"includes {_quoted(self.args['keywords'])}"


class Frequency(Instruction):
    """A keyword occurs so often. The reference counts it as a pattern, and within longer words too."""

    id = "keywords:frequency"
    kind = "how often a word occurs"
    arguments = {"keyword": TEXT, "frequency": whole(), "relation": RELATION}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number of occurrences stands in the relation."""
        word = self.args["keyword"].strip()
        pattern = reference_pattern(word, self.id) if semantics is Semantics.REFERENCE else whole_word(word)
        return compare(sum(1 for _ in pattern.finditer(text)), self.args["relation"], self.args["frequency"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has '{self.args['keyword']}' {self.args['relation']} {self.args['frequency']} times"


class ForbiddenWords(Instruction):
    """No forbidden word occurs as a word of its own. The reference takes it as a pattern."""

    id = "keywords:forbidden_words"
    kind = "words to avoid"
    arguments = {"forbidden_words": TEXTS}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether none is found."""
        words = self.args["forbidden_words"]
        if semantics is Semantics.REFERENCE:
            return not any(reference_pattern(rf"\b{word}\b", self.id).search(text) for word in words)
        return not any(whole_word(word).search(text) for word in words)

    def describe(self) -> str:
        """Return the condition in words."""
        return f"does not use {_quoted(self.args['forbidden_words'])}"


def _character(value: Any) -> str:
    if not isinstance(value, str) or len(value.strip()) != 1:
        raise ValueError("one character")
    return value.strip()


class LetterFrequency(Instruction):
    """A character occurs so often, in either case.

    The reference replaces a character that is no Latin letter by one drawn at random, so it has no verdict of its own
    then: the given one is counted in both readings.
    """

    id = "keywords:letter_frequency"
    kind = "how often a letter occurs"
    arguments = {"letter": Argument(_character), "let_frequency": whole(), "let_relation": RELATION}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number of occurrences stands in the relation."""
        count = text.lower().count(self.args["letter"].lower())
        return compare(count, self.args["let_relation"], self.args["let_frequency"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has the letter '{self.args['letter']}' {self.args['let_relation']} {self.args['let_frequency']} times"


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f"'{word}'" for word in words)


ALL = (Existence, Frequency, ForbiddenWords, LetterFrequency)
