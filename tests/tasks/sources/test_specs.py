"""How the text of a spec is parted, and that question sets are known by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.problems import TaskError
from tasks.sources import SETS, _several, is_spec, load_tasks, schemes, specs


def ids(spec: str) -> list[str]:
    return [task.id for task in load_tasks(spec)]


def test_commas_part_specs() -> None:
    first, second = "generated:quickstart?n=3&seed=1", "library:start-project"
    assert ids(f"{first},{second}") == ids(f"{first}, {second}") == ids(first) + ids(second)


def test_a_comma_inside_a_spec_or_a_file_name_parts_nothing(tmp_path: Path) -> None:
    assert _several("clawgym:x?ids=a,b,library:c") == ["clawgym:x?ids=a,b", "library:c"]
    file = tmp_path / "one,two.yaml"
    file.write_text("id: one\nintent: x\nassertions: [{kind: file_exists, path: a}]\n")
    assert ids(str(file)) == ["one"]
    assert [task.id for task in load_tasks(["library:start-project", file])] == ["start-project", "one"]


def test_an_unknown_part_is_named() -> None:
    with pytest.raises(TaskError, match="nothing-here"):
        load_tasks("library,nothing-here")


@pytest.mark.parametrize("name", SETS)
def test_question_sets_are_specs(name: str) -> None:
    assert name in schemes() and is_spec(f"{name}:sample") and not is_spec(name)
    with pytest.raises(TaskError) as error:
        load_tasks(f"{name}:/no/such/folder")
    assert "PATH" in str(error.value) and "hub" in str(error.value)


def test_the_parts_of_a_spec(tmp_path: Path) -> None:
    assert specs("generated:copy?n=3,library:merge-contacts") == ["generated:copy?n=3", "library:merge-contacts"]
    assert specs(tmp_path) == [tmp_path] and specs(["library", tmp_path]) == ["library", tmp_path]
