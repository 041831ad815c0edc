"""IFBench instructions that count and compare: words, names, marks, proportions."""

from __future__ import annotations

import re
from collections import Counter

from tasks.answers.ifbench.base import STOP_WORDS, bare, ifbench, occurrences, without_punctuation, words
from tasks.answers.ifeval import TEXT, whole
from tasks.answers.ifeval.text import sentences, tokens

# -- Instructions that count: words, keywords, numbers, names, pronouns, conjunctions, marks, Japanese words ----------

_CONJUNCTIONS = frozenset({"and", "but", "for", "nor", "or", "so", "yet"})
_DIGITS = re.compile(r"\d+")
_FIGURES = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)*")
_WORD = re.compile(r"\w+")
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_JAPANESE_TOO = re.compile(r"[\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9f]")

# Data: the pronouns and the names that the evaluator looks for (allenai/IFBench, Apache-2.0). Its prompts list the same
# names.
_LISTED = """
i me we us you he him she her it they them my mine our ours your yours his hers its their theirs myself ourselves
yourself yourselves himself herself itself themselves this that these those who whom whose which what whoever whomever
whatever whichever anybody anyone anything everybody everyone everything nobody nothing somebody someone something
each either neither both all some any none
"""
_PEOPLE = """
Emma Liam Sophia Jackson Olivia Noah Ava Lucas Isabella Mason Mia Ethan Charlotte Alexander Amelia Benjamin Harper Leo
Zoe Daniel Chloe Samuel Lily Matthew Grace Owen Abigail Gabriel Ella Jacob Scarlett Nathan Victoria Elijah Layla
Nicholas Audrey David Hannah Christopher Penelope Thomas Nora Andrew Aria Joseph Claire Ryan Stella Jonathan
"""
_PRONOUNS, _NAMES = frozenset(_LISTED.split()), frozenset(_PEOPLE.split())
_MORE_PRONOUNS = frozenset({"another", "others", "oneself", "themself", "ourself"})


@ifbench.add(
    "count:word_count_range",
    kind="number of words",
    says="has {min_words} to {max_words} words",
    arguments={"min_words": whole(), "max_words": whole()},
    at_most=("min_words", "max_words"),
)
def count_word_count_range(text: str, min_words: int, max_words: int) -> bool:
    """So many words: runs of letters, digits and underscores, as IFEval counts them."""
    found = sum(1 for _ in _WORD.finditer(text))
    return min_words <= found <= max_words


@ifbench.add(
    "count:unique_word_count",
    kind="number of different words",
    says="has at least {N} different words",
    arguments={"N": whole()},
    fix="marks that stand by themselves are no word, and a word in curly quotes is the word without them",
)
def count_unique_word_count(text: str, N: int) -> bool:
    """At least so many different words.

    Count the words only.
    """
    return len(set(words(text.lower()))) >= N


@count_unique_word_count.published
def _(text: str, N: int) -> bool:
    """Split at blanks; a run of marks counts as one more word."""
    return len({bare(token) for token in text.lower().split()}) >= N


@ifbench.add(
    "count:conjunctions",
    kind="number of different conjunctions",
    says="uses at least {small_n} of the conjunctions and, but, for, nor, or, so, yet",
    arguments={"small_n": whole()},
    fix="`and`, `And` and `and,` are one conjunction, not three",
)
def count_conjunctions(text: str, small_n: int) -> bool:
    """At least so many of the seven coordinating conjunctions.

    Compare the words.
    """
    return len(_CONJUNCTIONS.intersection(words(text.lower()))) >= small_n


@count_conjunctions.published
def _(text: str, small_n: int) -> bool:
    """Compare the tokens as they are written."""
    found = {token for token in text.split() if bare(token).lower() in _CONJUNCTIONS}
    return len(found) >= small_n


@ifbench.add(
    "count:person_names",
    kind="number of person names",
    says="mentions at least {N} different names of the list",
    arguments={"N": whole()},
)
def count_person_names(text: str, N: int) -> bool:
    """At least so many of the fifty names that the prompt lists."""
    return len(_NAMES.intersection(_WORD.findall(text))) >= N


@ifbench.add(
    "count:numbers",
    kind="number of numbers",
    says="holds exactly {N} numbers",
    arguments={"N": whole()},
    fix="numbers with a mark between them (`10-20`, `1/2`, `12:30`) are two, not one; `1,000.50` stays one",
)
def count_numbers(text: str, N: int) -> bool:
    """Exactly so many numbers, written in digits.

    Count numbers with their thousands separators and decimals; other commas part numbers.
    """
    runs = _FIGURES.findall(text)
    return sum(1 if _THOUSANDS.fullmatch(run) else 1 + run.count(",") for run in runs) == N


@count_numbers.published
def _(text: str, N: int) -> bool:
    """Count runs of digits after all punctuation is gone."""
    return sum(1 for _ in _DIGITS.finditer(without_punctuation(text))) == N


@ifbench.add(
    "count:pronouns",
    kind="number of pronouns",
    says="has at least {N} pronouns",
    arguments={"N": whole()},
    fix="`another`, `others`, `oneself`, `themself`, `ourself` count too",
)
def count_pronouns(text: str, N: int) -> bool:
    """At least so many pronouns, from a list; determiners such as `this` count.

    Count by a list with a few more.
    """
    found = tokens(text.replace("/", " ").lower())
    return sum(token in _PRONOUNS or token in _MORE_PRONOUNS for token in found) >= N


@count_pronouns.published
def _(text: str, N: int) -> bool:
    """Count the tokens that are in the list."""
    return sum(token in _PRONOUNS for token in tokens(text.replace("/", " ").lower())) >= N


@ifbench.add(
    "count:punctuation",
    kind="punctuation marks used",
    says="uses . , ! ? ; : and an interrobang (?!), each at least once",
)
def count_punctuation(text: str) -> bool:
    """Each of `. , ! ? ; :` and an interrobang beside them."""
    if not any(mark in text for mark in ("?!", "!?", "\u203d")):
        return False
    rest = text.replace("?!" if "?!" in text else "!?", "", 1)
    return all(mark in rest for mark in ".,!?;:")


@ifbench.add(
    "count:words_japanese",
    kind="words in Japanese",
    says="has each {N}-th word in Japanese",
    arguments={"N": whole(1)},
    fix="there must be an N-th word; marks are no words; a number in digits is not Japanese",
)
def count_words_japanese(text: str, N: int) -> bool:
    """Every N-th word is Japanese.

    Each N-th word holds a Japanese character.
    """
    chosen = words(text)[N - 1 :: N]
    return bool(chosen) and all(_JAPANESE_TOO.search(word) for word in chosen)


@count_words_japanese.published
def _(text: str, N: int) -> bool:
    """Split at blanks; numbers and marks are let pass, and a short text has no N-th word to fail."""
    chosen = (bare(token) for token in text.split()[N - 1 :: N])
    return all(_JAPANESE.search(token) for token in chosen if token and not token.isdigit())


_KEYWORDS = tuple(f"keyword{number}" for number in range(1, 6))
_TIMES = (1, 2, 3, 5, 7)


@ifbench.add(
    "count:keywords_multiple",
    kind="how often keywords stand",
    says="has " + ", ".join(f"'{{{name}}}' {times} times" for name, times in zip(_KEYWORDS, _TIMES, strict=True)),
    arguments=dict.fromkeys(_KEYWORDS, TEXT),
    fix="a keyword inside another word does not count (`art` in `start`)",
)
def count_keywords_multiple(text: str, **keywords: str) -> bool:
    """Five keywords, once, twice, three, five and seven times.

    Count whole words; case is ignored.
    """
    asked = zip(keywords.values(), _TIMES, strict=True)
    return all(occurrences(word.strip(), text) == times for word, times in asked)


