"""Planning without a list of phrases: marked by embeddings, or phrases mined from replies.

Both take a function that embeds texts, from a list of them to an array of shape (texts, dimensions), as
`SentenceTransformer(...).encode` is: any library may be used, and none is needed here. `AnchorDetector` goes where a
function of `--planning module:name` goes; what `mine` returns are phrases for the same option.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Embed = Callable[[list[str]], Any]
"""Texts to vectors, one row each."""

# -- A detector: text that is closer to examples of planning than to examples of carrying out -------------------------

PLANNING = (
    "first I look at what is there before I change anything",
    "let me check whether that is really so",
    "that did not work, so I try something else",
    "the plan is to do this in three steps",
    "wait, I have to think about this again",
    "what if there is more than one such file",
    "another way to solve this is",
    "before I finish I compare the result with the task",
)
CARRYING_OUT = (
    "copy the file to the new folder",
    "the number of lines is twelve",
    "write the text into the file",
    "two plus three is five",
    "the output contains the name",
    "remove the last column",
    "so x is equal to four",
    "the command prints the result",
)
"""Examples; words of one's own field are better ones."""
_MARKERS = str.maketrans({"\u0120": " ", "\u2581": " ", "\u010a": "\n"})
_WORD = re.compile(r"\S+")


class AnchorDetector:
    """Marks tokens of windows whose nearest example is one of planning.

    A window of `words` words counts as planning where its largest cosine with `planning` is above `least`, and above
    that with `carrying_out` by `margin`. Windows overlap (`stride`); a token that lies in one that counts is marked.

    Args:
        embed: Texts to vectors.
        planning: Examples of planning; `carrying_out` of the rest.
        words: Words of a window; `stride` from one to the next.
        margin: By how much planning must be nearer; `least` the smallest cosine that counts.

    Raises:
        ValueError: There is no example, or a number is too small.
    """

    def __init__(
        self,
        embed: Embed,
        *,
        planning: Sequence[str] = PLANNING,
        carrying_out: Sequence[str] = CARRYING_OUT,
        words: int = 12,
        stride: int = 6,
        margin: float = 0.02,
        least: float = 0.25,
    ) -> None:
        if not planning or not carrying_out or words < 1 or not 1 <= stride <= words:
            raise ValueError("AnchorDetector: examples of both kinds, words of at least 1, and a stride of 1 to words")
        self._embed, self._words, self._stride = embed, words, stride
        self._margin, self._least = margin, least
        self._planning, self._rest = (unit_rows(embed, list(texts)) for texts in (planning, carrying_out))

    def __call__(self, tokens: Sequence[str]) -> list[int]:
        """0 or 1 for each token text of one uninterrupted stretch of a turn."""
        text, ends = _joined(tokens)
        words = list(_WORD.finditer(text))
        marks = [0] * len(tokens)
        if not words:
            return marks
        last = max(0, len(words) - self._words)
        starts = sorted({*range(0, last + 1, self._stride), last})
        spans = [(words[at].start(), words[min(at + self._words, len(words)) - 1].end()) for at in starts]
        vectors = unit_rows(self._embed, [text[begin:end] for begin, end in spans])
        near, other = (vectors @ rows.T for rows in (self._planning, self._rest))
        counts = (near.max(axis=1) > self._least) & (near.max(axis=1) > other.max(axis=1) + self._margin)
        for (begin, end), counted in zip(spans, counts.tolist(), strict=True):
            if counted:
                for place, stop in enumerate(ends):
                    start = ends[place - 1] if place else 0
                    marks[place] |= int(start < end and stop > begin)
        return marks


def unit_rows(embed: Embed, texts: list[str]) -> NDArray[np.float64]:
    """Vectors of length 1, one row per text; a vector of length 0 stays.

    Raises:
        ValueError: The function gave another number of rows, or values that are not finite.
    """
    rows = np.asarray(embed(texts), dtype=np.float64)
    if rows.ndim != 2 or len(rows) != len(texts) or not np.isfinite(rows).all():
        raise ValueError(
            f"planning: the embedding of {len(texts)} texts has shape {rows.shape}, or values that are none"
        )
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths == 0, 1.0, lengths))


