from __future__ import annotations

from pathlib import Path

import pytest

from agents.__main__ import main
from agents.policies.scripted import OraclePolicy
from agents.policy import Candidate, Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import write_jsonl
from tests.agents.fakes import FakeEnv, task


@pytest.fixture
def stored(tmp_path: Path) -> str:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=1) as engine:
        played = engine.run([Job(task(id=f"t{i}"), i, i) for i in range(3)], Sampling(0.0, 100)).trajectories
    played[0].turns[1].candidates = [Candidate((1,), 0.25)]
    played[0].turns[1].uncertainty = 0.5
    played[0].turns[0].observation = "[bold]not markup[/bold]"
    path = tmp_path / "step.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        write_jsonl(played, file)
    return str(path)


def test_list(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", stored]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("t0", "t1", "t2", "submitted"))


def test_one_episode(stored: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", stored, "--episode", "0"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())  # however wide the page is
    for text in ("turn 2", "echo one", "exit code 0", "signal 0.500", "uncertainty 0.500", "1 rejected (0.250)",
                 "[bold]not markup[/bold]", "file_contains:said", "pass", "TASK_COMPLETE"):  # fmt: skip
        assert text in out, text
    assert main(["show", stored, "--task", "t1"]) == 0
    assert "t1  attempt 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--episode", "7"], "there is no episode 7: the numbers are 0 to 2"),
        (["--task", "zz"], "no episode of task 'zz'"),
    ],
)
def test_errors(stored: str, capsys: pytest.CaptureFixture[str], args: list[str], message: str) -> None:
    assert main(["show", stored, *args]) == 2
    assert message in capsys.readouterr().err


def test_missing_and_broken_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(tmp_path / "no.jsonl")]) == 2
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert main(["show", str(tmp_path / "bad.jsonl")]) == 2
    assert "bad.jsonl:1: not a trajectory" in capsys.readouterr().err
