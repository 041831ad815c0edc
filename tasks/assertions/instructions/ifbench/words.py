"""Instructions on each word: its letters, its length, its neighbours."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import pairwise
from string import ascii_lowercase

from tasks.assertions.instructions.base import whole
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction, without_punctuation, words
from tasks.assertions.instructions.ifbench.language_data import syllables

_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = frozenset(n for n in range(2, 100) if all(n % divisor for divisor in range(2, n)))
_NEXT = dict(zip(ascii_lowercase, ascii_lowercase[1:] + "a", strict=True))


class Alphabet(IfbenchInstruction):
    """Each word starts with the next letter of the alphabet; it may begin with any letter."""

    id = "words:alphabet"
    kind = "words in the order of the alphabet"
    fix = "one word alone is no order; marks other than ASCII ones around words, and words joined by dashes, are seen"

    def published(self, text: str) -> bool:
        """Split at blanks after punctuation is gone."""
        found = without_punctuation(text).split()
        starts = [token.lower()[0] for token in found]
        return bool(found) and found[0][0].lower() in ascii_lowercase and _in_order(starts)

    def fixed(self, text: str) -> bool:
        """Compare at least two words."""
        starts = [word[0] for word in words(text.lower())]
        return len(starts) > 1 and _in_order(starts)

    def describe(self) -> str:
        """Return the condition in words."""
        return "starts each word with the next letter of the alphabet"


class Vowel(IfbenchInstruction):
    """One paragraph with at most three of the five vowels."""

    id = "words:vowel"
    kind = "vowels used"
    fix = "accented vowels count; a line break within the paragraph is allowed, a blank line is not"

    def published(self, text: str) -> bool:
        """One line, and plain vowels."""
        return "\n" not in text.strip() and len(set("aeiou").intersection(text.lower())) <= 3

    def fixed(self, text: str) -> bool:
        """One paragraph of words, and vowels with any accent."""
        plain = unicodedata.normalize("NFKD", text.lower())
        blocks = _paragraphs(text)
        return len(blocks) == 1 and bool(words(text)) and len(set("aeiou").intersection(plain)) <= 3

    def describe(self) -> str:
        """Return the condition in words."""
        return "is one paragraph with at most three of the vowels a, e, i, o, u"


class Consonants(IfbenchInstruction):
    """Each word has two consonants in a row; y is one."""

    id = "words:consonants"
    kind = "consonant clusters"
    fix = "marks that stand by themselves are no words; words joined by a dash or slash are looked at one by one"

    def published(self, text: str) -> bool:
        """Split at blanks."""
        return all(_CLUSTER.search(token) for token in text.lower().split())

    def fixed(self, text: str) -> bool:
        """Look at the words only; a number has no consonants."""
        found = words(text.lower())
        return bool(found) and all(_CLUSTER.search(word) for word in found)

    def describe(self) -> str:
        """Return the condition in words."""
        return "has two consonants in a row in each word"


class Palindrome(IfbenchInstruction):
    """At least ten palindromes of five letters or more."""

    id = "words:palindrome"
    kind = "palindromes"
    fix = "ten different ones, of letters only and of more than one letter (`aaaaa` and `12321` are no words)"

    def published(self, text: str) -> bool:
        """Count with repetition; any characters will do."""
        found = [word for word in without_punctuation(text).lower().split() if _mirrored(word)]
        return len(found) >= 10

    def fixed(self, text: str) -> bool:
        """Count different words of letters."""
        found = {word for word in words(text.lower()) if word.isalpha() and len(set(word)) > 1 and _mirrored(word)}
        return len(found) >= 10

    def describe(self) -> str:
        """Return the condition in words."""
        return "has at least ten palindromes of at least five letters"


class PrimeLengths(IfbenchInstruction):
    """The length of each word is a prime number."""

    id = "words:prime_lengths"
    kind = "lengths of words"
    fix = "letters and digits count, whatever the kind of apostrophe; dashes by themselves are no words"

    def published(self, text: str) -> bool:
        """Count characters after ASCII punctuation is gone."""
        return all(len(token) in _PRIMES for token in without_punctuation(text).split())

    def fixed(self, text: str) -> bool:
        """Count letters and digits of at least one word."""
        lengths = [sum(character.isalnum() for character in word) for word in words(text)]
        return bool(lengths) and all(length in _PRIMES for length in lengths)

    def describe(self) -> str:
        """Return the condition in words."""
        return "has only words whose length is a prime number"


class Repeats(IfbenchInstruction):
    """No word stands more than so many times."""

    id = "words:repeats"
    kind = "repeated words"
    arguments = {"small_n": whole(1)}
    fix = "a word in curly quotes or joined by a dash is the same word; there must be a word"

    def published(self, text: str) -> bool:
        """Split at blanks after punctuation is gone."""
        counts = Counter(without_punctuation(text.lower()).split())
        return max(counts.values(), default=0) <= self.args["small_n"]

    def fixed(self, text: str) -> bool:
        """Count the words."""
        counts = Counter(words(text.lower()))
        return bool(counts) and max(counts.values()) <= self.args["small_n"]

    def describe(self) -> str:
        """Return the condition in words."""
        return f"has no word more than {self.args['small_n']} times"


class OddEvenSyllables(IfbenchInstruction):
    """Words with an odd and with an even number of syllables take turns."""

    id = "words:odd_even_syllables"
    kind = "numbers of syllables"
    needs = "syllapy (a word list, and a rule for the rest)"
    fix = "one word does not take turns; a number in digits has no syllables that can be counted, and fails"

    def published(self, text: str) -> bool:
        """Compare neighbours; one word passes, and a number counts as even."""
        return _take_turns([syllables(word) for word in without_punctuation(text).lower().split()])

    def fixed(self, text: str) -> bool:
        """Compare at least two words of letters."""
        found = words(text.lower())
        if len(found) < 2 or any(character.isdigit() for word in found for character in word):
            return False
        return _take_turns([syllables(without_punctuation(word)) for word in found])

    def describe(self) -> str:
        """Return the condition in words."""
        return "alternates words with an odd and an even number of syllables"


class NoConsecutive(IfbenchInstruction):
    """No two neighbouring words start with one letter."""

    id = "words:no_consecutive"
    kind = "first letters of neighbouring words"
    fix = "only letters are compared, not digits or curly quotes; words joined by a dash or slash are two"

    def published(self, text: str) -> bool:
        """Compare first characters after ASCII punctuation is gone."""
        found = without_punctuation(text.lower()).split()
        return all(before[0] != after[0] for before, after in pairwise(found))

    def fixed(self, text: str) -> bool:
        """Compare first letters."""
        found = words(text.casefold())
        return bool(found) and all(a[0] != b[0] or not a[0].isalpha() for a, b in pairwise(found))

    def describe(self) -> str:
        """Return the condition in words."""
        return "has no two words in a row with the same first letter"


def _in_order(starts: list[str]) -> bool:
    return all(_NEXT.get(before) == after for before, after in pairwise(starts))


def _paragraphs(text: str) -> list[str]:
    return [block for block in re.split(r"\n[^\S\n]*+\n", text) if block.strip()]


def _mirrored(word: str) -> bool:
    return len(word) >= 5 and word == word[::-1]


def _take_turns(counts: list[int]) -> bool:
    return all(before % 2 != after % 2 for before, after in pairwise(counts))


ALL: tuple[type[IfbenchInstruction], ...] = (
    Alphabet,
    Vowel,
    Consonants,
    Palindrome,
    PrimeLengths,
    Repeats,
    OddEvenSyllables,
    NoConsecutive,
)
"""The instructions of this module."""
