"""Words: runs of word characters, and tokens in capitals as the Penn Treebank conventions split them.

The official check counts capital tokens of NLTK 3.10's `word_tokenize`; `count_capital_words` gives the same number.
For most words no rule can change how many capital tokens they are, so the rules run on the few that they could change.
"""

from __future__ import annotations

import re

from tasks.assertions.instructions.sentences import sentences

_WORD = re.compile(r"\w+")

# The rules before and after the text is padded with blanks, in the order in which they must run; each puts blanks where
# tokens end. A rule that takes the character beside a mark consumes it, so that of two marks in a row only the first is
# split off: the counts depend on that.
_MARKS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[«“‘„]|`+", r" \g<0> "),
        (r'^"', r" `` "),
        (r"([ (\[{<])(?:\"|'{2})", r"\1 `` "),
        (r"(?i)(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", r"' "),
        (r"([^.])\.([\])}>\"'»”’ ]*+)\s*$", r"\1 . \2 "),  # the last period of a sentence
        (r"([:,])(\D)", r" \1 \2"),
        (r"[:,]$|\.{2,}", r" \g<0> "),
        (r"[;@#$%&\u2012-\u2015]", r" \g<0> "),
        (r"([^.])\.([\])}>\"']*)\s*$", r"\1 .\2 "),
        (r"[?!]", r" \g<0> "),
        (r"([^'])' ", r"\1 ' "),
        (r"[*\]\[(){}<>]|--", r" \g<0> "),
    )
)
_ENDINGS = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[»”’]|''|\"", r" \g<0> "),
        (r"\s+", " "),
        (r"([^' ])('[sS]|'[mM]|'[dD]|') ", r"\1 \2 "),
        (r"([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) ", r"\1 \2 "),
        (r"(?i)\b(can)(not)\b", r" \1 \2 "),
        (r"(?i)\b(d)('ye)\b", r" \1 \2 "),
        (r"(?i)\b(gim|lem)(me)\b", r" \1 \2 "),
        (r"(?i)\b(gon)(na)\b", r" \1 \2 "),
        (r"(?i)\b(got)(ta)\b", r" \1 \2 "),
        (r"(?i)\b(more)('n)\b", r" \1 \2 "),
        (r"(?i)\b(wan)(na)(?=\s)", r" \1 \2 "),
        (r"(?i) ('t)(is|was)\b", r" \1 \2 "),
    )
)
_TWO_TOKENS = frozenset({"CANNOT", "GIMME", "LEMME", "GONNA", "GOTTA", "WANNA"})
"""Words of letters only that are split."""
_AROUND = ".,;:!?()[]{}*#"
"""Marks around a word that are never more than tokens of their own, or part of the word's."""


def count_words(text: str) -> int:
    """Return the number of runs of letters, digits and underscores."""
    return sum(1 for _ in _WORD.finditer(text))


def count_capital_words(text: str) -> int:
    """Return the number of tokens with letters in upper case only; a hyphenated word is one token."""
    count = 0
    hard: list[str] = []
    for chunk in text.split():
        if chunk == chunk.lower():
            continue
        core = chunk.strip(_AROUND)
        if core.isascii() and core.isalpha():
            if core.isupper():
                count += 2 if core in _TWO_TOKENS else 1
        elif "'" in chunk and ("." in chunk or chunk.count("'") > 1 or not chunk.isascii()):
            # What stands around the chunk and whether it ends a sentence may matter: the whole procedure decides.
            return sum(_capitals(sentence) for sentence in sentences(text))
        else:
            hard.append(chunk)
    return count + (_capitals(f"x {' '.join(hard)} x") if hard else 0)


def _capitals(sentence: str) -> int:
    for pattern, replacement in _MARKS:
        sentence = pattern.sub(replacement, sentence)
    sentence = f" {sentence} "
    for pattern, replacement in _ENDINGS:
        sentence = pattern.sub(replacement, sentence)
    return sum(1 for token in sentence.split() if token.isupper())
