from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes.sandbox import SandboxError, SandboxUnavailable, Snapshot
from tasks import check as checking
from tasks.__main__ import run
from tasks.families import ALL_FAMILIES
from tasks.proof import Status
from tasks.sources import load_shipped, load_tasks
from tests.tasks.fake_sandbox import FakeSandbox

GOOD = """\
id: good
intent: make b
assertions: [{kind: file_equals, path: b, equals: "b\\n"}]
oracle: {commands: [echo b > b]}
"""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[FakeSandbox]:
    """The sandboxes that `check` opened, all of them fakes."""
    sandboxes: list[FakeSandbox] = []

    def make(backend: str = "auto") -> FakeSandbox:
        sandboxes.append(FakeSandbox())
        return sandboxes[-1]

    monkeypatch.setattr(checking, "open_sandbox", make)
    return sandboxes


def test_a_line_per_task_and_a_count(
    opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "open.yaml").write_text("id: open\nintent: x\nassertions: [{kind: file_exists, path: b}]\n")
    wrong = GOOD.replace("good", "wrong").replace("> b", "> c").replace("make b", "spoil it")
    (tmp_path / "wrong.yaml").write_text(wrong)
    assert run(["check", str(tmp_path), "--jobs", "2"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ["id", "good", "open", "wrong", "1"]
    assert lines[1].split()[2:] == ["1.00", "0.00", "proven"]
    assert lines[2].split()[2:] == ["-", "0.00", "unproven", "(no", "oracle)"]
    assert lines[3].split()[2:] == ["0.00", "0.00", "failed"]
    assert lines[4] == "    after the oracle: file_equals:b: fail: b: nothing there"
    assert lines[5] == "1 proven, 1 unproven (no oracle), 1 failed"
    assert opened and all(sandbox.closed for sandbox in opened)


def test_a_broken_file_does_not_hide_the_others(
    opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("id: bad\n")
    (tmp_path / "good.yaml").write_text(GOOD)
    assert run(["check", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert "bad.yaml:1: assertions: is missing" in captured.err
    assert captured.out.splitlines()[-1] == "1 proven, 0 unproven (no oracle), 0 failed; 2 problems in files"


def test_a_good_folder_exits_with_0(opened: list[FakeSandbox], tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    assert run(["check", str(tmp_path)]) == 0


def test_only_broken_files(opened: list[FakeSandbox], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("id: [")
    assert run(["check", str(tmp_path)]) == 1
    assert "nothing to prove" in capsys.readouterr().err
    assert opened == []


def test_all_means_the_library_and_every_family() -> None:
    tasks, problems = checking.gather([], every=True, sample=2, seed=0)
    assert problems == []
    assert len(tasks) == len(load_shipped()) + 2 * len(ALL_FAMILIES)


def test_one_id_in_two_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD)
    (tmp_path / "b.yaml").write_text(GOOD.replace("make b", "make c"))
    tasks, problems = checking.gather([str(tmp_path)], every=False, sample=1, seed=0)
    assert len(tasks) == 1
    assert "b.yaml: id: the id 'good' names two different tasks" in str(problems[0])


def test_no_sandbox_is_one_line_and_exit_2(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def unavailable(backend: str) -> FakeSandbox:
        raise SandboxUnavailable("bwrap is not installed; remedy: apt-get install bubblewrap")

    monkeypatch.setattr(checking, "open_sandbox", unavailable)
    assert run(["check", "library:bump-version"]) == 2
    assert capsys.readouterr().err == "tasks: no sandbox: bwrap is not installed; remedy: apt-get install bubblewrap\n"


class Flaky(FakeSandbox):
    """Fails the first `failures` snapshots of all its kind."""

    failures = 0

    def snapshot(self) -> Snapshot:
        if type(self).failures > 0:
            type(self).failures -= 1
            raise SandboxError("the supervisor died")
        return super().snapshot()


@pytest.mark.parametrize(("failures", "status"), [(1, Status.PROVEN), (2, Status.UNDECIDED)])
def test_a_sandbox_that_dies_is_replaced_once(failures: int, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flaky, "failures", failures)
    made: list[Flaky] = []

    def make() -> Flaky:
        made.append(Flaky())
        return made[-1]

    (proof,) = checking.prove_all(load_tasks("library:bump-version"), make, 1)
    assert proof.status is status
    assert len(made) == 2
    assert all(sandbox.closed for sandbox in made)
    if status is Status.UNDECIDED:
        assert proof.problems == ("the sandbox failed twice: the supervisor died",)


def test_proofs_come_in_the_order_of_the_tasks() -> None:
    tasks = load_tasks("generated:quickstart?n=12")
    proofs = list(checking.prove_all(tasks, FakeSandbox, 4))
    assert [proof.task_id for proof in proofs] == [task.id for task in tasks]
    assert all(proof.status is Status.PROVEN for proof in proofs)
