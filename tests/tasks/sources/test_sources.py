from __future__ import annotations

from pathlib import Path

import pytest

from tasks.model import TaskError
from tasks.sources import load_tasks, task_files

TASK = "id: {id}\nintent: make b\nassertions:\n  - {{kind: file_exists, path: {path}}}\n"


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_and_a_folder(tmp_path: Path) -> None:
    one = write(tmp_path, "b.yaml", TASK.format(id="one", path="b"))
    write(tmp_path, "sub/a.YML", TASK.format(id="two", path="c"))
    write(tmp_path, "notes.txt", "no task")
    write(tmp_path, ".hidden/x.yaml", "broken: [")
    assert [task.id for task in load_tasks(one)] == ["one"]
    assert [task.id for task in load_tasks(str(one))] == ["one"]
    assert [task.id for task in load_tasks(tmp_path)] == ["one", "two"]
    assert [file.name for file in task_files(tmp_path)] == ["b.yaml", "a.YML"]


def test_several_sources_in_one(tmp_path: Path) -> None:
    one = write(tmp_path, "one.yaml", TASK.format(id="one", path="b"))
    tasks = load_tasks([one, "generated:copy?n=2", one])
    assert [task.id for task in tasks][0] == "one"
    assert len(tasks) == 3


def test_every_broken_file_is_listed(tmp_path: Path) -> None:
    write(tmp_path, "a.yaml", "id: [")
    write(tmp_path, "b.yaml", TASK.format(id="fine", path="b"))
    write(tmp_path, "c.yaml", TASK.format(id="c", path="/b"))
    write(tmp_path, "d.yaml", TASK.format(id="fine", path="d"))
    with pytest.raises(TaskError) as caught:
        load_tasks([tmp_path, "libary"])
    found = [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]
    assert len(found) == 4
    assert found[0].startswith("a.yaml:")
    assert found[1].startswith("c.yaml:4: assertions[0].path:")
    assert found[2] == "d.yaml: id: the id 'fine' is taken by b.yaml: ids must be unique, rename one"
    assert "did you mean 'library'?" in found[3]


def test_one_id_for_two_tasks_is_refused(tmp_path: Path) -> None:
    one = write(tmp_path, "one.yaml", TASK.format(id="one", path="b"))
    two = write(tmp_path, "two.yaml", TASK.format(id="one", path="c"))
    with pytest.raises(TaskError, match="the id 'one' names two different tasks"):
        load_tasks([one, two])


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="holds no task files"):
        load_tasks(tmp_path)
    with pytest.raises(TaskError, match="no tasks at 'my_taskz'"):
        load_tasks("my_taskz")
    with pytest.raises(TaskError, match="no tasks named"):
        load_tasks([])
    with pytest.raises(TaskError, match="must end in .yaml"):
        load_tasks(write(tmp_path, "a.txt", "x"))
