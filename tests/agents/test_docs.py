"""The examples of docs/agents.md run."""

from __future__ import annotations

import re

import pytest

from sandboxes import probe
from tests.shared_data import REPOSITORY

PAGE = (REPOSITORY / "docs" / "agents.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_first_example_passes_every_task(capsys: pytest.CaptureFixture[str]) -> None:
    if not (probe("bubblewrap").ok or probe("landlock").ok):
        pytest.skip("no safe sandbox works here")
    exec(compile(EXAMPLES[0], "docs/agents.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 8 and all(line.endswith("submitted True") for line in lines)


def test_the_second_example_makes_a_policy() -> None:
    names: dict[str, object] = {}
    exec(compile(EXAMPLES[1], "docs/agents.md", "exec"), names)
    assert "policy" in names
