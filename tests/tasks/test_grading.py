"""A folder that somebody left, judged as the workspace at the end of an episode."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import tasks.grading
from sandboxes import EntryKind, FileEntry, SandboxError
from sandboxes.inside.files import Tree
from sandboxes.sandbox import Limits, Sandbox, SandboxUnavailable
from tasks.__main__ import run
from tasks.grading import grade_folder, read_folder
from tasks.proof import play
from tasks.sources import load_library
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox

ROOT = Path(__file__).resolve().parents[2]
FILE = {"kind": "file_contains", "path": "a.txt", "contains": "one"}
COMMAND = {"kind": "command", "command": "cat a.txt", "stdout": "one"}
FRESH = {"kind": "script", "command": "echo $(grep -c one a.txt)", "mode": "reward", "judged_in": {"sandbox": "fresh"}}


def write_task(folder: Path, *assertions: Mapping[str, Any], **keys: Any) -> str:
    task = {"id": "t", "intent": "Write a.txt.", "assertions": list(assertions), **keys}
    path = folder / "t.yaml"
    path.write_text(json.dumps(task))  # JSON is YAML
    return str(path)


def state(folder: Path) -> list[tuple[Any, ...]]:
    """All that grading could change: names, modes, times, links, contents."""
    found = []
    for path in sorted(folder.rglob("*"), key=os.fsencode):
        s = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(s.st_mode) and s.st_size < 1 << 20 else b""
        found.append((os.fsencode(path), s.st_mode, s.st_mtime_ns, s.st_ctime_ns, s.st_size, content))
    return found


@pytest.fixture
def left(tmp_path: Path) -> Path:
    folder = tmp_path / "left"
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    return folder


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeSandbox]:
    """Sandboxes that `grade` opened, without walls."""
    made: list[FakeSandbox] = []

    def make(backend: str) -> FakeSandbox:
        made.append(FakeSandbox())
        return made[-1]

    monkeypatch.setattr(tasks.grading, "open_sandbox", make)
    return made


def graded(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code = run(["grade", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_pass_and_fail_are_told_in_lines(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = write_task(tmp_path, FILE, {"kind": "file_exists", "path": "b.txt", "weight": 0})
    assert run(["grade", task, str(left)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pass   file_contains:a.txt",
        "fail   file_exists:b.txt (decides nothing): b.txt: nothing there",
        "passed: rate 1.000",
    ]
    (left / "a.txt").write_text("two\n")
    assert run(["grade", task, str(left)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "not passed: rate 0.000"


def test_json_has_the_keys_of_a_trajectory(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = graded(capsys, write_task(tmp_path, FILE), left)
    assert code == 0
    assert len(found.pop("task_hash")) == 64
    passed = {"kind": "file_contains", "verdict": "pass", "score": 1.0, "detail": "", "weight": 1.0}
    assert found == {
        "task_id": "t",
        "passed": True,
        "rate": 1.0,
        "assertions": [{"name": "file_contains:a.txt", **passed}],
        "judge_isolation": "full",
        "notes": [],
        "error": None,
    }


def test_an_assertion_that_errs_is_no_fail(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    large = {"files": {"big.bin": {"size": 2 << 20}}}
    task = write_task(tmp_path, FILE, {"kind": "file_contains", "path": "big.bin", "contains": "x"}, workspace=large)
    (left / "big.bin").write_bytes(bytes(2 << 20))
    code, found = graded(capsys, task, left)
    assert (code, found["passed"], found["rate"]) == (3, None, None)
    assert [item["verdict"] for item in found["assertions"]] == ["pass", "error"]
    assert "1 of 2 could not be decided" in found["error"]


@pytest.mark.parametrize("where", ["nowhere", "a.txt", "round"])
def test_what_is_no_folder_is_refused(
    tmp_path: Path, left: Path, where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (left / "round").symlink_to("round")
    assert run(["grade", write_task(tmp_path, FILE), str(left / where)]) == 2
    assert "is no folder that can be read" in capsys.readouterr().err


def test_one_of_several_tasks_must_be_named(left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["grade", "library", str(left)]) == 2
    error = capsys.readouterr().err
    assert "holds 43 tasks (archive-old-logs, broken-csv," in error and "--id" in error
    assert graded(capsys, "library", left, "--id", "stock-difference")[1]["task_id"] == "stock-difference"
    assert run(["grade", "library", str(left), "--id", "stock-differenc"]) == 2
    assert "did you mean 'stock-difference'?" in capsys.readouterr().err


# -- What was said -----------------------------------------------------------------------------------------------------


def test_the_reply_is_asked_for_before_anything_is_judged(
    tmp_path: Path, left: Path, opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    number = {"kind": "number_equals", "gold": "42"}
    task = write_task(tmp_path, COMMAND, {"kind": "any_of", "of": [number, FILE]})
    assert run(["grade", task, str(left)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and "number_equals" in error and "--reply FILE" in error
    assert not opened
    reply = tmp_path / "reply.txt"
    reply.write_text("The answer is 42.")
    task = write_task(tmp_path, number)
    assert graded(capsys, task, left, "--reply", reply)[0] == 0
    reply.write_text("")
    code, found = graded(capsys, task, left, "--reply", reply)
    assert (code, found["assertions"][0]["detail"]) == (1, "no answer was given")
    assert run(["grade", task, str(left), "--reply", str(tmp_path / "none")]) == 2


def test_a_script_that_reads_the_conversation_needs_the_reply(
    tmp_path: Path, left: Path, opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    code = 'import json, os; p = json.load(open(os.environ["GRADER"] + "/payload.json"));'
    code += 'print(int(p["final_message"] == "done" and [m["content"] for m in p["transcript"]][-1] == "done"))'
    script = {"kind": "script", "name": "said", "command": f"python3 -c '{code}'", "payload": {}}
    task = write_task(tmp_path, script)
    assert run(["grade", task, str(left)]) == 2
    assert "said: judged by the reply" in capsys.readouterr().err
    reply = tmp_path / "reply.txt"
    reply.write_text("done")
    status, found = graded(capsys, task, left, "--reply", reply)
    assert status == 0, found
    assert any("whole conversation" in note for note in found["notes"])


# -- Commands ----------------------------------------------------------------------------------------------------------


def test_commands_run_on_a_copy(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoiling = {
        "kind": "command",
        "command": "cat a.txt; wc -c < big; echo spoilt > a.txt; rm big",
        "stdout": "one\n3000000",
    }
    (left / "big").write_bytes(bytes(3_000_000))  # too large for a snapshot, not for a workspace
    os.mkfifo(left / "fifo")
    before = state(left)
    code, found = graded(capsys, write_task(tmp_path, FILE, spoiling), left)
    assert code == 0, found
    assert state(left) == before


def test_a_command_that_runs_out_of_time_fails(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is run once more, in a second sandbox with the same copy."""
    endless = {"kind": "command", "command": "grep -q one a.txt && sleep 60", "timeout": 0.3}
    code, found = graded(capsys, write_task(tmp_path, endless), left)
    assert (code, found["assertions"][0]["verdict"]) == (1, "fail")
    assert "ran out of time" in found["assertions"][0]["detail"]


