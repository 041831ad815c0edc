"""How the text of a spec is parted, and that question sets are known by name."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tasks.model import TaskError
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


def test_two_tasks_of_one_id_in_two_sources_name_both_files(tmp_path: Path) -> None:
    for folder, path in (("one", "a"), ("two", "b")):
        file = tmp_path / folder / "deep" / f"{folder}.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(f"id: same\nintent: make {path}\nassertions: [{{kind: file_exists, path: {path}}}]\n")
    with pytest.raises(TaskError) as caught:
        load_tasks([tmp_path / "one", tmp_path / "two"])
    (problem,) = caught.value.problems
    assert problem.file == str(tmp_path / "two/deep/two.yaml") and problem.key == "id"
    assert problem.message.endswith(f"rename it, or the one in {tmp_path / 'one/deep/one.yaml'}")


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also below a folder that may: its tasks would be missing without a word."""
    file = tmp_path / "a.yaml"
    file.write_text("id: a\nintent: make a\nassertions: [{kind: file_exists, path: a}]\n")
    closed = tmp_path / "closed"
    closed.mkdir()
    real, real_stat = os.scandir, os.stat

    def scandir(path: str = ".") -> Any:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path)

    def stat(path: Any, **kwargs: Any) -> Any:
        if isinstance(path, (str, Path)) and closed in Path(path).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real_stat(path, **kwargs)

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(os, "stat", stat)
    for spec, named in ((tmp_path, closed), (closed, closed), (closed / "mine", closed / "mine")):
        with pytest.raises(TaskError) as caught:
            load_tasks(str(spec))
        assert str(caught.value) == f"{named}: cannot be read (Permission denied): check its permissions"
