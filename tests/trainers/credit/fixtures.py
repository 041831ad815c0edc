"""The recorded cases of the reference implementations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.shared_data import shared
from trainers.credit import TokenText
from trainers.credit.token import TokenSettings, make_tokens
from trainers.credit.token.tokens import Tokens


def cases(group: str) -> list[dict[str, Any]]:
    """The cases of one group of credit.json."""
    found = [c for c in json.loads(shared("fixtures/credit.json").read_text())["cases"] if c["group"] == group]
    assert found, f"no fixture in group {group}"
    return found


def block(name: str) -> Any:
    """One block of t2po_gigpo.json."""
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[name]


def padded(rows: list[list[float]], fill: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows side by side in shape (B, T), and where they are."""
    width = max([1, *map(len, rows)])
    values, mask = np.full((len(rows), width), fill), np.zeros((len(rows), width), dtype=bool)
    for i, row in enumerate(rows):
        values[i, : len(row)], mask[i, : len(row)] = row, True
    return values, mask


def one_row(signal: list[float], advantage: float = 1.0, planning: list[int] | None = None, **settings: Any) -> Tokens:
    """What a token operator sees of one episode."""
    values, mask = padded([signal])
    plan = padded([[float(p) for p in planning]])[0] > 0 if planning is not None else None
    return make_tokens(values, mask, np.array([advantage]), settings=TokenSettings(**settings), planning=plan)


def text_of(rows: Sequence[Sequence[str]]) -> TokenText:
    """Equal texts get equal ids; shorter rows are filled with id 0."""
    numbers = {text: i for i, text in enumerate(dict.fromkeys(text for row in rows for text in row))}
    ids = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = [numbers[text] for text in row]
    return TokenText(ids, {number: text for text, number in numbers.items()})
