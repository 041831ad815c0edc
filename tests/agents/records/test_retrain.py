from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.records import read_trajectories
from agents.trajectory import RecordError

PLAIN: dict[str, Any] = {
    "step": 3,
    "prompt": "What is 1 + 1?",
    "completion": "It is 2.",
    "reward": 1.0,
    "num_tokens": 5,
}
TEXTPOLICY: dict[str, Any] = {
    **PLAIN,
    "tokens": [5, 6],
    "logprobs": [-0.1, -0.2],
    "entropy_per_token": [0.3, 0.4],
    "planning_token_ratio": 0.0,
    "metadata": {"correctness": True},
}


def stored(path: Path, *records: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def test_replies_become_episodes_of_one_turn(tmp_path: Path) -> None:
    path = stored(tmp_path / "generations.jsonl", PLAIN, PLAIN, {**PLAIN, "step": 4}, {**PLAIN, "prompt": "other"})
    episodes = list(read_trajectories(path))
    assert [one.attempt for one in episodes] == [0, 1, 0, 0]
    assert episodes[0].task_id == episodes[1].task_id != episodes[3].task_id
    first = episodes[0]
    assert first.task_id.startswith("retrain:") and first.source == "retrain"
    assert (first.reward, first.passed, first.rate, first.stop_reason, first.seed) == (1.0, None, None, "", None)
    assert first.notes == {"step": 3, "prompt": "What is 1 + 1?"}
    (turn,) = first.turns
    assert (turn.reply, turn.ids, turn.finish, turn.notes) == ("It is 2.", [], None, {"num_tokens": 5.0})
    with pytest.raises(ValueError, match="text without ids"):
        first.flat()


def test_textpolicy_has_ids_of_the_reply_alone(tmp_path: Path) -> None:
    (episode,) = read_trajectories(stored(tmp_path / "generations.jsonl", TEXTPOLICY))
    (turn,) = episode.turns
    assert (turn.ids, turn.logprobs, turn.entropies) == ([5, 6], [-0.1, -0.2], [0.3, 0.4])
    assert episode.notes["metadata"] == {"correctness": True} and episode.notes["planning_token_ratio"] == 0.0
    with pytest.raises(ValueError, match="the ids before its first reply are unknown"):
        episode.flat()


def test_a_text_that_may_be_cut_is_noted(tmp_path: Path) -> None:
    (episode,) = read_trajectories(stored(tmp_path / "generations.jsonl", {**PLAIN, "completion": "x" * 500}))
    assert episode.turns[0].notes["text_cut"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"logprobs": [-0.1]}, "logprobs: has 1 entries for 2 tokens"), ({"step": "x"}, "step: input should be")],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=rf"generations\.jsonl:1: .*{message}"):
        list(read_trajectories(stored(tmp_path / "generations.jsonl", {**TEXTPOLICY, **changes})))
