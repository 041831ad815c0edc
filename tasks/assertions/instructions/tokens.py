"""Tokens of a text as NLTK's `word_tokenize` gives them: Treebank conventions, sentence by sentence, in linear time.

The published readings use them, and the counts of words in capitals; else, fixed readings count what people call words.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tasks.assertions.instructions.sentences import sentences

_PADDED = r" \g<0> "

# Data: the conventions, in the order in which they must run. Each puts blanks where tokens end. A rule that takes the
# character beside a mark consumes it, so the rules cannot be merged into one pass. All are linear on any text.
_MARKS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[«“‘„]|`+", _PADDED),
        (r'^"', "``"),
        (r"``", _PADDED),
        (r"([ (\[{<])(?:\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", "' "),
        (r"([^.])\.([\])}>\"'»”’ ]*+)\s*$", r"\1 . \2 "),
        (r"([:,])(\D)", r" \1 \2"),
        (r"[:,]$", _PADDED),
        (r"\.{2,}|[;@#$%&]|[\u2012-\u2015]", _PADDED),
        (r"([^.])\.([\])}>\"']*)\s*$", r"\1 .\2 "),
        (r"[?!]", _PADDED),
        (r"([^'])' ", r"\1 ' "),
        (r"[*\]\[(){}<>]|--", _PADDED),
    )
)
_ENDS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[»”’]", _PADDED),
        (r"''|\"", " '' "),
        (r"\s+", " "),
        (r"([^' ])('[sSmMdD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b|\b(d)('ye)\b|\b(gim|lem)(me)\b|\b(gon)(na)\b|\b(got)(ta)\b|\b(more)('n)\b", None),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is|was)\b", r" \1 \2 "),
    )
)


def tokens(text: str) -> list[str]:
    """Return the tokens of an English text, marks among them; a double quote comes out as two single ones."""
    return [
        token
        for sentence in sentences(text)
        for token in (_short(sentence) if len(sentence) < 64 else split(sentence))  # no long junk is kept in memory
    ]


def word_tokens(sentence: str) -> list[str]:
    """Return the tokens that hold a letter or a digit."""
    return [token for token in tokens(sentence) if any(character.isalnum() for character in token)]


def split(sentence: str) -> list[str]:
    """Return the tokens of one sentence."""
    for pattern, replacement in _MARKS:
        sentence = pattern.sub(replacement, sentence)
    sentence = f" {sentence} "
    for pattern, rule in _ENDS:
        sentence = pattern.sub(_halves if rule is None else rule, sentence)
    return sentence.split()


@lru_cache(maxsize=4096)
def _short(sentence: str) -> tuple[str, ...]:
    return tuple(split(sentence))


def _halves(match: re.Match[str]) -> str:
    return " " + " ".join(part for part in match.groups() if part is not None) + " "