def test_files_alone_start_no_sandbox(tmp_path: Path, left: Path, opened: list[FakeSandbox]) -> None:
    assert run(["grade", write_task(tmp_path, FILE), str(left)]) == 0
    assert not opened
    assert run(["grade", write_task(tmp_path, COMMAND), str(left)]) == 0
    assert [sandbox.closed for sandbox in opened] == [True]


def test_without_a_sandbox_the_command_is_refused(
    tmp_path: Path, left: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(backend: str) -> Sandbox:
        raise SandboxUnavailable(f"{backend}: nothing works; remedy: install it")

    monkeypatch.setattr(tasks.grading, "open_sandbox", none)
    assert run(["grade", write_task(tmp_path, FILE, COMMAND), str(left)]) == 2
    out, error = capsys.readouterr()
    assert out == "" and "remedy: install it" in error


class Losing(FakeSandbox):
    """Loses the judge so many times; with `all_lost`, whatever runs."""

    losses = 0
    all_lost = False

    def judge(self, *args: Any, **kwargs: Any) -> Any:
        if type(self).losses:
            type(self).losses -= 1
            raise SandboxError("lost")
        return super().judge(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        if self.all_lost:
            raise SandboxError("lost as well")
        return super().run(*args, **kwargs)


@pytest.mark.parametrize("judge", [COMMAND, FRESH], ids=["in the copy", "in a fresh sandbox"])
@pytest.mark.parametrize(
    ("losses", "all_lost", "code", "verdict"),
    [(1, False, 0, "pass"), (2, False, 1, "fail"), (2, True, 3, None)],
    ids=["once", "twice", "with the machine"],
)
def test_a_sandbox_that_is_lost(
    tmp_path: Path,
    left: Path,
    judge: dict[str, Any],
    losses: int,
    all_lost: bool,
    code: int,
    verdict: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = type("Lost", (Losing,), {"losses": losses, "all_lost": all_lost})
    monkeypatch.setattr(tasks.grading, "open_sandbox", lambda backend: made())
    status, found = graded(capsys, write_task(tmp_path, judge, schema_version=2), left)
    assert status == code
    assert [item["verdict"] for item in found["assertions"]] == ([verdict] if verdict else [])
    assert (found["passed"], bool(found["error"])) == ({0: True, 1: False, 3: None}[code], code == 3)


def test_a_judge_that_nothing_keeps_apart_is_told(
    tmp_path: Path, left: Path, opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str]
) -> None:
    (left / "a.py").write_text("print('one')\n")
    starts = {"kind": "command", "command": "python3 a.py", "stdout": "one"}
    code, found = graded(capsys, write_task(tmp_path, starts), left)
    assert (code, found["judge_isolation"]) == (0, "none")
    assert "forged pass" in found["notes"][0]


# -- Hostile folders ---------------------------------------------------------------------------------------------------


def _link(folder: Path) -> None:
    (folder / "a.txt").symlink_to("/etc/passwd")


def _link_up(folder: Path) -> None:
    (folder.parent / "secret").write_text("one root:\n")
    (folder / "a.txt").symlink_to("../secret")


def _linked_parent(folder: Path) -> None:
    (folder / "etc").symlink_to("/etc")


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "a.txt")


def _folder(folder: Path) -> None:
    (folder / "a.txt").mkdir()


def _sparse(folder: Path) -> None:
    with (folder / "a.txt").open("wb") as file:
        file.write(b"one root:")
        file.truncate(1 << 40)


def _names(folder: Path) -> None:
    for name in (b"\xff\xfe", b"line\nbreak", b"\x1b[31mred"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")


def _many(folder: Path) -> None:
    for number in range(Limits().snapshot_entries * 5 // 4):
        os.close(os.open(folder / f"n{number}", os.O_CREAT | os.O_WRONLY))


@pytest.mark.parametrize("make", [_link, _link_up, _linked_parent, _fifo, _folder, _sparse, _names, _many])
@pytest.mark.parametrize("command", [False, True], ids=["files", "command"])
def test_a_hostile_folder_fails(
    tmp_path: Path,
    left: Path,
    make: Callable[[Path], None],
    command: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (left / "a.txt").unlink()
    make(left)
    before = state(left) if make is not _many else sorted(os.listdir(left))
    looks = [{"kind": "file_contains", "path": path, "contains": "root:"} for path in ("a.txt", "etc/passwd")] + [
        {"kind": "file_count", "glob": "*", "equals": 1}
    ]
    runs = {"kind": "command", "command": "timeout 5 head -c 100 a.txt etc/nothing", "stdout_contains": "one root:"}
    code, found = graded(capsys, write_task(tmp_path, *([runs] if command else looks)), left)
    assert code == 1, found
    verdicts = [item["verdict"] for item in found["assertions"]]
    assert verdicts[:2] == ["fail"] * len(verdicts[:2]), found
    assert before == (state(left) if make is not _many else sorted(os.listdir(left)))


def test_names_of_a_hostile_folder_print_as_text(
    tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _names(left)
    assert run(["grade", write_task(tmp_path, {"kind": "file_count", "glob": "*", "equals": 1}), str(left)]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\x1b[31mred" in out and len(out.splitlines()) == 2
    out.encode()


def test_more_paths_than_a_snapshot_shows(tmp_path: Path, left: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(Limits().snapshot_entries):
        (left / f"n{number}").touch()
    code, found = graded(capsys, write_task(tmp_path, FILE, {"kind": "file_not_exists", "path": "b"}), left)
    assert code == 1
    assert [item["verdict"] for item in found["assertions"]] == ["pass", "fail"]
    assert found["assertions"][1]["broke"]
    assert "more than a snapshot shows" in found["notes"][0]


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, to whom files are closed")
def test_what_may_not_be_read_counts_as_missing(opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str]) -> None:
    absent = {"kind": "file_not_exists", "path": "shut/other.txt"}
    inside = [{"kind": "file_contains", "path": path, "contains": "one"} for path in ("shut/in.txt", "locked.txt")]
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        Path(place).chmod(0o755)
        left = Path(place, "left")
        for path in ("a.txt", "shut/in.txt", "listed/in.txt", "locked.txt"):
            (left / path).parent.mkdir(parents=True, exist_ok=True)
            (left / path).write_text("one\n")
        (left / "shut").chmod(0o700)
        (left / "listed").chmod(0o744)
        (left / "locked.txt").chmod(0)
        before = state(left)
        for assertions, verdicts in (
            ([FILE, *inside, absent], ["pass", "fail", "fail", "fail"]),
            ([COMMAND], ["fail"]),
        ):
            task = write_task(Path(place), *assertions)
            os.seteuid(61234)
            try:
                code, found = graded(capsys, task, left)
            finally:
                os.seteuid(0)
            assert code == 1
            assert [item["verdict"] for item in found["assertions"]] == verdicts, found
            assert all(f"'{path}'" in found["notes"][0] for path in ("shut", "listed", "locked.txt"))
        assert state(left) == before


@pytest.mark.parametrize("always", [False, True], ids=["once", "always"])
def test_a_folder_that_changes_meanwhile(
    tmp_path: Path, left: Path, always: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Read again; a folder that never holds still has no verdict."""
    read = Tree.snapshot
    changes = iter(range(1000 if always else 1))

    def meanwhile(self: Tree, *limits: int) -> tuple[Any, ...]:
        found = read(self, *limits)
        if next(changes, None) is not None:
            (left / "a.txt").write_text("two")
        return found

    monkeypatch.setattr(Tree, "snapshot", meanwhile)
    code, found = graded(capsys, write_task(tmp_path, FILE), left)
    if always:
        assert (code, found["passed"], found["assertions"]) == (3, None, [])
        assert "stop what writes into it" in found["error"]
    else:
        assert (code, found["assertions"][0]["verdict"]) == (1, "fail")  # what it holds now


def test_a_file_that_goes_while_it_is_read(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk, gone = Tree.walk, []

    def going(self: Tree, limit: int) -> list[Any]:
        found = walk(self, limit)
        if not gone:
            gone.append((left / "a.txt").rename(left / "b.txt"))
            (left / "a.txt").mkdir()
        return found

    monkeypatch.setattr(Tree, "walk", going)
    found = read_folder(left, Limits(), whole=True).files
    assert {path: entry.kind for path, entry in found.items()} == {"a.txt": EntryKind.DIR, "b.txt": EntryKind.FILE}


# -- The same verdict as in an episode ---------------------------------------------------------------------------------

SOME = ("archive-old-logs", "failing-test", "release-links", "rename-photos", "ssh-lockdown", "stock-difference")


def lay(files: Mapping[str, FileEntry], folder: Path) -> None:
    folder.mkdir()
    for path, entry in files.items():
        target = folder / path
        if entry.kind is EntryKind.DIR:
            target.mkdir()
        elif entry.kind is EntryKind.SYMLINK:
            target.symlink_to(entry.target or "")
        else:
            target.write_bytes(entry.content or b"")
        if entry.kind is not EntryKind.SYMLINK:
            target.chmod(entry.mode)


@pytest.mark.parametrize(
    "task",
    [
        pytest.param(task, marks=() if task.id in SOME else pytest.mark.slow, id=task.id)
        for task in load_library()
    ],
)  # fmt: skip
def test_a_library_task_has_the_grade_of_its_proof(task: Task, tmp_path: Path, proving: Sandbox) -> None:
    assert task.oracle is not None
    for name, commands in (("solved", task.oracle.commands), ("idle", ())):
        played = play(task, proving, commands, task.oracle.answer)
        lay(played.outcome.files, tmp_path / name)
        before = state(tmp_path / name)
        found = grade_folder(task, tmp_path / name, reply=task.oracle.answer or "")
        assert found.grade == played.grade
        assert found.grade.passed is (name == "solved")
        assert state(tmp_path / name) == before


def test_grading_files_loads_nothing_heavy(tmp_path: Path, left: Path) -> None:
    heavy = ("torch", "transformers", "trl", "numpy", "gymnasium", "rich", "docker")
    code = (
        f"import sys; from tasks.__main__ import run; run(['grade', {write_task(tmp_path, FILE)!r}, {str(left)!r}]); "
    )
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr
