from __future__ import annotations

from typing import Any

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

TWO = "Tea is hot. It is good."


@pytest.mark.parametrize(
    ("id", "kwargs", "text", "expected"),
    [
        ("format:list", {"sep": "!?!?"}, "!?!? bread\n!?!? milk", BOTH),
        ("format:list", {"sep": "!?!?"}, "To buy:\n\n  !?!? bread\n\n  !?!? milk", BOTH),
        ("format:list", {"sep": "!?!?"}, "!?!?\nbread\n!?!?\nmilk", BOTH),
        ("format:list", {"sep": "!?!?"}, "bread !?!? milk !?!?", ONLY_PUBLISHED),
        ("format:list", {"sep": "!?!?"}, "!?!?\n!?!?", ONLY_PUBLISHED),
        ("format:list", {"sep": "!?!?"}, "* !?!? bread\n* !?!? milk", ONLY_PUBLISHED),
        ("format:list", {"sep": "!?!?"}, "!?!? bread", NEITHER),
        ("format:list", {"sep": "-"}, "- bread\n---\n- milk", BOTH),
        ("format:list", {"sep": "-"}, "well-known, so-called", ONLY_PUBLISHED),
        ("format:sub-bullets", {}, "* bread\n  - rye\n* milk\n- goat\n- cow", BOTH),
        ("format:sub-bullets", {}, "*bread\n-rye", BOTH),
        ("format:sub-bullets", {}, "* **bread** for two\n  - rye", ONLY_FIXED),
        ("format:sub-bullets", {}, "no bullets at all", ONLY_PUBLISHED),
        ("format:sub-bullets", {}, "* well-known bread", ONLY_PUBLISHED),
        ("format:sub-bullets", {}, "* bread\n* milk\n  - goat", NEITHER),
        ("format:sub-bullets", {}, "*Bread* is good - very", NEITHER),
        ("format:no_bullets_bullets", {}, f"{TWO}\n* one\n* two", BOTH),
        ("format:no_bullets_bullets", {}, f"{TWO}\n\n* one\n* two", BOTH),
        ("format:no_bullets_bullets", {}, "Tea is hot.\n\nIt is good.\n* one\n* two", ONLY_FIXED),
        ("format:no_bullets_bullets", {}, f"{TWO}\n* one\n\n* two\nThat is all.", ONLY_FIXED),
        ("format:no_bullets_bullets", {}, "Is it hot? It is!\n* one\n* two", ONLY_PUBLISHED),
        ("format:no_bullets_bullets", {}, f"{TWO}\n* one", NEITHER),
        ("format:no_bullets_bullets", {}, f"{TWO}\n**one**\n**two**", ONLY_PUBLISHED),
        ("format:no_bullets_bullets", {}, f"* one\n* two\n{TWO}", NEITHER),
        ("format:no_bullets_bullets", {}, "Tea is hot.\n* one\n* two", NEITHER),
    ],
)
def test_readings(id: str, kwargs: dict[str, Any], text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text, **kwargs) == expected
