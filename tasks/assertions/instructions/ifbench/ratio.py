"""Instructions on proportions: kinds of sentence, overlap with a text, stop words, sentences of one length."""

from __future__ import annotations

import re
from collections import Counter

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import ifbench, words
from tasks.assertions.instructions.ifbench.stop_words import STOP_WORDS
from tasks.assertions.instructions.sentences import sentences

_RUN = re.compile(r"\w+")
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
    found = _RUN.findall(text)
    share = sum(word.lower() in STOP_WORDS for word in found) / len(found) * 100 if found else 101
    return bool(found) and share <= percentage


def _trigrams(text: str) -> set[str]:
    return {text[index : index + 3] for index in range(len(text) - 2)}
