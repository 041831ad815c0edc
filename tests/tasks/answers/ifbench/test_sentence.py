from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("sentence:increment", {"small_n": 1}, "Tea. Hot tea. Good hot tea.", BOTH),
        ("sentence:increment", {"small_n": 2}, "Tea. Hot tea. Good hot tea.", NEITHER),
        ("sentence:increment", {"small_n": 1}, "Tea.", ONLY_PUBLISHED),
        ("sentence:increment", {"small_n": 1}, "Hot tea. Tea and\u2014milk.", ONLY_FIXED),
        ("sentence:keyword", {"word": "milk", "N": 2}, "Tea is hot. Milk is not.", BOTH),
        ("sentence:keyword", {"word": "milk", "N": 1}, "Tea is hot. Milk is not.", NEITHER),
        ("sentence:keyword", {"word": "milk", "N": 3}, "Tea is hot. Milk is not.", NEITHER),
        ("sentence:keyword", {"word": "milk", "N": 1}, "Buttermilk is hot.", NEITHER),
        ("sentence:keyword", {"word": "c++", "N": 1}, "I like C++ a lot.", ONLY_FIXED),
        ("sentence:alliteration_increment", {}, "Tea is hot. Two teas. Ten tall trees.", BOTH),
        ("sentence:alliteration_increment", {}, "Ten tall trees. Two teas.", NEITHER),
        ("sentence:alliteration_increment", {}, "Ten tall trees.", ONLY_PUBLISHED),
        ("sentence:alliteration_increment", {}, "Ten tall trees. Big bears and fat foxes.", ONLY_PUBLISHED),
        ("sentence:alliteration_increment", {}, "Big bears and fat foxes. Ten tall trees.", ONLY_FIXED),
        ("sentence:alliteration_increment", {}, "Tea is hot. \u201cTwo\u201d teas.", ONLY_FIXED),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected
