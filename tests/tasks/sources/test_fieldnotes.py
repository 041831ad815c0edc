from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.model import TaskError
from tasks.sources import load_tasks
from tasks.sources.fieldnotes import from_record, to_record, write
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox


def record(**changes: Any) -> dict[str, Any]:
    return {
        "task_id": "synth-keeper-00",
        "persona": {"role": "keeper", "context": "Looks after a shed."},
        "intent": "Move a.txt to b.txt.",
        "workspace_seed": {
            "files": [
                {"path": "a.txt", "kind": "text", "content": "hello\n"},
                {"path": "keep.bin", "kind": "binary-stub", "content": "64"},
            ]
        },
        "skills_required": ["file.move"],
        "verifiable_assertions": [
            {"kind": "file_exists", "path": "b.txt"},
            {"kind": "file_not_exists", "path": "a.txt"},
            {"kind": "file_contents_contain", "path": "b.txt", "must_contain": ["hel", "lo"]},
            {"kind": "file_contents_match_regex", "path": "b.txt", "regex": "^hello"},
            {"kind": "file_unchanged", "path": "keep.bin"},
        ],
        "difficulty": "easy",
        "estimated_steps": 2,
        **changes,
    }


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in records), encoding="utf-8")
    return path


def test_a_record_becomes_a_task_that_grades(tmp_path: Path) -> None:
    file = lines(tmp_path / "tasks.jsonl", record(), record(task_id="synth-keeper-01"))
    tasks = load_tasks(f"fieldnotes:{file}")
    assert [task.id for task in tasks] == ["synth-keeper-00", "synth-keeper-01"]
    assert [task.id for task in load_tasks(file)] == [task.id for task in tasks]
    task = tasks[0]
    assert task.persona is not None and task.persona.role == "keeper"
    assert task.tags == ("skill:file.move", "steps:2")
    assert task.files()["keep.bin"].content == bytes(64)
    sandbox = FakeSandbox()
    sandbox.open(task.files())
    initial = sandbox.snapshot()
    assert grade(task, Outcome(initial, initial)).rate == pytest.approx(1 / 5)
    sandbox.run("mv a.txt b.txt")
    assert grade(task, Outcome(sandbox.snapshot(), initial)).passed


def test_a_task_of_version_2_comes_back_as_it_was() -> None:
    steps = [{"run": "cat a.txt", "reads": {"word": "(h.*)"}}, "echo {{word}} > b.txt"]
    plain = from_record(record())
    newer = {"schema_version": 2, "turns": 2, "metadata": {"author": "Ann"}, "oracle": {"commands": steps}}
    task = Task.model_validate({**plain.model_dump(), **newer})
    again = from_record(to_record(task))
    assert (again.content_hash, again.oracle, again.metadata) == (task.content_hash, task.oracle, task.metadata)


def test_records_come_back_as_they_went_out() -> None:
    given = record()
    written = to_record(from_record(given))
    given["workspace_seed"]["files"][1]["content"] = 64
    assert {key: written[key] for key in given} == given
    assert to_record(from_record(written)) == written


def test_shipped_tasks_survive_the_format(tmp_path: Path) -> None:
    tasks = [
        task for task in load_tasks(["library", "generated:quickstart?n=40&seed=5"]) if not isinstance(_try(task), str)
    ]
    assert len(tasks) > 40
    path = tmp_path / "out.jsonl"
    assert write(tasks, path) == len(tasks)
    back = load_tasks(path)
    assert [task.model_dump() | {"workspace": 0} for task in back] == [
        task.model_dump() | {"workspace": 0} for task in tasks
    ]
    assert [task.content_hash for task in back] == [task.content_hash for task in tasks]
    with pytest.raises(FileExistsError):
        write(tasks, path)


def _try(task: Task) -> dict[str, Any] | str:
    try:
        return to_record(task)
    except TaskError as error:
        return str(error)


def test_what_the_format_cannot_hold_is_named(tmp_path: Path) -> None:
    task = Task.model_validate(
        {
            "id": "odd",
            "intent": "Odd.",
            "workspace": {"files": {"x.bin": {"base64": "/w=="}, "l": {"symlink": "x.bin"}}, "dirs": ["empty"]},
            "assertions": [{"kind": "file_exists", "path": "y", "weight": 2.0, "name": "made"}],
        }
    )
    with pytest.raises(TaskError) as caught:
        write([task], tmp_path / "out.jsonl")
    assert [str(problem) for problem in caught.value.problems] == [
        "odd: workspace.files.l: the format has no links",
        "odd: workspace.files.x.bin: the format has no bytes that are neither UTF-8 text nor zeros",
    ]
    assert not (tmp_path / "out.jsonl").exists()
    plain = task.model_copy(update={"workspace": type(task.workspace).model_validate({"dirs": ["empty"]})})
    assert from_record(to_record(plain)).content_hash == plain.content_hash


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"verifiable_assertions": []}, "assertions: "),
        ({"verifiable_assertions": [{"kind": "file_exist", "path": "x"}]}, "did you mean 'file_exists'?"),
        ({"verifiable_assertions": [{"kind": "file_unchanged", "path": "no.bin"}]}, "needs a path of the workspace"),
        ({"verifiable_assertions": [{"kind": "file_contents_match_regex", "path": "x", "regex": "("}]}, "pattern"),
        ({"verifiable_assertions": ["file_exists"]}, "verifiable_assertions[0]: must be a JSON object"),
        ({"workspace_seed": []}, "workspace_seed: must be a JSON object, not []"),
        ({"workspace_seed": {"files": [{"path": "../x", "content": ""}]}}, "leaves the workspace"),
        ({"workspace_seed": {"files": [{"path": "x", "kind": "binary-stub", "content": "2k"}]}}, "no number of bytes"),
        ({"workspace_seed": {"files": [{"path": "x", "kind": "txt"}]}}, "unknown kind 'txt': did you mean 'text'?"),
        ({"workspace_seed": {"files": [{"path": "x"}, {"path": "x"}]}}, "'x' stands twice"),
        ({"task_id": "Synth 1"}, "id: "),
        ({"intent": 3}, "intent: "),
        ({"difficulty": "trivial"}, "difficulty: "),
        ({"persona": "keeper"}, "persona: must be a JSON object"),
    ],
)
def test_bad_records_are_refused_with_their_line(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    file = lines(tmp_path / "tasks.jsonl", record(), record(task_id="synth-keeper-01") | changes)
    with pytest.raises(TaskError) as caught:
        load_tasks(file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert message in str(caught.value)


def test_one_bad_line_does_not_hide_the_others(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"task_id": \n\n[]\n{"task_id": "x"}\n' + f"{json.dumps(record())}\n" * 2, encoding="utf-8")
    with pytest.raises(TaskError) as caught:
        load_tasks(file)
    found = [str(problem).removeprefix(str(file)) for problem in caught.value.problems]
    assert [line.split(":")[1] for line in found] == ["1", "3", "4", "4", "4", "6"]
    assert found[-1] == ":6: task_id: the id 'synth-keeper-00' stands twice: ids must be unique"
    (tmp_path / "none.jsonl").write_text("\n", encoding="utf-8")
    with pytest.raises(TaskError, match="holds no records"):
        load_tasks(tmp_path / "none.jsonl")


def test_keys_that_nobody_knows_are_said(caplog: pytest.LogCaptureFixture) -> None:
    from_record(record(model="some-model"))
    assert "passed over what the format does not know: model" in caplog.text
