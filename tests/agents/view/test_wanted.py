from __future__ import annotations

from pathlib import Path

import pytest

from agents.__main__ import main
from agents.view.wanted import NONE, SHOWN_BYTES, Wanted, wanted
from tasks.sources import load_tasks
from tasks.task import Task
from tests.agents.view.made import check, episode, write
from tests.agents.view.test_page import islands

TASK = """\
id: merge
intent: Merge a and b.
workspace:
  files:
    a.txt: "one\\n"
    big.txt: {size: 70000}
    raw: {base64: "/w=="}
    here: {symlink: a.txt}
assertions:
- {kind: file_matches, path: out.txt, pattern: "\\\\Aone\\\\n"}
- {kind: file_exists, path: out.txt, weight: 2, name: it is there}
oracle:
  commands: ["cp a.txt out.txt"]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "merge.yaml").write_text(TASK)
    return tmp_path / "tasks" / "merge.yaml"


@pytest.fixture
def task(file: Path) -> Task:
    return load_tasks(str(file))[0]


def test_what_a_task_wanted(task: Task) -> None:
    assert wanted(task) == {
        "intent": "Merge a and b.",
        "files": {
            "a.txt": "one\n",
            "big.txt": "(70,000 zero bytes)",
            "raw": "(1 bytes that are no text)",
            "here": "(a link to a.txt)",
        },
        "checks": {"file_matches:out.txt": [["pattern", "\\Aone\\n"]], "it is there": []},
    }


def test_a_large_file_is_named_with_its_size(task: Task) -> None:
    large = Task.model_validate(
        {**task.model_dump(), "workspace": {"files": {"l": "x" * (SHOWN_BYTES + 1)}}}  # the rest is as it was
    )
    assert wanted(large)["files"] == {"l": f"({SHOWN_BYTES + 1:,} bytes)"}


def test_only_the_very_task_that_was_played(task: Task, file: Path, tmp_path: Path) -> None:
    path = tmp_path / "e.jsonl"
    found = dict(Wanted(str(file)).of(tmp_path, path, [("merge", task.content_hash), ("merge", "0" * 64), ("x", "1")]))
    assert found == {task.content_hash: wanted(task)}
    assert dict(Wanted(NONE).of(tmp_path, path, [("merge", task.content_hash)])) == {}


def test_tasks_that_are_gone_are_said_once_and_the_page_is_written(
    tmp_path: Path, task: Task, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "e.jsonl", [episode(task_hash=task.content_hash), episode(task_hash="2" * 64)])
    assert main(["view", str(path), "--out", str(tmp_path / "p.html"), "--tasks", str(tmp_path / "gone")]) == 0
    assert capsys.readouterr().err.count("what its tasks wanted is left out") == 1
    assert islands(tmp_path / "p.html")["wanted"] == {}


def test_the_page_has_what_the_tasks_wanted(tmp_path: Path, file: Path, task: Task) -> None:
    checks = [check("file_matches:out.txt", "fail", "out.txt: nothing there", "file_matches")]
    path = write(tmp_path / "e.jsonl", [episode(task_hash=task.content_hash, assertions=checks)])
    assert main(["view", str(path), "--out", str(tmp_path / "p.html"), "--tasks", str(file)]) == 0
    assert islands(tmp_path / "p.html")["wanted"] == {task.content_hash: wanted(task)}
