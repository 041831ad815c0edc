from __future__ import annotations

import importlib.metadata
import sys
import types
from importlib.metadata import EntryPoint

import pytest

from tasks import plugins
from tasks.problems import TaskError
from tasks.sources import is_spec, load_tasks
from tasks.task import Task

TASK = Task.model_validate({"id": "one", "intent": "Make b.", "assertions": [{"kind": "file_exists", "path": "b"}]})


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points as if packages that offer them were installed; the module behind them is `foreign_tasks`."""
    module = types.ModuleType("foreign_tasks")
    module.load = lambda rest: [TASK.model_copy(update={"id": rest or "none"})]  # type: ignore[attr-defined]
    module.words = lambda rest: ["no task"]  # type: ignore[attr-defined]
    module.nothing = lambda rest: []  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "foreign_tasks", module)
    entries: list[EntryPoint] = []
    real = importlib.metadata.entry_points

    def fake(*, group: str) -> list[EntryPoint]:
        return [*real(group=group), *(entry for entry in entries if entry.group == group)]

    monkeypatch.setattr(plugins, "entry_points", fake)
    return entries


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"foreign_tasks:{value}", plugins.TASKS)


def test_a_source_of_another_package(offered: list[EntryPoint]) -> None:
    offered.append(entry("foreign", "load"))
    assert [task.id for task in load_tasks("foreign:my-task")] == ["my-task"]
    assert is_spec("foreign:x") and is_spec("library") and is_spec("clawgym:/a")
    assert not is_spec("foreign") and not is_spec("some/folder")


def test_a_misspelt_scheme_is_guessed(offered: list[EntryPoint]) -> None:
    offered.append(entry("foreign", "load"))
    with pytest.raises(TaskError, match="did you mean 'foreign'"):
        load_tasks("foriegn:x")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("words", "words", "returned a str among its tasks"),
        ("nothing", "nothing", "returned no tasks"),
        ("gone", "gone", "cannot be imported: AttributeError"),
    ],
)
def test_a_broken_source_is_named(offered: list[EntryPoint], name: str, value: str, message: str) -> None:
    offered.append(entry(name, value))
    with pytest.raises(TaskError, match=message):
        load_tasks(f"{name}:x")


def test_names_that_clash_are_refused(offered: list[EntryPoint]) -> None:
    offered.append(entry("library", "load"))
    with pytest.raises(TaskError, match="has the name of one of ours"):
        load_tasks("clawgym:x")
    offered[:] = [entry("twice", "load"), entry("twice", "words")]
    with pytest.raises(TaskError, match="two packages offer 'twice'"):
        load_tasks("twice:x")
