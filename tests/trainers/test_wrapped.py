"""A trainer takes what `gymnasium.make` returns: wrappers of rewards and of time are trained with, others refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import pytest
from gymnasium import wrappers

import envs  # noqa: F401  (registers)
from agents.trajectory import OWN_REWARD, WRAPPERS
from envs.questions import GSM8KEnv
from tests.envs.questions import questions
from tests.trainers.toy import NotingTrainer, make_config, make_model, make_tokenizer
from trainers.errors import ConfigError
from trainers.guards import Watch
from trainers.guards.signal import expected
from trainers.run.callback import GuardCallback

pytestmark = pytest.mark.filterwarnings("ignore")
Env = gym.Env[Any, Any]


class EvenBytes(gym.Wrapper[str, str, str, str]):
    """Adds what a reply earns: its share of even bytes."""

    def step(self, action: str) -> Any:
        observation, reward, *rest = self.env.step(action)
        raw = action.encode()
        return (observation, float(reward) + sum(byte % 2 == 0 for byte in raw) / max(1, len(raw)), *rest)


def made() -> Env:
    return gym.make("GSM8K-v0", tasks=questions(4), max_episode_steps=2)


def trainer(tmp_path: Any, make_env: Callable[[], Env], **changes: Any) -> NotingTrainer:
    tokenizer = make_tokenizer()
    return NotingTrainer(
        make_model(tokenizer),
        make_config(tmp_path, max_steps=1, **changes),
        tokenizer,
        questions(4),
        make_env,
        slots=8,
        workers=2,
        max_turn_tokens=12,
        callbacks=[GuardCallback(Watch("reward_against_grade=stop"))],
    )


def test_a_run_with_a_time_limit_is_that_with_the_turn_budget(tmp_path: Any) -> None:
    cut = trainer(tmp_path / "cut", made)
    cut.train()
    asked = trainer(tmp_path / "asked", lambda: GSM8KEnv(questions(4), max_turns=2))
    asked.train()
    assert cut.own_card() == asked.own_card() and cut.own_card().max_turns == 2
    episodes, others = cut.played[0], asked.played[0]
    assert [[turn.ids for turn in e.turns] for e in episodes] == [[turn.ids for turn in e.turns] for e in others]
    for episode in episodes:
        assert episode.stop_reason in ("max_turns", "submitted") and episode.assertions
        want = expected(episode)
        assert want is not None and want.holds(episode.reward)
    assert sum(episode.stop_reason == "max_turns" for episode in episodes) > 4
    for played in (cut, asked):
        played.close()
    assert cut.logged[0]["reward"] == asked.logged[0]["reward"]


def test_a_users_reward_is_what_is_trained(tmp_path: Any) -> None:
    run = trainer(tmp_path, lambda: wrappers.TransformReward(EvenBytes(made()), lambda reward: 10 * float(reward)))
    run.train()  # the guard, which stops, knows that the reward is the user's own
    rewards = [episode.reward for episode in run.played[0]]
    assert len(set(rewards)) > 4
    for episode in run.played[0]:
        replies = [turn.reply.encode() for turn in episode.turns]
        even = sum(sum(byte % 2 == 0 for byte in raw) / max(1, len(raw)) for raw in replies)
        grade = (episode.rate or 0.0) - 0.2 * len(episode.turns) / 2
        assert episode.reward == pytest.approx(10 * (even + grade))
        assert episode.environment[OWN_REWARD] and episode.environment[WRAPPERS] == ["TransformReward", "EvenBytes"]
        assert expected(episode) is None
    (batch,) = run.batches
    assert batch["advantages"].abs().sum() > 0
    assert run.logged[0]["reward"] == pytest.approx(sum(rewards) / len(rewards), rel=1e-4)
    run.close()


@pytest.mark.parametrize(
    ("make_env", "starts"),
    [
        (lambda: wrappers.Autoreset(made()), "make_env: Autoreset cannot be around GSM8KEnv: it resets"),
        (lambda: wrappers.NormalizeReward(made()), "make_env: NormalizeReward cannot be around GSM8KEnv"),
        (lambda: gym.make_vec("GSM8K-v0", tasks=questions(1)), "make_env: ConversationVectorEnv holds several"),
        (lambda: gym.make("CartPole-v1"), "make_env: <TimeLimit<"),
    ],
)
def test_what_cannot_be_trained_on_is_refused_in_one_line(tmp_path: Any, make_env: Any, starts: str) -> None:
    with pytest.raises(ConfigError) as refused:
        trainer(tmp_path, make_env)
    assert str(refused.value).startswith(starts) and "\n" not in str(refused.value)
