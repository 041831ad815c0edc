from __future__ import annotations

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import FinishReason, Sampling
from agents.rollout import RolloutEngine
from agents.rollout.episode import Job
from agents.seeds import Duplicates, find_duplicates
from agents.trajectory import Trajectory, Turn
from tests.agents.fakes import FakeEnv, task
from tests.agents.toys import model, tokenizer


def episode(
    attempt: int, *replies: list[int], logprob: float | None = -1.0, task_id: str = "a", reward: float | None = 1.0
) -> Trajectory:
    turns = [
        Turn(
            index=index,
            context_ids=[],
            ids=ids,
            logprobs=None if logprob is None else [logprob] * len(ids),
            entropies=None,
            forced=[False] * len(ids),
            finish=FinishReason.STOP,
            reply="",
        )
        for index, ids in enumerate(replies)
    ]
    return Trajectory(task_id, "hash", attempt, 0, [1], turns, reward=reward)


def test_only_attempts_at_the_same_task_are_compared() -> None:
    found = find_duplicates([episode(0, [5]), episode(0, [5], task_id="b"), episode(0, [5], task_id="c")])
    assert found == Duplicates() and found.share == found.impossible_share == 0.0 and found.message() is None


def test_all_ids_of_all_turns_must_be_equal() -> None:
    group = [episode(0, [1, 2], [3]), episode(1, [1], [2, 3]), episode(2, [1, 2], [4]), episode(3, [1, 2], [3])]
    found = find_duplicates(group)
    assert (found.episodes, found.equal, found.impossible) == (4, 2, 0)
    assert found.share == 0.5


def test_chance_decides_between_a_sure_policy_and_shared_random_numbers() -> None:
    reply = list(range(20))
    sure = find_duplicates([episode(0, reply, logprob=-0.1), episode(1, reply, logprob=-0.1)])  # chance e**-2
    assert (sure.equal, sure.impossible) == (2, 0)
    assert "sure of itself" in str(sure.message())
    shared = find_duplicates([episode(0, reply), episode(1, reply), episode(2, [7])])  # chance e**-20
    assert (shared.episodes, shared.equal, shared.impossible) == (3, 2, 2)
    assert "share their random numbers" in str(shared.message())
    assert shared.impossible_share == pytest.approx(2 / 3)


def test_forced_ids_are_no_evidence() -> None:
    pair = [episode(k, list(range(20))) for k in range(2)]
    for trajectory in pair:
        trajectory.turns[0].forced = [True] * 20
    assert find_duplicates(pair).impossible == 0


def test_without_logprobs_nobody_can_tell() -> None:
    found = find_duplicates([episode(0, [1] * 20, logprob=None), episode(1, [1] * 20, logprob=None)])
    assert (found.equal, found.impossible, found.unknown) == (2, 0, 2)
    assert "nobody can tell" in str(found.message())


def test_episodes_without_a_reward_are_left_out() -> None:
    assert find_duplicates([episode(0, [1]), episode(1, [1], reward=None)]) == Duplicates()


def test_a_rollout_tells_attempts_with_one_seed_from_attempts_of_their_own() -> None:
    def run(attempts: list[int], temperature: float = 1.0) -> Duplicates | None:
        jobs = [Job(task(), attempt, 11) for attempt in attempts]
        policy = TransformersPolicy(model("gqa"), tokenizer())
        with RolloutEngine(policy, FakeEnv, slots=4, workers=1) as engine:
            return engine.run(jobs, Sampling(temperature, 16)).duplicates

    assert run([0, 1, 2, 3]) == Duplicates(episodes=4)
    assert run([0, 0, 1, 1]) == Duplicates(episodes=4, equal=4, impossible=4)
    assert run([0, 1], temperature=0.0) is None


def test_a_scripted_policy_raises_no_alarm() -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=1) as engine:
        found = engine.run([Job(task(), attempt, 0) for attempt in range(2)], Sampling(1.0, 200)).duplicates
    assert found == Duplicates(episodes=2, equal=2)