@count_keywords_multiple.published
def _(text: str, **keywords: str) -> bool:
    """Count substrings; case is ignored."""
    lower = text.lower()
    asked = zip(keywords.values(), _TIMES, strict=True)
    return all(lower.count(word.strip().lower()) == times for word, times in asked)


# -- Instructions on proportions: kinds of sentence, overlap with a text, stop words, sentences of one length ---------

_CLOSING = "\"'*_)]}\u2019\u201d\xbb` \t\n"
"""What may stand after the mark that ends a sentence."""


def _marks(text: str, closing: str = "") -> Counter[str]:
    """Count the last characters of the sentences; `closing` characters after them are passed over."""
    ends = (sentence.rstrip(closing) if closing else sentence for sentence in sentences(text))
    return Counter(end[-1] for end in ends if end)


@ifbench.add(
    "ratio:sentence_type",
    kind="ratio of sentence types",
    says="has two statements for each question",
    fix="there must be a question (0 statements to 0 questions is no ratio); a mark inside closing quotes counts",
)
def ratio_sentence_type(text: str) -> bool:
    """Twice as many statements as questions.

    Compare the marks; at least one question.
    """
    marks = _marks(text, _CLOSING)
    return marks["."] == 2 * marks["?"] > 0


@ratio_sentence_type.published
def _(text: str) -> bool:
    """Compare last characters; none of either kind passes."""
    marks = _marks(text)
    return marks["."] == 2 * marks["?"]


@ifbench.add(
    "ratio:sentence_balance",
    kind="balance of sentence types",
    says="has as many statements as questions as exclamations",
    fix="there must be at least one of each; a mark inside closing quotes counts",
)
def ratio_sentence_balance(text: str) -> bool:
    """As many statements as questions as exclamations.

    Compare the marks; at least one of each.
    """
    marks = _marks(text, _CLOSING)
    return marks["."] == marks["?"] == marks["!"] > 0


@ratio_sentence_balance.published
def _(text: str) -> bool:
    """Compare last characters; none of any kind passes."""
    marks = _marks(text)
    return marks["."] == marks["?"] == marks["!"]


@ifbench.add(
    "ratio:sentence_words",
    kind="sentences of equal length from different words",
    says="is three sentences with the same number of characters and no word twice",
    fix="the words are looked at: none may stand twice",
)
def ratio_sentence_words(text: str) -> bool:
    """Three sentences of one length without a word in common.

    Compare the lengths, then the words; case is ignored.
    """
    found = words(text.casefold())
    return _three_of_one_length(text) and len(found) == len(set(found))


@ratio_sentence_words.published
def _three_of_one_length(text: str) -> bool:
    """Compare the lengths only."""
    found = sentences(text)
    return len(found) == 3 and len({len(sentence.strip()) for sentence in found}) == 1


@ifbench.add(
    "ratio:overlap",
    kind="overlap with the reference text",
    says="shares {percentage}% (±2) of its character trigrams with the reference text",
    arguments={"reference_text": TEXT, "percentage": whole()},
)
def ratio_overlap(text: str, reference_text: str, percentage: int) -> bool:
    """Share of the text's trigrams, of characters, that a reference text has too: within 2 points of a percentage."""
    found = _trigrams(text)
    if not found:
        return False
    share = len(found & _trigrams(reference_text)) / len(found) * 100
    return percentage - 2 <= share <= percentage + 2


@ifbench.add(
    "ratio:stop_words",
    kind="share of stop words",
    says="has at most {percentage}% stop words",
    arguments={"percentage": whole()},
)
def ratio_stop_words(text: str, percentage: int) -> bool:
    """At most so many words in a hundred are stop words."""
    found = _WORD.findall(text)
    share = sum(word.lower() in STOP_WORDS for word in found) / len(found) * 100 if found else 101
    return bool(found) and share <= percentage


def _trigrams(text: str) -> set[str]:
    return {text[index : index + 3] for index in range(len(text) - 2)}
