from __future__ import annotations

from pathlib import Path

import pytest

from tasks.__main__ import run
from tasks.proof import Status, prove
from tasks.yaml import load_task, parse_task
from tests.tasks.fake_sandbox import FakeSandbox


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["id", "kind", "assertions", "turns", "hash"]
    assert any(line.startswith("merge-contacts") and "hand-written/hard" in line for line in lines)
    assert lines[-1] == f"{len(lines) - 2} tasks"


def test_show_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "merge-contacts"]) == 0
    text = capsys.readouterr().out
    wanted = """Merge the contact lists|office assistant|contacts/lyon.csv|Zoé Martin,Lyon\\r|no newline at the end
        |header once|(weight 2)|1$ head -n 1|12 turns, 10 s a command, 512 tokens a turn"""
    for part in wanted.split("|"):
        assert part.strip() in text, part


def test_show_as_yaml_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "generated:copy?n=3", "--yaml"]) == 0
    captured = capsys.readouterr()
    assert parse_task(captured.out).family == "copy"
    assert "the first of 3 tasks" in captured.err


def test_show_one_of_many(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "library", "--id", "bump-version"]) == 0
    assert "quillpad" in capsys.readouterr().out
    assert run(["show", "library", "--id", "bump-versio"]) == 2
    assert "did you mean 'bump-version'?" in capsys.readouterr().err


def test_show_binary_and_links(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "rename-photos"]) == 0
    assert "(no text: ff d8 ff e0" in capsys.readouterr().out
    assert run(["show", "release-links"]) == 0
    assert "current -> releases/1.9.0" in capsys.readouterr().out


def test_an_unknown_name_offers_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "merge-contact"]) == 2
    assert "did you mean 'merge-contacts'?" in capsys.readouterr().err


def test_broken_files_are_all_listed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("id: a\n")
    (tmp_path / "b.yaml").write_text("id: [")
    assert run(["list", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "a.yaml:1: assertions: is missing" in error
    assert "a.yaml:1: intent: is missing" in error
    assert "b.yaml" in error
    assert error.splitlines()[-1] == "3 problems, nothing was done"


def test_new_writes_a_task_that_proves(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["new", "my-task", "--dir", str(tmp_path / "mine")]) == 0
    path = tmp_path / "mine" / "my-task.yaml"
    assert f"python -m tasks check {path}" in capsys.readouterr().out
    task = load_task(path)
    assert task.id == "my-task"
    with FakeSandbox() as sandbox:
        assert prove(task, sandbox).status is Status.PROVEN


def test_new_never_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("mine")
    assert run(["new", "t", "--dir", str(tmp_path)]) == 2
    assert path.read_text() == "mine"
    assert "left as it is" in capsys.readouterr().err
    assert run(["new", "Bad Name", "--dir", str(tmp_path)]) == 2
    assert "is no id" in capsys.readouterr().err


def test_the_comments_of_the_template_are_true(tmp_path: Path) -> None:
    """Uncommenting every example line gives a valid task, and the budget shown is the default."""
    run(["new", "t", "--dir", str(tmp_path)])
    text = (tmp_path / "t.yaml").read_text()
    plain = parse_task(text)
    assert "budget" not in plain.model_dump(exclude_defaults=True)
    for example in ("run.sh:", "logo.bin:", "big.log:", "latest:", "- {kind: file_not_exists"):
        assert f"# {example}" in text
        text = text.replace(f"# {example}", example)
    assert set(parse_task(text).files()) == {"archive", "big.log", "latest", "logo.bin", "orders.csv", "run.sh"}
