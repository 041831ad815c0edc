"""Right work passes: solutions by somebody who has not seen how they are judged, and other layouts of the same."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sandboxes import open_sandbox
from sandboxes.sandbox import EntryKind, Sandbox, SandboxUnavailable
from tasks.families import OFFICE, generate
from tasks.proof import grade_end, play
from tasks.sources import load_library
from tasks.task import Task

HONEST = Path(__file__).parent / "honest"
LIBRARY = yaml.safe_load((HONEST / "library.yaml").read_text(encoding="utf-8"))
FAMILIES = yaml.safe_load((HONEST / "office.yaml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox("auto")
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
    with opened:
        yield opened


def test_there_are_two_for_each_task_of_the_library_and_each_office_family() -> None:
    assert set(LIBRARY) == {task.id for task in load_library()}
    assert set(FAMILIES) == set(OFFICE)
    assert all(len({*map(tuple, ways)}) == 2 for ways in LIBRARY.values())
    assert all(set(levels) == {"medium", "hard"} for levels in FAMILIES.values())


@pytest.mark.parametrize("name", LIBRARY)
def test_honest_work_on_a_library_task_passes(name: str, sandbox: Sandbox) -> None:
    (task,) = [task for task in load_library() if task.id == name]
    for commands in LIBRARY[name]:
        _passes(task, commands, sandbox)


@pytest.mark.parametrize("family", FAMILIES)
def test_honest_work_on_an_office_task_passes(family: str, sandbox: Sandbox) -> None:
    tasks = generate(family, 40, seed=2026)
    for level, commands in FAMILIES[family].items():
        first = next(task for task in tasks if task.difficulty == level)
        _passes(first, commands, sandbox)


def _passes(task: Task, commands: list[str], sandbox: Sandbox) -> None:
    done = play(task, sandbox, commands)
    assert done.grade.passed, (task.id, [r for r in done.grade.results if r.score != 1.0], done.complaints)


TEXT_SAYS = {
    ("merge-contacts", "all.csv"): "plain Unix line ends and no blank lines",
    ("broken-csv", "bad.csv"): "lines as they stand in the file, no table",
    ("start-project", "src/__init__.py"): "an empty file",
}
"""Files whose layout the request fixes: how it says so."""


@pytest.mark.parametrize("source", ["library", *OFFICE])
def test_what_a_request_leaves_open_is_accepted(source: str, sandbox: Sandbox) -> None:
    """Another last line end, quotes and CRLF in tables, another JSON layout: of every text file that is made anew."""
    tasks = load_library() if source == "library" else generate(source, 1, seed=3)
    for task in tasks:
        assert task.oracle is not None
        right = play(task, sandbox, task.oracle.commands, task.oracle.answer).outcome
        laid = {entry.content for entry in right.initial.values()}
        for path, entry in right.files.items():
            if entry.kind is not EntryKind.FILE or entry.content in laid or (task.id, path) in TEXT_SAYS:
                continue
            for layout, content in _layouts(path, entry.content or b"").items():
                other = replace(entry, content=content, size=len(content))
                found = grade_end(task, sandbox, replace(right, files={**right.files, path: other}))
                assert found.passed, (task.id, path, layout, [r for r in found.results if r.score != 1.0])


def _layouts(path: str, content: bytes) -> dict[str, bytes]:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {}
    if "\0" in text:
        return {}
    found = {"blank last line": text + "\n", "no last line end": text.rstrip("\n")}
    if path.endswith(".csv"):
        out = io.StringIO()
        csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(csv.reader(io.StringIO(text)))
        found |= {"quotes": out.getvalue(), "CRLF": text.replace("\n", "\r\n")}
    if path.endswith(".json"):
        value = json.loads(text)
        found |= {"one line": json.dumps(value), "indented": json.dumps(value, indent=4, sort_keys=True) + "\n"}
    return {layout: other.encode() for layout, other in found.items() if other != text}
