from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

THIRD = {"keyword": "Milk", "n": 2, "m": 3}


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("words:last_first", {}, "I like tea. Tea is hot.", BOTH),
        ("words:last_first", {}, "I like tea. Milk is cold.", NEITHER),
        ("words:last_first", {}, "I like tea.", ONLY_PUBLISHED),
        ("words:last_first", {}, "I like \u201ctea\u201d. Tea is hot.", ONLY_FIXED),
        ("words:paragraph_last_first", {}, "Tea is tea.\n\nMilk is milk.", BOTH),
        ("words:paragraph_last_first", {}, "Tea is tea.\nMilk is cold.", NEITHER),
        ("words:paragraph_last_first", {}, "Tea", ONLY_PUBLISHED),
        ("words:paragraph_last_first", {}, "\u201cTea\u201d is tea.", ONLY_FIXED),
        ("words:keywords_specific_position", THIRD, "Tea is hot. I like milk.", BOTH),
        ("words:keywords_specific_position", THIRD, "Tea is hot. I like, milk.", BOTH),
        ("words:keywords_specific_position", THIRD, "I like milk.", NEITHER),
        ("words:keywords_specific_position", THIRD, "Tea is hot. I like it.", NEITHER),
        ("words:keywords_specific_position", THIRD, "Tea is hot. I don't milk.", ONLY_FIXED),
        ("words:keywords_specific_position", THIRD, "Tea is hot. Don't milk.", ONLY_PUBLISHED),
        ("words:words_position", {"keyword": "milk"}, "My milk is like milk here.", BOTH),
        ("words:words_position", {"keyword": "milk"}, "My milk here", BOTH),
        ("words:words_position", {"keyword": "milk"}, "My milk is like milk", NEITHER),
        ("words:words_position", {"keyword": "milk"}, "Milk milk", ONLY_PUBLISHED),
        ("words:words_position", {"keyword": "milk"}, '"My milk is like milk here."', ONLY_FIXED),
        ("words:words_position", {"keyword": "milk"}, "Tea", NEITHER),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected
