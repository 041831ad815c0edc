"""The text of tokens: ids of shape (B, T) and the text of each distinct one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class TokenText:
    """What planning masks read.

    Attributes:
        ids: Shape (B, T).
        texts: Text of every id that a turn sampled; the same id has the same text in every step.
    """

    ids: NDArray[np.int64]
    texts: Mapping[int, str]

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> TokenText:
        """From texts: equal texts get equal ids; shorter rows are filled with id 0."""
        numbers = {text: i for i, text in enumerate(dict.fromkeys(text for row in rows for text in row))}
        ids = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.int64)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = [numbers[text] for text in row]
        return cls(ids, {number: text for text, number in numbers.items()})