def _joined(tokens: Sequence[str]) -> tuple[str, list[int]]:
    """The text of tokens, and where each ends in it; a space between them where none brings one along."""
    texts = [token.translate(_MARKERS) for token in tokens]
    apart = " " if len(texts) > 1 and not any(text != text.strip() for text in texts) else ""
    text, ends = "", []
    for one in texts:
        text += one + apart
        ends.append(len(text))
    return text, ends


# -- Mining: which phrases many replies share -------------------------------------------------------------------------

_LETTERS = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


@dataclass(frozen=True, slots=True)
class Gram:
    """Phrases that mean alike.

    Attributes:
        phrase: The one that most texts have; `others` the rest.
        texts: That hold at least one of them.
    """

    phrase: str
    others: tuple[str, ...]
    texts: int


def mine(
    texts: Iterable[str],
    *,
    embed: Embed | None = None,
    sizes: Sequence[int] = (3, 4, 5),
    alike: float = 0.8,
    share: float = 0.2,
    least: int = 3,
    most: int = 2000,
) -> list[Gram]:
    """Phrases that recur over texts, those that most texts have first.

    Runs of `sizes` words are counted by the texts that hold them and gathered where they mean alike; of these groups
    the `share` that most texts have is kept. What recurs need not be planning: read the list before it is used.

    Args:
        texts: Replies, one each. Code in fences is left out, and so are digits and punctuation.
        embed: Its cosines say what means alike. Default: phrases are as alike as the words that they share.
        sizes: Words of a phrase.
        alike: Least cosine of a phrase with the most frequent one of its group.
        share: Of the groups, above 0 and at most 1.
        least: Texts that a phrase must be in.
        most: Phrases that are looked at, the most frequent ones.

    Raises:
        ValueError: A number makes no sense, or the embedding is none.
    """
    if not 0.0 < share <= 1.0 or not 0.0 < alike <= 1.0 or least < 1 or not sizes or min(sizes) < 1:
        raise ValueError("mine: share and alike above 0 and at most 1; least and sizes of at least 1")
    holds: dict[str, set[int]] = defaultdict(set)
    for number, text in enumerate(texts):
        for gram in _grams(text, sizes):
            holds[gram].add(number)
    counts = Counter({gram: len(found) for gram, found in holds.items() if len(found) >= least})
    known = [gram for gram, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]]
    found = []
    for first, *rest in _gathered(known, embed or _bags(known), alike):
        together = set().union(*(holds[gram] for gram in (first, *rest)))
        found.append(Gram(first, tuple(rest), len(together)))
    found.sort(key=lambda gram: (-gram.texts, gram.phrase))
    return found[: max(1, int(len(found) * share))]


def _grams(text: str, sizes: Sequence[int]) -> set[str]:
    """Runs of words within a sentence or a line."""
    out: set[str] = set()
    for part in re.split(r"[.!?;:\n]+", re.sub(r"```.*?(?:```|\Z)", "\n", text.lower(), flags=re.DOTALL)):
        words = _LETTERS.findall(part)
        out |= {" ".join(words[at : at + n]) for n in sizes for at in range(len(words) - n + 1)}
    return out


def _bags(grams: Sequence[str]) -> Embed:
    """Embeds phrases by the words that they hold."""
    places = {word: at for at, word in enumerate(sorted({word for gram in grams for word in gram.split()}))}

    def embed(texts: list[str]) -> NDArray[np.float64]:
        rows = np.zeros((len(texts), len(places)))
        for row, text in zip(rows, texts, strict=True):
            row[[places[word] for word in text.split()]] = 1.0
        return rows

    return embed


def _gathered(grams: Sequence[str], embed: Embed, alike: float) -> list[list[str]]:
    """Each phrase with the one before it that it is most like, or first in a group of its own."""
    groups: list[list[str]] = []
    firsts: list[int] = []
    rows = unit_rows(embed, list(grams)) if grams else np.zeros((0, 0))
    for number, gram in enumerate(grams):
        cosines = rows[firsts] @ rows[number] if firsts else np.zeros(0)
        if cosines.size and cosines.max() >= alike:
            groups[int(cosines.argmax())].append(gram)
        else:
            firsts.append(number)
            groups.append([gram])
    return groups
