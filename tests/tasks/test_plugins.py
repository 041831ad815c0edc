from __future__ import annotations

import importlib.metadata
import re
import sys
import types
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

import pytest

from tasks import plugins
from tasks.assertions.base import BaseAssertion
from tasks.model import TaskError
from tasks.plugins import PluginError, Registry
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


def number(name: str, thing: Any) -> int:
    if not isinstance(thing, int):
        raise ValueError(f"is a {type(thing).__name__}")
    return thing


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch, offered: list[EntryPoint]) -> tuple[Registry[int], list[EntryPoint]]:
    """A registry of numbers, and entry points for it."""
    module = sys.modules["foreign_tasks"]
    module.two, module.word = 2, "two"  # type: ignore[attr-defined]
    return Registry("number", "turngym.numbers", {"one": 1}, take=number, reserved=["zero"]), offered


def offer(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, f"foreign_tasks:{value}", "turngym.numbers")


def test_a_registry_has_what_ships_what_is_registered_and_what_is_installed(
    numbers: tuple[Registry[int], list[EntryPoint]],
) -> None:
    registry, offered = numbers
    offered.append(offer("two", "two"))
    registry.register("three", 3)
    assert registry.names() == ["one", "three", "two"]
    assert [registry.find(name) for name in registry.names()] == [1, 3, 2]
    assert [registry.ships(name) for name in registry.names()] == [True, False, False]
    assert registry.known("two") and not registry.known("four")


def test_an_unknown_name_lists_what_there_is(numbers: tuple[Registry[int], list[EntryPoint]]) -> None:
    registry, offered = numbers
    offered.append(offer("two", "two"))
    with pytest.raises(PluginError, match=re.escape("unknown number 'tow': did you mean 'two'? (valid: one, two)")):
        registry.find("tow")


@pytest.mark.parametrize(
    ("entries", "name", "message"),
    [
        (
            [("x", "two"), ("x", "word")],
            "x",
            "two packages offer 'x' .*: foreign_tasks:two of .* and foreign_tasks:word",
        ),
        ([("one", "two")], "one", "the number 'one' of foreign_tasks:two .* has the name of one of ours"),
        ([("zero", "two")], "zero", "the number 'zero' of foreign_tasks:two .* has the name of one of ours"),
        ([("x", "gone")], "x", "'x' of the entry-point group turngym.numbers .* cannot be imported: AttributeError"),
        ([("x", "word")], "x", "the number 'x' .foreign_tasks:word of .* is a str"),
        ([("three", "two")], "three", "two things are the number 'three': builtins:int, .* and foreign_tasks:two"),
    ],
)
def test_what_cannot_be_used_is_named(
    numbers: tuple[Registry[int], list[EntryPoint]], entries: list[tuple[str, str]], name: str, message: str
) -> None:
    registry, offered = numbers
    registry.register("three", 3)
    offered.extend(offer(*entry) for entry in entries)
    with pytest.raises(PluginError, match=message):
        registry.find(name)
    if name != "one":
        assert registry.find("one") == 1  # others that clash do no harm


def test_what_cannot_be_registered_is_refused(numbers: tuple[Registry[int], list[EntryPoint]]) -> None:
    registry, _ = numbers
    for name, thing, message in [
        ("a:b", 2, "'a:b' is no name of a number"),
        ("one", 2, "the number 'one' .* has the name of one of ours"),
        ("zero", 2, "the number 'zero' .* has the name of one of ours"),
        ("two", "2", "the number 'two' .* is a str"),
    ]:
        with pytest.raises(PluginError, match=message):
            registry.register(name, thing)
    assert dict(registry) == {"one": 1}


def test_two_of_one_name_are_refused_and_one_that_is_defined_again_replaces(offered: list[EntryPoint]) -> None:
    registry: Registry[Any] = Registry("rule", "turngym.rules", {})

    def make() -> type:
        class Rule:
            pass

        return Rule

    again = make()
    registry.register("mine", make())
    registry.register("mine", again)
    assert registry.find("mine") is again
    with pytest.raises(
        PluginError, match="two things are registered as the rule 'mine': .*Rule and .*make; rename one"
    ):
        registry.register("mine", make)


def test_a_kind_of_another_package_lists_its_own_keys(offered: list[EntryPoint], tmp_path: Path) -> None:
    class Spoken(BaseAssertion):
        kind: Literal["spoken"] = "spoken"
        loudness: int = 1
        voice: str = ""

    sys.modules["foreign_tasks"].Spoken = Spoken  # type: ignore[attr-defined]
    offered.append(EntryPoint("spoken", "foreign_tasks:Spoken", plugins.ASSERTIONS))
    file = tmp_path / "one.yaml"
    head = "id: one\nintent: Say it.\nassertions:\n"
    file.write_text(head + "  - {kind: spoken, voise: low}\n  - {kind: not, of: {kind: spoken, loudnes: 2}}\n")
    with pytest.raises(TaskError) as caught:
        load_tasks(str(file))
    first, second = (problem.message for problem in caught.value.problems)
    assert first.startswith("unknown key 'voise': did you mean 'voice'? (valid: ") and "path" not in first
    assert second.startswith("unknown key 'loudnes': did you mean 'loudness'? (valid: ")
    file.write_text(head + "  - {kind: spokn}\n")
    with pytest.raises(TaskError, match="unknown kind 'spokn': did you mean 'spoken'"):
        load_tasks(str(file))
