from __future__ import annotations

import pytest

from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_PUBLISHED, readings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<i>Tea is good.</i> It is hot.", BOTH),
        ("<em>Tea is good.</em> It is hot.", BOTH),
        ("<p><i>Tea is good.</i> It is hot.</p>", BOTH),
        ("# Tea\n<i>Tea is good.</i> It is hot.\n\n## Milk\n\n<i>So is milk.</i>\nIt is white.", BOTH),
        ("**Tea**\n<i>Tea is good.</i> It is hot.\n**Milk**\n<i>So is milk.</i> Yes.", BOTH),
        ("Tea\n\n<i>Tea is good.</i> It is hot.\n\nMilk\n\n<i>So is milk.</i> Yes.", BOTH),
        ("# Tea\n<i>Tea is good.</i> It is hot.\n\n## Milk\nSo is milk.", ONLY_PUBLISHED),
        ("Tea is hot. <i>Tea is good.</i> Yes.", ONLY_PUBLISHED),
        ("<i>Tea is good.</em> It is hot.", ONLY_PUBLISHED),
        ("<em></em>.", ONLY_PUBLISHED),
        ("<i>Tea is good.</i>", NEITHER),
        ("<i> </i> Tea is good.", NEITHER),
        ("*Tea is good.* It is hot.", NEITHER),
        ("<i>Tea is good.", NEITHER),
    ],
)
def test_readings(text: str, expected: tuple[bool, bool]) -> None:
    assert readings("format:thesis", text) == expected
