from __future__ import annotations

from pathlib import Path

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import Candidate, FinishReason, Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, Turn, groups, read_jsonl, write_jsonl
from tests.agents.fakes import FakeEnv, task


def turn(index: int, context: list[int], ids: list[int], forced: list[bool]) -> Turn:
    return Turn(index, context, ids, [-0.1 * i for i in ids], [0.5] * len(ids), forced, FinishReason.STOP, "text")


def test_flat_masks_what_was_not_sampled() -> None:
    trajectory = Trajectory("a", "h", 0, 0, [1, 2])
    trajectory.turns = [turn(0, [], [3, 4, 5], [False, True, False]), turn(1, [6, 7], [8], [False])]
    flat = trajectory.flat()
    assert flat.ids == [3, 4, 5, 6, 7, 8]
    assert flat.mask == [1, 0, 1, 0, 0, 1]
    assert flat.turn_ids == [0, -1, 0, -1, -1, 1]
    assert flat.logprobs == pytest.approx([-0.3, 0, -0.5, 0, 0, -0.8])
    assert flat.entropies == [0.5, 0.0, 0.5, 0.0, 0.0, 0.5]


def test_jsonl_gives_the_same_trajectory_back(tmp_path: Path) -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=2) as engine:
        played = engine.run([Job(task(), i, i) for i in range(3)], Sampling(0.0, 100)).trajectories
    played[0].turns[0].candidates = [Candidate((1, 2), None), Candidate((3,), 0.5)]
    played[1].error = "naïve \ud83d\ude00 \u2028 text".encode("utf-16", "surrogatepass").decode("utf-16")
    path = tmp_path / "t.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        write_jsonl(played, file)
    assert list(read_jsonl(path)) == played
    assert list(groups(played)) == ["first"]


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('\n{"task_id": 1}\n')
    with pytest.raises(ValueError, match=r"t\.jsonl:2: not a trajectory"):
        list(read_jsonl(path))
