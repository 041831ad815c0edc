"""The engine plays what `gymnasium.make` returns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import wrappers

import envs  # noqa: F401  (registers)
from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Policy, Request, Sampling
from agents.replay import replay
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory
from envs.clawgym import ClawGymEnv
from tasks.task import Task
from tests.agents.rollout.test_engine import content
from tests.envs.conftest import sandboxes  # noqa: F401  (a fixture)
from tests.envs.fakes import task, tasks
from tests.envs.questions import question

pytestmark = pytest.mark.usefixtures("sandboxes")
Env = gym.Env[Any, Any]


class Looks(OraclePolicy):
    """Does what the oracle does, and then looks around for ever."""

    def text(self, task: Task, turn: int, request: Request) -> str:
        text = super().text(task, turn, request)
        return "```bash\nls\n```" if "TASK_COMPLETE" in text else text


def play(
    make: Callable[[], Env],
    items: list[Task],
    policy: Policy | None = None,
    max_context: int | None = None,
    **more: Any,
) -> list[Trajectory]:
    jobs = [Job(item, attempt, 5) for item in items for attempt in range(2)]
    with RolloutEngine(policy or OraclePolicy(), make, slots=3, workers=2, max_context=max_context, **more) as engine:
        return engine.run(jobs, Sampling(0.0, 200)).trajectories


def made(**settings: Any) -> Env:
    return gym.make("ClawGym-v0", tasks=tasks(3), **settings)


@pytest.mark.parametrize("more", [{}, {"ahead": 2}], ids=["", "ahead"])
def test_what_make_returns_plays_as_the_environment_inside(more: dict[str, Any]) -> None:
    plain = play(lambda: ClawGymEnv(tasks(3)), tasks(3), **more)
    assert all(episode.passed and episode.stop_reason == "submitted" for episode in plain)
    assert content(play(made, tasks(3), **more)) == content(plain)
    assert content(play(lambda: wrappers.RecordEpisodeStatistics(made()), tasks(3), **more)) == content(plain)


def test_a_time_limit_is_the_turn_budget_and_replays_to_the_same_grade() -> None:
    asked = play(partial(made, max_turns=2), tasks(2), Looks())
    cut = play(partial(made, max_episode_steps=2), tasks(2), Looks())
    assert content(cut) == content(asked)
    for episode in cut:
        assert (episode.stop_reason, len(episode.turns), episode.passed) == ("max_turns", 2, True)
        assert episode.reward == pytest.approx(0.8) and episode.environment["max_turns"] == 2
        again = replay(episode, next(item for item in tasks(2) if item.id == episode.task_id))
        assert again.same_grade and not again.differences
        assert (again.now.stop_reason, again.now.reward) == ("max_turns", episode.reward)


def test_a_reward_wrapper_pays_what_is_trained_and_the_record_says_so() -> None:
    plain = play(made, tasks(2))
    paid = play(lambda: wrappers.TransformReward(made(), lambda reward: 3 * float(reward)), tasks(2))
    for own, theirs in zip(plain, paid, strict=True):
        assert own.reward is not None and theirs.reward == pytest.approx(3 * own.reward)
        assert theirs.assertions == own.assertions and theirs.passed
        extra = {"own_reward": True, "wrappers": ["TransformReward"]}
        assert theirs.environment == own.environment | extra  # the same prompt hash
        again = replay(theirs, next(item for item in tasks(2) if item.id == theirs.task_id))
        assert again.same_grade and not again.differences


def test_a_budget_of_tokens_pays_through_the_wrappers() -> None:
    ends = [
        play(make, [task()], Looks(), max_context=900)
        for make in (made, lambda: wrappers.TransformReward(made(), lambda reward: float(reward) + 7))
    ]
    for own, theirs in zip(*ends, strict=True):
        assert own.stop_reason == theirs.stop_reason == "max_tokens" and len(own.turns) == len(theirs.turns) < 4
        assert theirs.reward == pytest.approx((own.reward or 0) + 7 * (len(own.turns) + 1)) and theirs.passed


def test_another_observation_is_what_the_policy_is_shown() -> None:
    seen: list[str] = []

    class Watching(OraclePolicy):
        def complete(self, requests: list[Request], sampling: Sampling) -> list[Completion]:  # type: ignore[override]
            seen.extend(self.tokenizer.decode(request.prompt_ids) for request in requests)
            return super().complete(requests, sampling)

    def loud() -> Env:
        return wrappers.TransformObservation(env := made(), str.upper, env.observation_space)

    plain, other = play(made, [task()]), play(loud, [task()], Watching())
    assert any("WRITE HELLO INTO" in text for text in seen)
    for own, theirs in zip(plain, other, strict=True):
        assert theirs.turns[0].observation == (own.turns[0].observation or "").upper()
        assert theirs.environment["wrappers"] == ["TransformObservation"] and "own_reward" not in theirs.environment
        assert theirs.environment["prompt_hash"] != own.environment["prompt_hash"]


@pytest.mark.parametrize("name", ["Mixed-v0", "GSM8K-v0"])
def test_other_environments_are_cut_and_graded_too(name: str) -> None:
    class Silent(OraclePolicy):
        def text(self, task: Task, turn: int, request: Request) -> str:
            return "```bash\nls\n```"

    items = [question()] + ([task()] if name == "Mixed-v0" else [])
    make = lambda: gym.make(name, tasks=items, max_episode_steps=2, reward="binary")  # noqa: E731
    for episode in play(make, items, Silent()):
        assert (episode.stop_reason, len(episode.turns), episode.reward) == ("max_turns", 2, 0.0)
        assert episode.passed is False and episode.assertions and episode.environment["max_turns"] == 2


class Patience(gym.Wrapper[str, str, str, str]):
    """Cuts an episode after its first command that fails or shows nothing new."""

    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated or info["turn"] == 1, info


def test_an_episode_that_a_users_wrapper_cuts_is_graded() -> None:
    for episode in play(lambda: Patience(made()), tasks(1)):
        assert (episode.stop_reason, len(episode.turns), episode.passed) == ("max_turns", 1, True)
        assert episode.reward == pytest.approx(1 - 0.2 / 4) and episode.turns[0].exit_code == 0
        assert episode.environment["wrappers"] == ["Patience"] and episode.environment["own_reward"]


def test_what_cannot_be_played_is_refused_when_the_engine_is_made() -> None:
    for wrap in (wrappers.Autoreset, lambda env: wrappers.TransformAction(env, str, env.action_space)):
        with pytest.raises(ValueError, match="cannot be around ClawGymEnv: it "):
            RolloutEngine(OraclePolicy(), lambda wrap=wrap: wrap(made()), slots=1, workers=1)
    with pytest.raises(ValueError, match="holds several environments"):
        RolloutEngine(OraclePolicy(), lambda: gym.make_vec("ClawGym-v0", tasks=tasks(1)), slots=1, workers=1)  # type: ignore[arg-type,return-value]


def test_the_engine_makes_no_more_environments_than_it_plays() -> None:
    count = 0

    def counted() -> Env:
        nonlocal count
        count += 1
        return made()

    play(counted, tasks(3))
    assert count == 3
