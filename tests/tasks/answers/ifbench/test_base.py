from __future__ import annotations

import pytest

from tasks.answers.ifbench.base import occurrences, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Well-known, don't \u201cstop\u201d!", ["Well-known", "don't", "stop"]),
        ("day\u2014night and/or 3.5%", ["day", "night", "and", "or", "3.5"]),
        ("one--two...three\u2026four 5\u20136", ["one", "two", "three", "four", "5", "6"]),
        ("- * \U0001f600 ... ()", []),
        ("**bold** _it_ #tag", ["bold", "it", "tag"]),
        ("\u00dcber caf\u00e9 \u6771\u4eac", ["\u00dcber", "caf\u00e9", "\u6771\u4eac"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_occurrences_are_whole_words() -> None:
    assert occurrences("art", "Art, start; ART arts") == 2
    assert occurrences("c++", "c++, c+ C++.") == 2
    assert occurrences("cat", "A _cat_, __cat__ and _cats_") == 2
