"""Words: runs of word characters, and tokens in capitals as the Penn Treebank conventions split them.

The official check counts capital tokens of NLTK 3.10's `word_tokenize`; `count_capital_words` gives the same number.
For most words no rule can change how many capital tokens they are, so the rules run on the few that they could change.
"""

from __future__ import annotations

import re

from tasks.assertions.instructions.sentences import sentences
from tasks.assertions.instructions.tokens import split

_WORD = re.compile(r"\w+")

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
    return sum(1 for token in split(sentence) if token.isupper())
