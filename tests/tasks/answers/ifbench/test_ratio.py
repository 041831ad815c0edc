from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.ifbench.base import STOP_WORDS
from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("ratio:sentence_type", {}, "Tea is hot. Milk is cold. Is rye dark?", BOTH),
        ("ratio:sentence_type", {}, "Tea is hot. Is rye dark?", NEITHER),
        ("ratio:sentence_type", {}, "Stop! Now! Go!", ONLY_PUBLISHED),
        ("ratio:sentence_type", {}, 'He said "tea." Milk is cold. Is rye dark?', ONLY_FIXED),
        ("ratio:sentence_balance", {}, "Tea is hot. Is rye dark? Yes!", BOTH),
        ("ratio:sentence_balance", {}, "no marks", ONLY_PUBLISHED),
        ("ratio:sentence_balance", {}, "Tea is hot. Is rye dark?", NEITHER),
        ("ratio:sentence_balance", {}, 'Tea is hot. "Is rye dark?" Yes!', ONLY_FIXED),
        ("ratio:sentence_words", {}, "Cats run. Dogs sit. Bees fly.", BOTH),
        ("ratio:sentence_words", {}, "Cats run. Dogs sit. Bees run.", ONLY_PUBLISHED),
        ("ratio:sentence_words", {}, "Cat. Cat. Cat.", ONLY_PUBLISHED),
        ("ratio:sentence_words", {}, "Cats run. Dogs sit.", NEITHER),
        ("ratio:sentence_words", {}, "Cats run. Dogs sit. Some bees fly.", NEITHER),
        ("ratio:overlap", {"reference_text": "abcdef", "percentage": 100}, "abcdef", BOTH),
        ("ratio:overlap", {"reference_text": "abcdef", "percentage": 50}, "abcdxy", BOTH),
        ("ratio:overlap", {"reference_text": "abcdef", "percentage": 52}, "abcdxy", BOTH),
        ("ratio:overlap", {"reference_text": "abcdef", "percentage": 53}, "abcdxy", NEITHER),
        ("ratio:overlap", {"reference_text": "abcdef", "percentage": 0}, "ab", NEITHER),
        ("ratio:stop_words", {"percentage": 50}, "the cat", BOTH),
        ("ratio:stop_words", {"percentage": 49}, "The cat", NEITHER),
        ("ratio:stop_words", {"percentage": 100}, "...", NEITHER),
        ("ratio:stop_words", {"percentage": 99}, "don't", NEITHER),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected


def test_the_list_of_stop_words_is_whole() -> None:
    assert len(STOP_WORDS) == 127 + 26
    assert all(word.isalpha() and word == word.lower() for word in STOP_WORDS)
