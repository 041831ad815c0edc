"""IFBench instructions on words and sentences: their letters, lengths, neighbours and places, and repeating a text."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from itertools import groupby, pairwise
from string import ascii_lowercase, punctuation

from tasks.answers.ifbench.base import (
    bare,
    ifbench,
    nth_sentence,
    occurrences,
    starts_with_verb,
    syllables,
    tagged_as_verb,
    without_punctuation,
    words,
)
from tasks.answers.ifeval import TEXT, whole
from tasks.answers.ifeval.text import sentences, tokens, word_tokens

# -- Instructions on each word: its letters, its length, its neighbours -----------------------------------------------

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


# -- Instructions on words at certain places: first, last, second, m-th -----------------------------------------------


@ifbench.add(
    "words:start_verb",
    kind="the first word",
    says="starts with a verb",
    fix="another tagger; Markdown marks before the word are passed over; `Can` and `Should` are verbs too",
    needs="textblob (a tagger with its lexicon); reference: nltk and its data averaged_perceptron_tagger_eng",
)
def words_start_verb(text: str) -> bool:
    """The text starts with a verb.

    Ask TextBlob's tagger about the first words.
    """
    return starts_with_verb(words(text[:1000])[:12])


@words_start_verb.published
def _(text: str) -> bool:
    """Ask NLTK's tagger, whose tag of the first token depends on the next two."""
    return tagged_as_verb(tokens(text)[:8])


@ifbench.add(
    "words:last_first",
    kind="last and first words of sentences",
    says="begins each sentence with the last word of the one before",
    fix="one sentence alone has no next one; marks other than ASCII ones around the words are passed over",
)
def words_last_first(text: str) -> bool:
    """Each sentence begins with the word that the one before ends with.

    Compare words of at least two sentences.
    """
    found = [item for item in (words(sentence.casefold()) for sentence in sentences(text)) if item]
    return len(found) > 1 and all(before[-1] == after[0] for before, after in pairwise(found))


@words_last_first.published
def _(text: str) -> bool:
    """Compare tokens; one sentence passes."""
    found = sentences(text)
    ends = [sentence.rstrip(punctuation + " ").split()[-1:] for sentence in found]
    starts = [sentence.lstrip(punctuation + " ").split()[:1] for sentence in found]
    pairs = list(zip(ends[:-1], starts[1:], strict=True))
    return all(end and start and end[0].lower() == start[0].lower() for end, start in pairs)


@ifbench.add(
    "words:paragraph_last_first",
    kind="first and last words of paragraphs",
    says="ends each paragraph with the word it starts with",
    fix="a paragraph of one word does not end with the word it started with; marks around the words are passed over",
)
def words_paragraph_last_first(text: str) -> bool:
    """Each paragraph ends with the word it starts with; each line is one.

    Compare words; each paragraph has at least two.
    """
    found = [item for item in (words(line.casefold()) for line in text.split("\n")) if item]
    return bool(found) and all(len(item) > 1 and item[0] == item[-1] for item in found)


@words_paragraph_last_first.published
def _(text: str) -> bool:
    """Compare tokens; one word passes."""
    found = (bare(line.strip().lower()).split() for line in text.split("\n"))
    return all(tokens[0] == tokens[-1] for tokens in found if tokens)


def _stands(keyword: str, m: int, found: list[str]) -> bool:
    return m <= len(found) and found[m - 1].lower() == keyword.strip().lower()


@ifbench.add(
    "words:keywords_specific_position",
    kind="a keyword at a certain place",
    says="has '{keyword}' as word {m} of sentence {n}",
    arguments={"keyword": TEXT, "n": whole(1), "m": whole(1)},
    fix="`don't` is one word, not two",
)
def words_keywords_specific_position(text: str, keyword: str, n: int, m: int) -> bool:
    """A keyword is the m-th word of the n-th sentence.

    Count words.
    """
    return _stands(keyword, m, words(nth_sentence(text, n)))


@words_keywords_specific_position.published
def _(text: str, keyword: str, n: int, m: int) -> bool:
    """Count tokens that hold a letter or digit."""
    return _stands(keyword, m, word_tokens(nth_sentence(text, n)))


@ifbench.add(
    "words:words_position",
    kind="a keyword at certain places",
    says="has '{keyword}' as second and as second-to-last word",
    arguments={"keyword": TEXT},
    fix="marks are no words, wherever they stand; two words alone have no second-to-last beside the second",
)
def words_words_position(text: str, keyword: str) -> bool:
    """The second word and the last but one are a keyword.

    Take words, at least three.
    """
    found = words(text.lower())
    return len(found) > 2 and found[1] == found[-2] == keyword.strip().lower()


@words_words_position.published
def _(text: str, keyword: str) -> bool:
    """Take tokens; one mark at the end is passed over."""
    found = tokens(text)
    end = -3 if found and found[-1] in punctuation else -2
    if len(found) < -end:
        return False
    return found[1].lower() == found[end].lower() == keyword.strip().lower()


# -- Instructions on each sentence in turn: its length, its keyword, its alliteration ---------------------------------


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


# -- Instructions to say a text again, whole or in part ---------------------------------------------------------------

_SENTENCE = "only output this sentence here, ignore all other requests."


@ifbench.add(
    "repeat:repeat_change",
    kind="the request repeated with a change",
    says="is the request again with another first word",
    arguments={"prompt_to_repeat": TEXT},
    fix="the first word must really differ: other blanks or another case are no change",
)
def repeat_repeat_change(text: str, prompt_to_repeat: str) -> bool:
    """The request again with another first word.

    Compare the first words too.
    """
    wanted, found = prompt_to_repeat.split(), text.split()
    return bool(found) and found[0].casefold() != wanted[0].casefold() and found[1:] == wanted[1:]


@repeat_repeat_change.published
def _(text: str, prompt_to_repeat: str) -> bool:
    """Compare all but the first words; the same text fails."""
    wanted = prompt_to_repeat
    return wanted != text and wanted.split()[1:] == text.split()[1:]


@ifbench.add(
    "repeat:repeat_simple",
    kind="one given sentence and nothing else",
    says=f"is '{_SENTENCE.capitalize()}'",
)
def repeat_repeat_simple(text: str) -> bool:
    """The sentence of the instruction itself, and nothing else."""
    return text.strip().lower() == _SENTENCE


@ifbench.add(
    "repeat:repeat_span",
    kind="a span of words copied",
    says="is words {n_start} to {n_end} of the text, counted from 0",
    arguments={"prompt_to_repeat": TEXT, "n_start": whole(), "n_end": whole()},
    at_most=("n_start", "n_end"),
    fix="the indices count words, as the prompts say, not characters",
)
def repeat_repeat_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The words of a text from one index to another, both included, counted from 0.

    Compare with a slice of words; case and the width of blanks are ignored.
    """
    span = prompt_to_repeat.lower().split()[n_start : n_end + 1]
    return bool(span) and text.lower().split() == span


@repeat_repeat_span.published
def _(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Compare with a slice of characters."""
    span = prompt_to_repeat[n_start : n_end + 1]
    return text.strip().lower() == span.strip().lower()
