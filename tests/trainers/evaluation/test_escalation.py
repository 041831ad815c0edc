"""`trainers.evaluate --escalate`: how often, what passes without and with it, and the tokens of each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.escalate import GIVEN
from agents.policies.opening import POLICIES, _own_way
from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Request
from agents.trajectory import read_jsonl
from envs.actions import fenced
from sandboxes import SandboxUnavailable, open_sandbox
from tasks.task import Task
from tests.agents.test_escalate import episode
from trainers.evaluate import main
from trainers.evaluation.escalation import costs, merged, unlike


class Half(OraclePolicy):
    """Solves every other task, moving as it goes; at the others it says `ls` and stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.solved: dict[str, bool] = {}

    def begin(self, conversation: str, task: Task) -> None:
        super().begin(conversation, task)
        self.solved.setdefault(task.id, len(self.solved) % 2 == 0)

    def text(self, task: Task, turn: int, request: Request) -> str:
        return super().text(task, turn, request) if self.solved[task.id] else fenced("ls")

    def _reply(self, request: Request, task: Task, turn: int, cap: int) -> Completion:
        reply = super()._reply(request, task, turn, cap)
        reply.entropies = [turn % 2 + 0.1 if self.solved[task.id] else 0.5] * len(reply.ids)
        return reply


def run(folder: Path, *more: str) -> int:
    argv = ["--model", "half", "--tasks", "generated:quickstart?n=6&seed=11", "--max_turns", "8"]
    return main([*argv, "--output_dir", str(folder), *more])


def test_stuck_episodes_are_taken_over_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    monkeypatch.setitem(POLICIES, "half", _own_way("half", lambda rest: Half()))
    folder, escalate = tmp_path / "e", ["--escalate", "oracle", "--escalate_turns", "2", "--escalate_eta", "0.2"]
    assert run(folder, *escalate) == 0
    out = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "escalated to oracle: 3 of 6 episodes (50.0 %)" in out
    assert "without 3/6 = 50.0 %" in out and "with 6/6 = 100.0 %" in out and "paired p 0.25" in out
    record = json.loads((folder / "evaluation.json").read_text())
    assert {name: arm["passed"] for name, arm in record["arms"].items()} == {"sampled": 3, "sampled_escalated": 6}
    found = record["escalation"]["sampled_escalated"]
    assert (found["escalated"], found["rate"], found["passed"]) == (3, 0.5, {"without": 3, "with": 6})
    assert [one["turn"] for one in found["stuck"]] == [2, 2, 2] and found["unlike"] == 0
    episodes = list(read_jsonl(folder / "episodes_sampled_escalated.jsonl"))
    assert sorted(sum(GIVEN in turn.notes for turn in one.turns) for one in episodes) == [0, 0, 0, 3, 3, 3]
    assert run(folder, *escalate, "--resume") == 0
    assert "6 of 6 episodes have a grade already, 0 to play" in capsys.readouterr().out
    again = json.loads((folder / "evaluation.json").read_text())
    assert (again["arms"], again["escalation"]) == (record["arms"], record["escalation"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--escalate_turns", "2"], "do nothing without --escalate"),
        (["--escalate", "oracle", "--escalate_eta", "0"], "--escalate_eta is 0.0: a number of nats above 0"),
        (["--escalate", "oracle", "--escalate_turns", "0"], "--escalate_turns is 0: at least 1"),
        (["--escalate", "oracle", "--model", "openai:m@http://h/v1"], "reads how unsure each token was"),
        (["--escalate", "noop", "--timeout", "9"], "--timeout does nothing with --model oracle"),
        (["--escalate", "openai:m@http://h/v1", "--timeout", "9", "--tasks", ""], "--tasks: is empty"),
    ],
)
def test_what_cannot_be_escalated_is_refused(
    flags: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", "oracle", *flags, "--output_dir", str(tmp_path / "e")]) == 2
    assert said in capsys.readouterr().err


def test_tokens_are_those_that_each_model_took() -> None:
    first = [episode(0.5, 0.5, 0.5), episode(0.5, 0.9, attempt=1)]
    second = [episode(0.5, 0.5)]
    second[0].turns[0].notes[GIVEN] = 1.0
    alone, kept, other = costs(first, second, {("t", 0): 0}, own_ids=(True, True))
    assert alone is not None and kept is not None and other is not None
    assert (alone.replies, alone.completion, kept.replies, kept.completion) == (5, 10, 3, 6)
    assert (other.replies, other.completion, other.prompt) == (1, 2, 3), "the whole prompt of the reply that it gave"
    assert costs(first, second, {("t", 0): 0}, own_ids=(False, False)) == (None, None, None)
    assert merged(first, second) == [second[0], first[1]]
    assert unlike(first, second) == 0
    second[0].turns[0].observation = "another"
    assert unlike(first, second) == 1
