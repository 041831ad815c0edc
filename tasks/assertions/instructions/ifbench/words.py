"""Instructions on each word: its letters, its length, its neighbours."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from itertools import pairwise
from string import ascii_lowercase

from tasks.assertions.instructions.base import whole
from tasks.assertions.instructions.ifbench.base import ifbench, without_punctuation, words
from tasks.assertions.instructions.ifbench.language_data import syllables

_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}")
_PRIMES = frozenset(n for n in range(2, 100) if all(n % divisor for divisor in range(2, n)))
_NEXT = dict(zip(ascii_lowercase, ascii_lowercase[1:] + "a", strict=True))


@ifbench.add(
    "words:alphabet",
    kind="words in the order of the alphabet",
    says="starts each word with the next letter of the alphabet",
    fix="one word alone is no order; marks other than ASCII ones around words, and words joined by dashes, are seen",
)
def words_alphabet(text: str) -> bool:
    """Each word starts with the next letter of the alphabet; it may begin with any letter.

    Compare at least two words.
    """
    starts = [word[0] for word in words(text.lower())]
    return len(starts) > 1 and _in_order(starts)


@words_alphabet.published
def _(text: str) -> bool:
    """Split at blanks after punctuation is gone."""
    found = without_punctuation(text).split()
    starts = [token.lower()[0] for token in found]
    return bool(found) and found[0][0].lower() in ascii_lowercase and _in_order(starts)


@ifbench.add(
    "words:vowel",
    kind="vowels used",
    says="is one paragraph with at most three of the vowels a, e, i, o, u",
    fix="accented vowels count; a line break within the paragraph is allowed, a blank line is not",
)
def words_vowel(text: str) -> bool:
    """One paragraph with at most three of the five vowels.

    One paragraph of words, and vowels with any accent.
    """
    plain = unicodedata.normalize("NFKD", text.lower())
    blocks = _paragraphs(text)
    return len(blocks) == 1 and bool(words(text)) and len(set("aeiou").intersection(plain)) <= 3


@words_vowel.published
def _(text: str) -> bool:
    """One line, and plain vowels."""
    return "\n" not in text.strip() and len(set("aeiou").intersection(text.lower())) <= 3


@ifbench.add(
    "words:consonants",
    kind="consonant clusters",
    says="has two consonants in a row in each word",
    fix="marks that stand by themselves are no words; words joined by a dash or slash are looked at one by one",
)
def words_consonants(text: str) -> bool:
    """Each word has two consonants in a row; y is one.

    Look at the words only; a number has no consonants.
    """
    found = words(text.lower())
    return bool(found) and all(_CLUSTER.search(word) for word in found)


@words_consonants.published
def _(text: str) -> bool:
    """Split at blanks."""
    return all(_CLUSTER.search(token) for token in text.lower().split())


@ifbench.add(
    "words:palindrome",
    kind="palindromes",
    says="has at least ten palindromes of at least five letters",
    fix="ten different ones, of letters only and of more than one letter (`aaaaa` and `12321` are no words)",
)
def words_palindrome(text: str) -> bool:
    """At least ten palindromes of five letters or more.

    Count different words of letters.
    """
    found = {word for word in words(text.lower()) if word.isalpha() and len(set(word)) > 1 and _mirrored(word)}
    return len(found) >= 10


@words_palindrome.published
def _(text: str) -> bool:
    """Count with repetition; any characters will do."""
    found = [word for word in without_punctuation(text).lower().split() if _mirrored(word)]
    return len(found) >= 10


@ifbench.add(
    "words:prime_lengths",
    kind="lengths of words",
    says="has only words whose length is a prime number",
    fix="letters and digits count, whatever the kind of apostrophe; dashes by themselves are no words",
)
def words_prime_lengths(text: str) -> bool:
    """The length of each word is a prime number.

    Count letters and digits of at least one word.
    """
    lengths = [sum(character.isalnum() for character in word) for word in words(text)]
    return bool(lengths) and all(length in _PRIMES for length in lengths)


@words_prime_lengths.published
def _(text: str) -> bool:
    """Count characters after ASCII punctuation is gone."""
    return all(len(token) in _PRIMES for token in without_punctuation(text).split())


@ifbench.add(
    "words:repeats",
    kind="repeated words",
    says="has no word more than {small_n} times",
    arguments={"small_n": whole(1)},
    fix="a word in curly quotes or joined by a dash is the same word; there must be a word",
)
def words_repeats(text: str, small_n: int) -> bool:
    """No word stands more than so many times.

    Count the words.
    """
    counts = Counter(words(text.lower()))
    return bool(counts) and max(counts.values()) <= small_n


@words_repeats.published
def _(text: str, small_n: int) -> bool:
    """Split at blanks after punctuation is gone."""
    counts = Counter(without_punctuation(text.lower()).split())
    return max(counts.values(), default=0) <= small_n


@ifbench.add(
    "words:odd_even_syllables",
    kind="numbers of syllables",
    says="alternates words with an odd and an even number of syllables",
    fix="one word does not take turns; a number in digits has no syllables that can be counted, and fails",
    needs="syllapy (a word list, and a rule for the rest)",
)
def words_odd_even_syllables(text: str) -> bool:
    """Words with an odd and with an even number of syllables take turns.

    Compare at least two words of letters.
    """
    found = words(text.lower())
    if len(found) < 2 or any(character.isdigit() for word in found for character in word):
        return False
    return _take_turns([syllables(without_punctuation(word)) for word in found])


@words_odd_even_syllables.published
def _(text: str) -> bool:
    """Compare neighbours; one word passes, and a number counts as even."""
    return _take_turns([syllables(word) for word in without_punctuation(text).lower().split()])


@ifbench.add(
    "words:no_consecutive",
    kind="first letters of neighbouring words",
    says="has no two words in a row with the same first letter",
    fix="only letters are compared, not digits or curly quotes; words joined by a dash or slash are two",
)
def words_no_consecutive(text: str) -> bool:
    """No two neighbouring words start with one letter.

    Compare first letters.
    """
    found = words(text.casefold())
    return bool(found) and all(a[0] != b[0] or not a[0].isalpha() for a, b in pairwise(found))


@words_no_consecutive.published
def _(text: str) -> bool:
    """Compare first characters after ASCII punctuation is gone."""
    found = without_punctuation(text.lower()).split()
    return all(before[0] != after[0] for before, after in pairwise(found))


def _in_order(starts: list[str]) -> bool:
    return all(_NEXT.get(before) == after for before, after in pairwise(starts))


def _paragraphs(text: str) -> list[str]:
    return [block for block in re.split(r"\n[^\S\n]*+\n", text) if block.strip()]


def _mirrored(word: str) -> bool:
    return len(word) >= 5 and word == word[::-1]


def _take_turns(counts: list[int]) -> bool:
    return all(before % 2 != after % 2 for before, after in pairwise(counts))
