"""Planning masks: which sampled tokens belong to a phrase of planning ("let me check", "the key is").

Phrases are found in the text of tokens, joined by single spaces: a phrase that a tokenizer splits inside a word, that
holds a punctuation token or that crosses a blank token, another turn or an inserted token is not found. Of a
token that holds several words only the whole phrases in it count. Any function from a list of token texts to 0/1 can
take the phrases' place.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from trainers.credit.batch import TokenText

DEFAULT_PHRASES = (
    "wait let me",
    "let me think",
    "on second thought",
    "let me check",
    "let me verify",
    "is this right",
    "double check",
    "try another approach",
    "go back and",
    "start over",
    "that's not right",
    "that doesn't work",
    "another way to",
    "or we could",
    "what if we",
    "notice that",
    "the key is",
    "the key insight",
)
"""The 18 phrases of the SEPA study."""
WINDOW = 5
"""Tokens of a window: a phrase also marks the tokens before it that fit into its window."""
_WHOLE = -1
"""In the place of a word's number: the token holds a whole phrase."""
_MARKERS = str.maketrans({"\u0120": " ", "\u2581": " "})


class PhraseDetector:
    """Marks tokens of planning phrases.

    A window of at most `window` tokens ends where a phrase ends; all of it is marked, so up to `window - n` tokens
    before a phrase of n words are, too (as in the study). Words must begin and end at word boundaries; case does not
    matter.
    """

    def __init__(self, phrases: Sequence[str] = DEFAULT_PHRASES, window: int = WINDOW) -> None:
        self.phrases = tuple(dict.fromkeys(" ".join(phrase.lower().split()) for phrase in phrases if phrase.strip()))
        if not self.phrases:
            raise ValueError("planning: at least one phrase")
        self.window = max(window, max(len(phrase.split()) for phrase in self.phrases))
        self._tables = _Tables(self.phrases)

    def mask(self, text: TokenText, turn_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Shape (B, T): True for planning tokens. Array operations only; each distinct token text is read once."""
        out = np.zeros(turn_ids.size, dtype=bool)
        at = self._tables.phrase_ends(text, turn_ids)
        turns, width = turn_ids.ravel(), max(1, turn_ids.shape[1])
        out[at] = True
        for back in range(1, self.window):
            at = at[at % width >= back]
            at = at[turns[at - back] == turns[at]]
            out[at - back] = True
        return out.reshape(turn_ids.shape)


class _Tables:
    """For each distinct token, which word of a phrase it can be: first, inner or last (or a whole phrase).

    The first token may have other text before its word, the last one after it; an inner one is the word and nothing
    else. Words are numbered, so that a phrase is found by comparing columns of small integers.
    """

    def __init__(self, phrases: Sequence[str]) -> None:
        self.singles = [phrase for phrase in phrases if " " not in phrase]
        self.phrases = [phrase.split() for phrase in phrases if " " in phrase]
        self.words = {word: i + 1 for i, word in enumerate(sorted({w for p in self.phrases for w in p}))}
        self.known = np.zeros(0, dtype=bool)
        self.first, self.inner, self.last = (np.zeros(0, dtype=np.int16) for _ in range(3))
        # At most one first and one last word can stand at the edge of a token; the longest wins.
        self._at_end = self._edge({p[0] for p in self.phrases}, r"(?<!\w)({})$")
        self._at_start = self._edge({p[-1] for p in self.phrases}, r"^({})(?!\w)")
        self._anywhere = re.compile("|".join(rf"\b{re.escape(p)}\b" for p in phrases))

    @staticmethod
    def _edge(words: set[str], pattern: str) -> re.Pattern[str] | None:
        ordered = sorted(words, key=lambda word: (-len(word), word))
        return re.compile(pattern.format("|".join(map(re.escape, ordered)))) if ordered else None

    def phrase_ends(self, text: TokenText, turn_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where a phrase ends, as positions in the flattened batch."""
        self._learn(text.texts)
        # A phrase is looked up only where it can end. Ids that were not sampled may lie beyond the tables:
        # they read the last entry, which is that of no token.
        ids, turns, width = text.ids.ravel(), turn_ids.ravel(), max(1, turn_ids.shape[1])
        at = np.flatnonzero(np.take(self.last, ids, mode="clip"))
        at = at[turns[at] >= 0]
        word = self.last[ids[at]]
        ends = [at[word == _WHOLE]]
        for phrase in self.phrases:
            n = len(phrase)
            found = at[word == self.words[phrase[-1]]]
            found = found[found % width >= n - 1]
            for back in range(1, n):
                table = self.first if back == n - 1 else self.inner
                found = found[turns[found - back] == turns[found]]
                found = found[table[ids[found - back]] == self.words[phrase[n - 1 - back]]]
            ends.append(found)
        return np.concatenate(ends)

    def _learn(self, texts: Mapping[int, str]) -> None:
        size = max(texts, default=-1) + 2
        if size > len(self.known):
            self.known = _grown(self.known, size)
            self.first, self.inner, self.last = (_grown(t, size) for t in (self.first, self.inner, self.last))
        numbers = np.fromiter(texts, dtype=np.int64, count=len(texts))
        for number in numbers[~self.known[numbers]].tolist():
            cleaned = texts[number].translate(_MARKERS).strip().lower()
            self.inner[number] = self.words.get(cleaned, 0)
            for table, pattern in ((self.first, self._at_end), (self.last, self._at_start)):
                match = pattern.search(cleaned) if pattern and cleaned else None
                table[number] = self.words[match[1]] if match else 0
            if self._anywhere.search(cleaned):
                self.last[number] = _WHOLE
            self.known[number] = True


def _grown(table: NDArray, size: int) -> NDArray:
    out = np.zeros(size, dtype=table.dtype)
    out[: len(table)] = table
    return out


Detector = Callable[[Sequence[str]], Sequence[int]]
"""0 or 1 for each of the token texts of one uninterrupted stretch of a turn."""


@dataclass(frozen=True)
class Planning:
    """Where planning masks come from.

    Attributes:
        source: `default` (18 phrases), a comma list of phrases, or `module:function`.
        window: See `PhraseDetector`.
    """

    source: str = "default"
    window: int = WINDOW

    @cached_property
    def detector(self) -> PhraseDetector | Detector:
        """The detector.

        Raises:
            ValueError: The function cannot be found, or there is no phrase.
        """
        if self.source == "default":
            return PhraseDetector(window=self.window)
        if re.fullmatch(r"[\w.]+:\w+", self.source):
            return _imported(self.source)
        return PhraseDetector(self.source.split(","), self.window)

    def mask(self, text: TokenText, turn_ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Shape (B, T): True for planning tokens, False where no token was sampled.

        Raises:
            ValueError: A function gave another number of values, or one that is not 0 or 1.
        """
        if text.ids.shape != turn_ids.shape:
            raise ValueError(f"planning: token ids of shape {text.ids.shape}, turn ids of shape {turn_ids.shape}")
        detector = self.detector
        if isinstance(detector, PhraseDetector):
            return detector.mask(text, turn_ids)
        out = np.zeros(turn_ids.shape, dtype=bool)
        for row, start, end in stretches(turn_ids):
            tokens = [text.texts[number] for number in text.ids[row, start:end].tolist()]
            marks = list(detector(tokens))
            if len(marks) != len(tokens):
                raise ValueError(f"planning {self.source}: {len(marks)} values for {len(tokens)} tokens")
            if not set(marks) <= {0, 1}:
                raise ValueError(f"planning {self.source}: values other than 0 and 1")
            out[row, start:end] = marks
        return out


def stretches(turn_ids: NDArray[np.int64]) -> Iterator[tuple[int, int, int]]:
    """(row, start, end) of each run of tokens that one turn sampled without a gap."""
    for row, ids in enumerate(turn_ids):
        edges = np.flatnonzero(np.diff(ids)) + 1
        for start, end in zip([0, *edges.tolist()], [*edges.tolist(), len(ids)], strict=True):
            if end > start and ids[start] >= 0:
                yield row, start, end


def _imported(source: str) -> Detector:
    module, name = source.split(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"planning {source}: {error}") from error
    if not callable(found):
        raise ValueError(f"planning {source}: it is not a function")
    return found
