from __future__ import annotations

import io
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sandboxes.sandbox import SandboxError
from tasks import check as checking
from tasks.__main__ import run
from tasks.show import render
from tasks.sources import load_tasks
from tasks.splits import apply_lock
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox

GOOD = """\
id: good
intent: make b
assertions: [{kind: file_equals, path: b, equals: "b\\n"}]
oracle: {commands: [echo b > b], alternatives: [["printf 'b\\n' > b"]]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task that proves, one without an oracle, one that fails and a broken file."""
    monkeypatch.setattr(checking, "open_sandbox", lambda backend: FakeSandbox())
    (tmp_path / "bad.yaml").write_text("id: bad\n")
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "open.yaml").write_text(GOOD.split("oracle")[0].replace("good", "open"))
    (tmp_path / "wrong.yaml").write_text(GOOD.replace("good", "wrong").replace("> b", "> c"))
    return tmp_path


@pytest.mark.parametrize("command", ["list", "show", "check", "new", "import", "generate", "stats"])
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run([command, "--help"])
    assert caught.value.code == 0
    assert f"example:\n  python -m tasks {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        (["--family", "hand-written", "--grep", "QUILLPAD"], "bump-version"),
        (["--grep", "contact", "--difficulty", "hard"], "merge-contacts"),
        (["--no-oracle"], ""),
        (["--tag", "no such tag"], ""),
        (["--assertion", "no_such_kind"], ""),
    ],
)
def test_list_takes_filters(filters: list[str], wanted: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "library", *filters]) == 0
    lines = capsys.readouterr().out.splitlines()
    shown = [line.split()[0] for line in lines[1:-1]]
    assert (wanted in shown) if wanted else shown == []
    assert f" of {len(load_tasks('library'))}" in lines[-1]


def test_check_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [(task["id"], task["status"]) for task in found["tasks"]] == [
        ("good", "proven"),
        ("open", "unproven"),
        ("wrong", "failed"),
    ]
    assert found["counts"] == {"proven": 1, "unproven": 1, "undecided": 0, "failed": 1}
    assert {problem["key"] for problem in found["problems"]} == {"assertions", "intent"}
    assert found["problems"][0]["line"] == 1


def test_check_as_junit(folder: Path) -> None:
    report = folder / "report.xml"
    assert run(["check", str(folder), "--junit", str(report)]) == 1
    suite = ElementTree.parse(report).getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "1", "2")
    cases = {case.get("name"): case for case in suite}
    assert len(cases["good"]) == 0
    assert cases["open"][0].text == "unproven (no oracle)"
    assert "after the oracle" in (cases["wrong"].find("failure").text or "")  # type: ignore[union-attr]
    assert cases[f"{folder / 'bad.yaml'}:1"].find("error") is not None


def test_a_report_that_cannot_be_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(folder / "good.yaml"), "--junit", str(folder)]) == 2
    assert "is a folder; a file is needed" in capsys.readouterr().err


def test_junit_holds_any_text(folder: Path) -> None:
    text = GOOD.replace("good", "odd").replace("echo b > b", "\"printf '\\\\001' >&2; exit 3\"")
    (folder / "odd.yaml").write_text(text)
    report = folder / "report.xml"
    run(["check", str(folder / "odd.yaml"), "--junit", str(report)])
    assert ElementTree.parse(report).getroot().get("failures") == "1"


