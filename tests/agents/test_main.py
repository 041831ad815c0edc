from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from agents.__main__ import main
from agents.policies.scripted import OraclePolicy
from agents.policy import Candidate, FinishReason, Sampling
from agents.records import read_trajectories
from agents.rollout import Job, RolloutEngine
from agents.trajectory import read_jsonl, write_jsonl
from tasks.model import LONE_SURROGATES
from tasks.sources import load_tasks
from tests.agents.fakes import FakeEnv, task
from tests.agents.records.test_fieldnotes import RECORD
from tests.agents.view.made import run_folder


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
        (["--task", "t1", "--episode", "0"], "there is no episode 0 of task 't1'"),
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


def test_what_an_engine_far_away_does_not_know(stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    episode = next(read_jsonl(stored))
    turn = episode.turns[0]
    turn.entropies = turn.max_logprobs = turn.logprobs = None
    turn.entropy_bounds = [(0.0, 1.0)] * (len(turn.ids) - 1) + [(0.0, 1.0)]
    turn.finish, turn.timed_out = FinishReason.STOP_TEXT, True
    episode.notes["forged_headers"] = 2
    with open(tmp_path / "b.jsonl", "w") as file:
        write_jsonl([episode], file)
    assert main(["show", str(tmp_path / "b.jsonl")]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("mean entropy between 0.000 and 1.000", "ended by a stop text", "no log-probabilities", "timed out"):
        assert text in out, text
    assert "2 headers of the template in what it was shown" in out


def test_the_intent_of_a_runs_task_comes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = run_folder(tmp_path / "run") / "trajectories" / "step_000001.jsonl"
    assert main(["show", str(file), "--episode", "0"]) == 0
    out = capsys.readouterr().out
    assert "Merge the two lists." in out.partition("turn 0")[0]


def test_foreign_files_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "trajectories.jsonl"
    path.write_text(json.dumps(RECORD) + "\n")
    assert main(["show", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("tidy-1", "from fieldnotes", "4 turns of text, without ids", "text only", "passed: no", "reward: -"):
        assert text in out, text


def test_convert(stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "theirs.jsonl")
    assert main(["convert", stored, out, "--to", "fieldnotes"]) == 0
    assert f"3 episodes written to {out} (fieldnotes)" in capsys.readouterr().out.replace("\n", " ")
    assert [one.flat() for one in read_trajectories(out)] == [one.flat() for one in read_jsonl(stored)]
    assert main(["convert", stored, out, "--to", "fieldnotes"]) == 2
    assert "is already there" in capsys.readouterr().err
    back = str(tmp_path / "ours.jsonl")
    assert main(["convert", out, back, "--to", "turngym"]) == 0
    assert [one.source for one in read_jsonl(back)] == ["fieldnotes"] * 3


def test_a_conversion_that_fails_leaves_no_file(
    stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut.jsonl"
    cut.write_text(Path(stored).read_text()[:-200])
    out = tmp_path / "out.jsonl"
    assert main(["convert", str(cut), str(out), "--to", "turngym"]) == 2
    assert "cut.jsonl:3: the last line is cut" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.jsonl", "step.jsonl"]
    assert main(["convert", str(cut), str(out), "--to", "turngym", "--allow-cut"]) == 0
    assert len(list(read_jsonl(out))) == 2


def test_a_conversion_leaves_files_with_names_like_its_own_alone(stored: str, tmp_path: Path) -> None:
    named = tmp_path / "new.jsonl.tmp"
    Path(stored).rename(named)
    before = named.read_bytes()
    assert main(["convert", str(named), str(tmp_path / "new.jsonl"), "--to", "turngym"]) == 0
    assert named.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new.jsonl", "new.jsonl.tmp"]


def test_what_would_steer_a_terminal_is_shown_escaped(
    stored: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    episode = next(read_jsonl(stored))
    episode.task_id = "a\x9bb"
    episode.turns[0].reply = "half \ud83d"
    episode.turns[0].observation = "\x1b[31mred\tand\r\nnext"
    episode.assertions[0]["detail"] = "bell \x07"
    path = tmp_path / "b.jsonl"
    with open(path, "w", encoding="utf-8", errors=LONE_SURROGATES) as file:
        write_jsonl([episode], file)
    assert main(["show", str(path)]) == 0
    out = capsys.readouterr().out
    for text in (r"a\x9bb", r"half \ud83d", r"\x1b[31mred", r"and\r", r"bell \x07"):
        assert text in out, text
    assert not set(out) & set("\x1b\x07\x9b\r\ud83d")
    assert main(["show", str(path), "--task", "x"]) == 2
    assert r"it has a\x9bb" in capsys.readouterr().err


def test_play_opens_its_file_before_anyone_plays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Asked(io.StringIO):
        def readline(self, *args: Any) -> str:
            raise KeyboardInterrupt

        __next__ = readline  # type: ignore[assignment]

    monkeypatch.setattr("sys.stdin", Asked())
    assert main(["play", "--tasks", "gsm8k:sample", "--out", str(tmp_path / "none" / "mine.jsonl")]) == 2
    assert "No such file or directory" in capsys.readouterr().err
    assert main(["play", "--tasks", "gsm8k:sample", "--out", str(tmp_path / "mine.jsonl")]) == 130
    assert not list(tmp_path.iterdir())  # nothing was played, nothing is left
    (tmp_path / "mine.jsonl").write_text("before\n")
    assert main(["play", "--tasks", "gsm8k:sample", "--out", str(tmp_path / "mine.jsonl")]) == 130
    assert (tmp_path / "mine.jsonl").read_text() == "before\n"


def test_a_person_plays_and_the_episode_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, out = "gsm8k:sample", str(tmp_path / "mine.jsonl")
    first = load_tasks(tasks)[0]
    assert first.oracle is not None and first.oracle.answer is not None
    for number, (answer, status) in enumerate(((first.oracle.answer, 0), ("#### -77", 1))):
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{answer}\n.\n"))
        assert main(["play", "--tasks", tasks, "--out", out, "--seed", str(number)]) == status
        shown = capsys.readouterr().out
        assert "stopped: submitted" in shown and ("not passed: rate 0.000" in shown) == bool(status)
    assert [(one.passed, one.seed) for one in read_jsonl(out)] == [(True, 0), (False, 1)]
    assert main(["play", "--tasks", tasks, "--task", "nope"]) == 2
    assert "there is no task 'nope'" in capsys.readouterr().err
