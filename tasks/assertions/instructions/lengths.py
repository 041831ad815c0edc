"""Instructions on how long a text is: words, sentences, paragraphs."""

from __future__ import annotations

import re

from tasks.assertions.instructions.base import RELATION, TEXT, Instruction, InstructionError, Semantics, compare, whole
from tasks.assertions.instructions.sentences import count_sentences, sentences
from tasks.assertions.instructions.words import count_words

_DIVIDER = re.compile(r"\s?\*\*\*\s?")
_BLANK_LINES = re.compile(r"\n(?:[^\S\n]*\n)+")


class NumberOfWords(Instruction):
    """So many runs of word characters: "don't" is two, as in the reference."""

    id = "length_constraints:number_words"
    kind = "number of words"
    arguments = {"num_words": whole(), "relation": RELATION}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number of words stands in the relation."""
        return compare(count_words(text), self.args["relation"], self.args["num_words"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has {self.args['relation']} {self.args['num_words']} words"


class NumberOfSentences(Instruction):
    """So many sentences, as the Punkt splitter for English finds them.

    The reference counts lone marks as sentences too ("? ? ?"). Fixed: a sentence has a letter or digit.
    """

    id = "length_constraints:number_sentences"
    kind = "number of sentences"
    arguments = {"num_sentences": whole(), "relation": RELATION}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number of sentences stands in the relation."""
        if semantics is Semantics.REFERENCE:
            count = count_sentences(text)
        else:
            count = sum(1 for sentence in sentences(text) if any(map(str.isalnum, sentence)))
        return compare(count, self.args["relation"], self.args["num_sentences"])

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has {self.args['relation']} {self.args['num_sentences']} sentences"


class NumberOfParagraphs(Instruction):
    """Exactly so many paragraphs, divided by `***`; a divider at the very start or end divides nothing."""

    id = "length_constraints:number_paragraphs"
    kind = "number of paragraphs"
    arguments = {"num_paragraphs": whole()}

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number is met, and no paragraph between two dividers is blank."""
        parts = [bool(part.strip()) for part in _DIVIDER.split(text)]
        if not all(parts[1:-1]):
            return False
        return sum(parts) == self.args["num_paragraphs"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has exactly {self.args['num_paragraphs']} paragraphs divided by ***"


class NthParagraphFirstWord(Instruction):
    """Exactly so many paragraphs between blank lines, one of which starts with a given word.

    The reference counts the paragraphs that are not blank, but looks the paragraph up among all, blank ones included;
    it does not see through markup before the word. Fixed: both by the paragraphs that are there.
    """

    id = "length_constraints:nth_paragraph_first_word"
    kind = "first word of a paragraph"
    arguments = {"num_paragraphs": whole(1), "nth_paragraph": whole(1), "first_word": TEXT}

    def prepare(self) -> None:
        """Refuse a paragraph beyond the last."""
        if self.args["nth_paragraph"] > self.args["num_paragraphs"]:
            raise InstructionError(f"{self.id}: 'nth_paragraph' is more than 'num_paragraphs'")

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the number of paragraphs is met and the paragraph starts with the word."""
        number, wanted = self.args["nth_paragraph"], self.args["first_word"].lower()
        if semantics is Semantics.REFERENCE:
            parts = text.split("\n\n")
            count = sum(1 for part in parts if part.strip())
            words = parts[number - 1].split() if number <= count else []
            return bool(words) and count == self.args["num_paragraphs"] and _reference_word(words[0]) == wanted
        parts = [part for part in _BLANK_LINES.split(text) if part.strip()]
        if len(parts) != self.args["num_paragraphs"]:
            return False
        first = next((word.lower() for word in map(_bare, parts[number - 1].split()) if word), "")
        return bool(first) and _bare(wanted) in (first, _bare(_reference_word(first)))

    def describe(self) -> str:
        """Return the condition in words."""
        return (
            f"has exactly {self.args['num_paragraphs']} paragraphs divided by blank lines, and paragraph "
            f"{self.args['nth_paragraph']} starts with '{self.args['first_word']}'"
        )


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


ALL = (NumberOfWords, NumberOfSentences, NumberOfParagraphs, NthParagraphFirstWord)
