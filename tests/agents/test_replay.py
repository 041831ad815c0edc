"""Stored episodes again, in real sandboxes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.__main__ import main
from agents.commands import _unsaid_style
from agents.fieldnotes import to_record
from agents.models.card import ModelCard, write_card
from agents.models.loading import load_model
from agents.policies.scripted import ByteTokenizer, OraclePolicy, ScriptedPolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import Request, Sampling
from agents.replay import ReplayError, replay, template_for
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, read_jsonl, write_jsonl
from envs import ClawGymEnv, GSM8KEnv
from sandboxes import SupervisedSandbox, probe
from tasks.sources import load_tasks
from tasks.task import Task
from tests.envs.fakes import kill

pytestmark = [
    pytest.mark.bubblewrap,
    pytest.mark.skipif(not probe("bubblewrap").ok, reason="bubblewrap does not work here"),
]
SPEC = "generated:quickstart?n=3&seed=1"
YAML = """\
id: {id}
intent: Write two lines into b.
workspace: {{files: {{a.txt: {{text: "one\\n"}}}}}}
budget: {{max_turns: 5}}
assertions:
  - {{kind: file_contains, path: b, contains: {word}}}
  - {{kind: file_unchanged, path: a.txt}}
"""


class Says(ScriptedPolicy):
    """Says what it is given, turn by turn."""

    def __init__(self, *replies: str) -> None:
        super().__init__()
        self.replies = replies

    def text(self, task: Task, turn: int, request: Request) -> str:
        return self.replies[turn]


def play(
    policy: Any, tasks: Sequence[Task], cap: int = 300, env: Any = ClawGymEnv, **settings: Any
) -> list[Trajectory]:
    jobs = [Job(task, 0, seed=0) for task in tasks]
    with RolloutEngine(policy, lambda: env(tasks, sandbox="bubblewrap", **settings), slots=3, workers=2) as engine:
        return engine.run(jobs, Sampling(0.7, cap)).trajectories


def bash(command: str) -> str:
    return f"```bash\n{command}\n```"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tasks of a user."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(YAML.format(id=name, word="x"))
    return tmp_path


@pytest.fixture
def recorded(folder: Path) -> Trajectory:
    replies = [bash("echo x > b; echo x; date +%s%N > /dev/null"), "no block", bash("cat b\nfalse"), "TASK_COMPLETE"]
    return play(Says(*replies), load_tasks(str(folder / "one.yaml")))[0]


def stored(path: Path, *episodes: Trajectory) -> str:
    with open(path, "w", encoding="utf-8") as file:
        write_jsonl(episodes, file)
    return str(path)


def again(command: str, file: str, tasks: Path | str, *more: str) -> int:
    return main([command, file, "--tasks", str(tasks), "--sandbox", "bubblewrap", *more])


@pytest.mark.parametrize("kind", ["oracle", "quickstart"])
def test_an_episode_of_any_policy_replays_with_the_same_ids(kind: str) -> None:
    tasks = load_tasks(SPEC)
    policy: Any = OraclePolicy() if kind == "oracle" else TransformersPolicy(*load_model("quickstart"))
    for episode, task in zip(play(policy, tasks), tasks, strict=True):
        result = replay(episode, task, template=template_for(episode, policy.tokenizer), sandbox="bubblewrap")
        assert result.ids_compared and result.differences == [] and result.same_grade
        assert result.now.flat() == episode.flat() and result.now.prompt_ids == episode.prompt_ids
        assert (result.now.reward, result.now.assertions) == (episode.reward, episode.assertions)
        assert [turn.seed for turn in result.now.turns] == [turn.seed for turn in episode.turns]


def test_an_episode_that_was_lost_replays_as_what_it_is_now(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks, real = load_tasks(str(folder / "one.yaml")), SupervisedSandbox.run_and_snapshot

    def ending(sandbox: Any, command: str, **settings: Any) -> Any:
        if command == "deadly || true":
            kill(sandbox)
        return real(sandbox, command, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(SupervisedSandbox, "run_and_snapshot", ending)
        (episode,) = play(Says(bash("echo x > b"), bash("deadly || true")), tasks)
        assert episode.stop_reason == "lost" and episode.passed is False and episode.reward is not None
        assert episode.environment["agent_errors"] == "fail"
        assert Trajectory.from_json(json.loads(json.dumps(episode.to_json()))) == episode
        result = replay(episode, tasks[0], sandbox="bubblewrap")
        assert result.differences == [] and result.same_grade and result.now.stop_reason == "lost"
    result = replay(episode, tasks[0], sandbox="bubblewrap")
    assert not result.same_grade and result.now.passed
    assert (result.differences[-1].what, result.differences[-1].recorded) == ("end", "lost")
    assert to_record(episode)["stopped"] == "lost"
    assert main(["show", stored(tmp_path / "e.jsonl", episode)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert (
        "stop: lost" in out and "fail, broke" in out and "sandbox lost in turn 2, during deadly || true (lost)" in out
    )


def test_other_settings_come_with_the_episode(folder: Path) -> None:
    tasks = load_tasks(str(folder / "one.yaml"))
    replies = (bash("echo x > b"), bash("ls"))
    settings: dict[str, Any] = {"prompt_style": "compact", "max_turns": 2, "reward": "delta"}
    (episode,) = play(Says(*replies), tasks, **settings)
    assert episode.stop_reason == "max_turns"
    result = replay(episode, tasks[0], sandbox="bubblewrap")
    assert result.differences == [] and result.same_grade
    other = replay(episode, tasks[0], sandbox="bubblewrap", setting={"prompt_style": "standard"})
    assert [one.what for one in other.differences][0] == "prompt_hash"
    assert "observation" in [one.what for one in other.differences]


def test_what_is_written_has_the_settings_and_notes_of_now(folder: Path) -> None:
    (task,) = load_tasks(str(folder / "one.yaml"))
    (episode,) = play(Says(bash("echo x > b"), "TASK_COMPLETE"), [task])
    episode.notes = {"model": "m", "answers": ["old"]}
    now = replay(episode, task, sandbox="bubblewrap", setting={"max_turns": 3, "prompt_style": "compact"}).now
    assert (now.environment["max_turns"], now.environment["prompt_style"]) == (3, "compact")
    assert now.environment["prompt_hash"] != episode.environment["prompt_hash"]
    assert replay(now, task, sandbox="bubblewrap").differences == []
    assert now.notes == {"model": "m", "judge_isolation": "full"}  # this environment notes no answers
    tasks = load_tasks("gsm8k:sample")[:1]
    (asked,) = play(Says("#### 3"), tasks, env=GSM8KEnv)
    noted = dict(asked.notes)
    asked.notes["answers"] = ["old"]
    assert replay(asked, tasks[0], sandbox="bubblewrap").now.notes == noted | {
        key: value for key, value in asked.notes.items() if key not in noted and key != "answers"
    }


def test_a_reply_that_was_cut_is_cut_again() -> None:
    tasks = load_tasks("gsm8k:sample")[:1]
    (episode,) = play(Says("The answer is 12345678", "#### 3"), tasks, cap=20, env=GSM8KEnv)
    assert episode.turns[0].finish == "length"
    result = replay(episode, tasks[0], template=template_for(episode, ByteTokenizer()))
    assert result.differences == [] and result.same_grade


def test_where_the_world_differs_both_are_shown(
    recorded: Trajectory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(folder / "t.jsonl", recorded)
    assert again("replay", file, folder) == 0
    assert "same grade, every turn the same, ids compared" in capsys.readouterr().out
    recorded.turns[2].observation = recorded.turns[2].observation.replace("x", "another x")
    assert again("replay", stored(folder / "t.jsonl", recorded), folder) == 1
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for text in ("same grade, 1 of 4 turns differ", "first difference: turn 2, observation", "another x", "now"):
        assert text in out, text
    # Grades alone are the same.
    assert again("rescore", stored(folder / "t.jsonl", recorded), folder) == 0


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        ("", "tasks: {one}"),
        ("held_out", "tasks: {two}\nheld_out: {one}"),
        ("superseded/x", "tasks: [{one}, {two}]\nheld_out: split"),
    ],
)
def test_the_folder_of_a_run_says_which_tasks(
    place: str,
    settings: str,
    recorded: Trajectory,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = folder / "run"
    (run / place).mkdir(parents=True)
    one, two = (folder / f"{name}.yaml" for name in ("one", "two"))
    (run / "config.yaml").write_text(settings.format(one=one, two=two))
    file = stored(run / place / "t.jsonl", recorded)
    assert main(["rescore", file]) == 2  # no run wrote this folder
    assert "there is no task 'one' in library" in " ".join(capsys.readouterr().out.split())
    (run / "environment.json").write_text('{"images": {"x:1": ["sha256:aa"]}}')
    monkeypatch.setattr("agents.commands.image_ids", lambda tasks, sandbox: {"x:1": ["sha256:bb"]})
    assert main(["rescore", file, "--sandbox", "bubblewrap"]) == 0
    out = capsys.readouterr().out
    assert "config.yaml says)" in out
    assert "warning: the image x:1 is sha256:bb, and was sha256:aa: commands may" in out
    one.rename(folder / "moved.yaml")
    assert main(["rescore", file]) == 2
    assert "say with --tasks where they are now" in capsys.readouterr().err
    assert again("rescore", file, folder / "moved.yaml") == 0


def test_a_changed_task_is_refused_by_replay_and_graded_by_rescore(
    recorded: Trajectory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = stored(folder / "t.jsonl", recorded)
    (folder / "one.yaml").write_text(YAML.format(id="one", word="y"))
    assert again("replay", file, folder) == 2
    assert "the task has changed since (content hash" in " ".join(capsys.readouterr().out.split())
    assert again("rescore", file, folder, "--out", str(folder / "new.jsonl")) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "another grade" in out and "the task has changed since" in out
    assert "file_contains:b pass fail" in out and "rate 1.000 0.500" in out and "passed yes no" in out
    (now,) = read_jsonl(folder / "new.jsonl")
    assert (now.passed, now.rate) == (False, 0.5) and now.task_hash != recorded.task_hash
    assert now.flat() == recorded.flat()
    assert again("rescore", file, folder, "--out", str(folder / "new.jsonl")) == 2  # never overwritten
    assert "is already there" in capsys.readouterr().err


def test_what_cannot_be_played_again(recorded: Trajectory, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (load_tasks(str(folder / f"{name}.yaml"))[0] for name in ("one", "two"))
    cases = [
        (replace(recorded, stop_reason="infrastructure", error="gone"), one, r"broke off and has no grade \(gone\)"),
        (replace(recorded, stop_reason=""), one, "does not say how it ended"),
        (recorded, two, "is about the task 'one', not 'two'"),
    ]
    for episode, task, message in cases:
        with pytest.raises(ReplayError, match=message):
            replay(episode, task)
    with pytest.raises(ReplayError, match="another tokenizer or chat template"):
        replay(recorded, one, template=template_for(recorded, load_model("quickstart")[1]))
    file = stored(folder / "t.jsonl", recorded, replace(recorded, task_id="gone"))
    assert again("replay", file, folder) == 2
    out = " ".join(capsys.readouterr().out.split())
    assert "1: cannot be played again: there is no task 'gone'" in out and "0: one attempt 0 same grade" in out
    assert again("replay", file, folder, "--episode", "0") == 0
    assert again("replay", file, folder / "none") == 2
    assert again("replay", file, folder, "--episode", "0", "--model", "quickstart") == 2


def test_an_episode_that_ends_otherwise(recorded: Trajectory, folder: Path) -> None:
    (task,) = load_tasks(str(folder / "one.yaml"))
    longer = replace(recorded, turns=[recorded.turns[-1], *recorded.turns])
    ends = [one for one in replay(longer, task, sandbox="bubblewrap").differences if one.what == "end"]
    assert [(one.turn, one.now) for one in ends] == [(0, "it is over")]
    shorter = replace(recorded, turns=recorded.turns[:1])
    result = replay(shorter, task, sandbox="bubblewrap")
    assert [(one.what, one.recorded) for one in result.differences] == [("end", "submitted")]
    assert result.now.passed  # it is graded as it stands
    capped = replace(shorter, stop_reason="max_tokens")
    assert replay(capped, task, sandbox="bubblewrap").differences == []


def test_records_of_text_replay_by_their_commands(recorded: Trajectory, folder: Path) -> None:
    (task,) = load_tasks(str(folder / "one.yaml"))
    record = to_record(recorded)
    for turn in record["turns"]:
        for key in ("token_ids", "context_ids"):
            del turn[key]
    # Their parser ran one command of this; ours would refuse it.
    record["turns"][0]["agent_response"] += "\n```bash\nrm -rf .\n```"
    record["turns"][1]["agent_response"] = bash("rm b")  # a parse error there: nothing ran
    path = folder / "trajectories.jsonl"
    path.write_text(json.dumps(record) + "\n")
    assert again("rescore", str(path), folder) == 0
    assert again("replay", str(path), folder) == 0
    from agents.records import read_trajectories

    (episode,) = read_trajectories(path)
    result = replay(episode, task, sandbox="bubblewrap")
    assert result.differences == [] and result.same_grade and not result.ids_compared
    assert [turn.action for turn in result.now.turns] == ["command", "malformed", "command", "submit"]
    record["turns"][2]["observation"]["exit_code"] = 0
    record["final_grade"]["assertions"][0]["passed"] = False
    path.write_text(json.dumps(record) + "\n")
    assert again("rescore", str(path), folder) == 1
    (episode,) = read_trajectories(path)
    (difference,) = replay(episode, task, sandbox="bubblewrap").differences
    assert (difference.turn, difference.what, difference.recorded, difference.now) == (2, "exit_code", 0, 1)


def test_a_command_that_submits_too(folder: Path) -> None:
    (task,) = load_tasks(str(folder / "one.yaml"))
    (episode,) = play(Says(f"{bash('echo x > b')}\nTASK_COMPLETE"), [task])
    assert replay(episode, task, sandbox="bubblewrap").differences == []
    text = replace(episode, source="fieldnotes", environment={})
    result = replay(text, task, sandbox="bubblewrap")
    assert result.differences == [] and result.now.stop_reason == "submitted" and result.same_grade


def test_a_record_that_names_no_style_has_that_of_the_card_at_hand(tmp_path: Path) -> None:
    episode = Trajectory("one", "", 0, None, [], environment={})
    model, run = tmp_path / "model", tmp_path / "run"
    for folder, style in ((model, "base"), (run, "compact")):
        folder.mkdir()
        write_card(folder, ModelCard(style))
    args = argparse.Namespace(model=str(model), file=str(run / "trajectories" / "a.jsonl"))
    assert _unsaid_style(args, episode) == "base"
    args.model = None
    assert _unsaid_style(args, episode) == "compact"
    args.file = str(tmp_path / "a.jsonl")
    assert _unsaid_style(args, episode) is None
    episode.environment["prompt_style"] = "standard"
    args.model = str(model)
    assert _unsaid_style(args, episode) is None  # as the record says
