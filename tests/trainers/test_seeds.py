"""The manual's page of seeds names every part of them once, and what it names is there."""

from __future__ import annotations

import json
import re

import pytest

from tests.shared_data import REPOSITORY, shared

PAGE = (REPOSITORY / "docs/seeds.md").read_text(encoding="utf-8")
LEFT_OUT = "**no**: "
REASON = 40
"""Characters of a reason, at least."""


def rows(text: str) -> list[list[str]]:
    """Cells of all tables, without their heads."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for number, row in enumerate(cells) if set(row[0]) != {"-"} and not _is_head(lines, number)]


def _is_head(lines: list[str], number: int) -> bool:
    return number + 1 < len(lines) and set(lines[number + 1]) <= set("|-: ")


def options() -> set[str]:
    flags = json.loads((REPOSITORY / "tests/trainers/goldens/flags.json").read_text(encoding="utf-8"))
    return {_plain(name.split()[-1]) for command in flags.values() for name in command}


def _plain(option: str) -> str:
    """Some have two spellings."""
    return option.removeprefix("--").replace("-", "_")


def test_every_part_of_the_seeds_has_one_row() -> None:
    inventory = shared("reference/seeds.md").read_text(encoding="utf-8")
    part = inventory[inventory.index("\n## 1. ") : inventory.index("\n## 2. ")]
    wanted, here = [row[0] for row in rows(part)], [row[0] for row in rows(PAGE)]
    assert len(wanted) > 150, "the list is not where it was"
    assert sorted(here) == sorted(wanted)


@pytest.mark.parametrize("row", rows(PAGE), ids=lambda row: row[0])
def test_a_row_names_what_is_there(row: list[str]) -> None:
    name, here, shown = row
    for path in re.findall(r"`(tests/[^`]+)`", shown):
        assert (REPOSITORY / path).is_file(), f"{name}: there is no {path}"
    named = {_plain(o) for code in re.findall(r"`([^`]+)`", here) for o in re.findall(r"(?<!\w)--[\w-]+", code)}
    assert named <= options(), f"{name}: {named - options()}"
    if here.startswith(LEFT_OUT):
        assert len(here) > len(LEFT_OUT) + REASON, f"{name}: why is it left out?"
        assert "](" in shown, f"{name}: no page says what to do instead"
    else:
        assert "`tests/" in shown and "](" in shown, f"{name}: no page shows it, or no test holds it"
