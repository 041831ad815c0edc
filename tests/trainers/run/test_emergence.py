"""The logs of retrain and textpolicy that a run writes: keys of both, and what the step's tokens show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.trajectory import Trajectory, Turn
from tests.trainers.toy import make_trainer
from trainers.credit.settings import CreditSettings
from trainers.emergence import read_run
from trainers.run.emergence import EmergenceLog
from trainers.run.record import RunRecord

WORDS = ("<none>", "cat", " let", " me", " check", " the", " file")


class Words:
    """A tokenizer of whole words."""

    def decode(self, ids: list[int]) -> str:
        return "".join(WORDS[number] for number in ids)


def turn(index: int, ids: list[int], logprobs: list[float] | None, forced: list[bool] | None = None) -> Turn:
    reply = Words().decode(ids)
    return Turn(index, [], ids, logprobs, None, forced or [False] * len(ids), "stop", reply)


def episode(attempt: int, turns: list[Turn], reward: float | None = 1.0) -> Trajectory:
    if reward is None:
        return Trajectory("task", "h", attempt, 0, [1], turns, "infrastructure")
    return Trajectory("task", "h", attempt, 0, [1], turns, "submitted", reward, reward == 1.0, reward)


THINKS = [turn(0, [2, 3, 4, 5, 6], [-0.5, -3.0, -0.25, -2.0, -3.0]), turn(1, [1], [-4.0])]
FORCED = [turn(0, [1, 6], [-9.0, -1.0], [True, False])]


def written(folder: Path, episodes: list[Trajectory], **settings: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    EmergenceLog(folder, Words(), CreditSettings(planning_window=3, **settings)).write(3, episodes)
    steps, generations = (
        [json.loads(line) for line in (folder / f"emergence/{name}.jsonl").read_text().splitlines()]
        for name in ("steps", "generations")
    )
    return steps[-1], generations


def test_the_most_surprising_tokens_are_decoded_in_order(tmp_path: Path) -> None:
    step, generations = written(tmp_path, [episode(0, THINKS), episode(1, FORCED, 0.0), episode(2, THINKS, None)])
    assert [line["sample_index"] for line in generations] == [0, 1], "without a grade there is no line"
    assert generations[0]["top_surprisal_tokens"] == [
        {"pos": 5, "surprisal": 4.0, "token": "cat"},
        {"pos": 1, "surprisal": 3.0, "token": " me"},
        {"pos": 4, "surprisal": 3.0, "token": " file"},
        {"pos": 3, "surprisal": 2.0, "token": " the"},
        {"pos": 0, "surprisal": 0.5, "token": " let"},
        {"pos": 2, "surprisal": 0.25, "token": " check"},
    ]
    assert generations[1]["top_surprisal_tokens"] == [{"pos": 1, "surprisal": 1.0, "token": " file"}], "none forced"
    top = [(e["token"], e["surprisal"], e["task_id"], e["sample_index"]) for e in step["top_surprisal_tokens"]]
    assert top[0] == ("cat", 4.0, "task", 0) and (" file", 1.0, "task", 1) in top and len(top) == 7
    for line in generations:
        for entry in line["top_surprisal_tokens"]:
            assert WORDS[line["tokens"][entry["pos"]]] == entry["token"]


def test_planning_tokens_and_the_surprisal_on_both_sides(tmp_path: Path) -> None:
    step, generations = written(tmp_path, [episode(0, THINKS), episode(1, FORCED, 0.0)])
    assert generations[0]["planning_phrases_found"] == ["let me check"] and not generations[1]["planning_phrases_found"]
    assert generations[0]["planning_token_ratio"] == 3 / 6 and generations[1]["planning_token_ratio"] == 0.0
    assert step["planning_token_ratio"] == pytest.approx(3 / 7)
    planned, executed = (0.5, 3.0, 0.25), (2.0, 3.0, 4.0, 1.0)
    assert step["plan_surprisal_mean"] == pytest.approx(sum(planned) / 3)
    assert step["exec_surprisal_mean"] == pytest.approx(2.5)
    assert step["exec_surprisal_var"] == pytest.approx(sum((v - 2.5) ** 2 for v in executed) / 4)


def test_what_is_not_known_is_not_zero(tmp_path: Path) -> None:
    silent = episode(0, [turn(0, [5, 6], None)])
    step, (line,) = written(tmp_path, [silent])
    assert line["top_surprisal_tokens"] == [] and line["logprobs"] is None
    assert step["exec_surprisal_mean"] is None and step["planning_token_ratio"] == 0.0
    empty, _ = written(tmp_path, [episode(0, THINKS, None)])
    assert empty["planning_token_ratio"] is None and empty["mean_reward"] is None


@pytest.mark.parametrize(
    ("settings", "condition", "kind"),
    [
        ({}, "grpo+none~turn_grouping=anchor", "surprisal"),
        (
            {"episode_operator": "maxrl", "token_operators": "sepa,gtpo", "token_signal": "entropy"},
            "maxrl+sepa_gtpo~turn_grouping=anchor",
            "shannon_entropy",
        ),
    ],
)
def test_a_line_says_which_condition_it_is_of(settings: Any, condition: str, kind: str, tmp_path: Path) -> None:
    step, _ = written(tmp_path, [episode(0, THINKS)], **settings)
    assert (step["condition"], step["uncertainty_kind"]) == (condition, kind)


def test_a_resumed_run_cuts_what_lies_beyond_its_checkpoint(tmp_path: Path) -> None:
    record = RunRecord(tmp_path / "run")
    log = EmergenceLog(record.path, Words(), CreditSettings())
    for step in (1, 2, 3):
        log.write(step, [episode(0, THINKS), episode(1, FORCED, 0.0)])
    record.resume_at(1)
    left = read_run(record.path / "emergence")
    assert len(left.steps) == 1 and left.rewards == (1.0, 0.0)
    aside = record.path / "superseded/emergence/generations.jsonl"
    assert [json.loads(line)["step"] for line in aside.read_text().splitlines()] == [2, 2, 3, 3]
    record.close()


@pytest.mark.filterwarnings("ignore")
def test_a_trainer_writes_all_of_its_episodes(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, max_steps=2)
    trainer.on_episodes = EmergenceLog(tmp_path, trainer.processing_class, trainer.args).on_episodes
    trainer.train()
    trainer.close()
    lines = [json.loads(line) for line in (tmp_path / "emergence/generations.jsonl").read_text().splitlines()]
    played = [one for step in trainer.played for one in step]
    assert [line["step"] for line in lines] == [1] * 8 + [2] * 8
    for line, one in zip(lines, played, strict=True):
        (most, *_) = line["top_surprisal_tokens"]
        assert most["surprisal"] == pytest.approx(-min(v for t in one.turns for v in t.logprobs or ()), abs=1e-4)
        assert line["reward"] == one.reward and len(line["top_surprisal_tokens"]) == 10
    assert len(read_run(tmp_path / "emergence").steps) == 2