def test_import_and_generate_write_what_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = tmp_path / "made"
    assert run(["generate", "copy", "-n", "3", "--seed", "4", "--out", str(made)]) == 0
    assert f"python -m tasks check {made}" in capsys.readouterr().out
    wanted = {task.id: task for task in load_tasks("generated:copy?n=3&seed=4")}
    assert {task.id: task for task in load_tasks(made)} == wanted
    records = tmp_path / "deep" / "records.jsonl"
    assert run(["import", str(made), str(records)]) == 0
    back = tmp_path / "back"
    assert run(["import", f"fieldnotes:{records}", str(back)]) == 0
    assert {task.id: task.content_hash for task in load_tasks(back)} == {
        name: task.content_hash for name, task in wanted.items()
    }


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "library", str(tmp_path)]) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert run(["import", "library", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("is there already and was left as it is") == len(before)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    records = tmp_path / "x.jsonl"
    records.write_text("mine")
    assert run(["import", "generated:copy?n=1", str(records)]) == 2
    assert records.read_text() == "mine"
    assert run(["import", "generated:copy?n=1", str(tmp_path / "bump-version.yaml")]) == 2
    assert "is no folder" in capsys.readouterr().err


def test_generate_without_names_tells_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["generate"]) == 0
    assert {"quickstart", "copy"} <= set(capsys.readouterr().out.split())
    assert run(["generate", "copy", "-n", "2"]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert run(["generate", "coppy"]) == 2
    assert "did you mean 'copy'?" in capsys.readouterr().err


def test_stats(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stats", "generated:copy?n=5"]) == 0
    assert "hand-written" not in (text := capsys.readouterr().out)
    assert "copy 5" in text
    assert run(["stats", "library", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert counts["tasks"] == counts["different_problems"] == len(load_tasks("library"))
    assert sum(counts["difficulty"].values()) == counts["tasks"]


def test_a_task_on_a_terminal_shows_its_texts_as_they_are() -> None:
    task = Task.model_validate(
        {
            "id": "odd",
            "intent": "write [bold]b[/bold] \x1b[2J",
            "persona": {"role": "cook", "context": "in [red]a hurry"},
            "tags": ["[t]"],
            "workspace": {"files": {"a.py": "x = [1]\n", "b.bin": {"base64": "AAE="}, "l": {"symlink": "a.py"}}},
            "assertions": [{"kind": "file_exists", "path": "b", "name": "[n]"}],
            "oracle": {"commands": ["touch b"], "answer": "done [x]", "alternatives": [["echo > b"]]},
        }
    )
    stream = io.StringIO()
    render(task, stream, width=100)
    text = stream.getvalue()
    assert "\x1b[2J" not in text
    for part in ("[bold]b[/bold]", "in [red]a hurry", "[t]", "[n]", "done [x]", "l -> a.py", "another way"):
        assert part in text, part


def test_every_library_task_can_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    for task in load_tasks("library"):
        render(task, io.StringIO())


def test_split_shows_both_sides_and_locks_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec, path = "generated:quickstart?n=40", tmp_path / "locks" / "my.lock"
    assert run(["split", spec, "--unseen", "2"]) == 0
    out = capsys.readouterr().out
    assert "unseen" in out and "nothing was written" in out
    assert run(["split", spec, "--unseen", "copy,rename", "--fraction", "0.25", "--out", str(path)]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^all +27 +9 +4$", out, re.MULTILINE) and "40 tasks, chosen by seed, hash " in out
    split = apply_lock(load_tasks(spec), path)
    assert {task.family for task in split.unseen} == {"copy", "rename"} and len(split.held_out) == 9
    before = path.read_bytes()
    assert run(["split", spec, "--seed", "1", "--out", str(path)]) == 2
    assert "is locked here, but stands in pool now" in capsys.readouterr().err and path.read_bytes() == before
    assert run(["split", spec, "--unseen", "copi"]) == 2
    assert "did you mean 'copy'?" in capsys.readouterr().err
    assert run(["split", spec, "--confirm", "0.25", "--out", str(tmp_path / "b.lock")]) == 0
    assert re.search(r"^all +22 +8 +10$", capsys.readouterr().out, re.MULTILINE)
    assert json.loads((tmp_path / "b.lock").read_text())["made_from"]["confirm"] == 0.25
    assert len(apply_lock(load_tasks(spec), tmp_path / "b.lock").confirm) == 10
    for share, words in (("1.5", "confirm is 1.5: a share"), ("0.9", "leave nothing of a pool of 32")):
        assert run(["split", spec, "--confirm", share]) == 2 and words in capsys.readouterr().err


def test_a_junit_file_overwrites_nothing_else(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, before = folder / "good.yaml", (folder / "good.yaml").read_bytes()
    assert run(["check", str(task), "--junit", str(task)]) == 2
    assert "is no JUnit file: it was left as it is" in capsys.readouterr().err and task.read_bytes() == before
    assert run(["check", str(task), "--junit", str(folder / "no" / "x.xml")]) == 2
    assert "there is no such folder" in (said := capsys.readouterr()).err and "proven" not in said.out
    report = folder / "x.xml"
    for _ in range(2):  # its own report may be written again
        assert run(["check", str(task), "--junit", str(report)]) == 0
    assert ElementTree.parse(report).getroot().get("tests") == "1"


def test_an_empty_folder_does_not_hide_the_other_tasks(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert run(["check", str(tmp_path / "empty"), str(folder / "good.yaml")]) == 1
    said = capsys.readouterr()
    assert "1 proven" in said.out and "empty" in said.err


def test_a_sandbox_that_fails_is_no_broken_task(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise SandboxError("the supervisor died")

    monkeypatch.setattr(FakeSandbox, "snapshot", broken)
    report = folder / "x.xml"
    assert run(["check", str(folder / "good.yaml"), "--junit", str(report)]) == 2
    assert "0 failed, 1 undecided (the sandbox failed)" in capsys.readouterr().out
    assert [case[0].tag for case in ElementTree.parse(report).getroot()] == ["error"]
    assert run(["check", str(folder / "good.yaml"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["counts"]["undecided"] == 1


@pytest.fixture
def variants(folder: Path) -> Path:
    """A folder of good tasks: two that differ in the persona, one that has a file more, and one of its own."""
    for path in folder.glob("*.yaml"):
        path.unlink()
    intent = "make a file that is called b and holds b in the folder where you are"
    (folder / "one.yaml").write_text(GOOD.replace("good", "one").replace("make b", intent))
    (folder / "same.yaml").write_text(
        GOOD.replace("good", "same").replace("make b", intent.upper()) + "persona: {role: cook}\n"
    )
    (folder / "near.yaml").write_text(
        GOOD.replace("good", "near").replace("make b", intent) + "workspace: {files: {n: x}}\nsplit: held_out\n"
    )
    (folder / "pool.yaml").write_text(GOOD.replace("good", "pool").replace("make b", "make it") + "split: pool\n")
    (folder / "one.yaml").write_text((folder / "one.yaml").read_text() + "split: pool\n")
    return folder


def test_split_names_near_twins_across_sides(variants: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["split", str(variants)]) == 0
    out = capsys.readouterr().out
    assert "note: 1 pair of near-twins across sides (similarity 0.65 or more)" in out
    assert "  near (held_out) and one (pool): 0.75\n" in out
    assert run(["split", "library"]) == 0
    assert "near-twins" not in capsys.readouterr().out


def test_check_names_twins_as_notes(variants: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(variants)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].startswith("note: 1 group of exact twins (") and lines[-3].endswith(": one, same")
    assert lines[-2] == "note: 1 pair of near-twins (similarity 0.65 or more): near and one (0.75)"
    assert lines[-1] == "4 proven, 0 unproven (no oracle), 0 failed"
    assert run(["check", str(variants), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["notes"] == [line.removeprefix("note: ") for line in lines[-3:-1]] and said["images"] == {}


def test_check_says_in_which_images_it_proved(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.check.image_ids", lambda tasks, sandbox: {"x:1": ["sha256:" + "0" * 64]})
    assert run(["check", str(folder / "good.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[-2] == "note: image x:1: sha256:000000000000"
    assert run(["check", str(folder / "good.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == {"x:1": ["sha256:" + "0" * 64]}
