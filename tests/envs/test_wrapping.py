"""Gymnasium's wrappers around a conversation: time limits that are graded, what composes, what is refused."""

from __future__ import annotations

from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import wrappers
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  (registers)
from envs.clawgym import ClawGymEnv
from envs.conversation import ConversationEnv
from envs.vector import ConversationVectorEnv
from envs.wrapping import WrappedConversation, as_conversation
from sandboxes.sandbox import SandboxError
from tests.envs.fakes import FakeSandboxes, bash, task, tasks
from tests.envs.questions import question, questions

LOOK = bash("ls")
HELLO = bash("echo hello > greeting.txt")


def inside(env: gym.Env[Any, Any]) -> ConversationEnv:
    return cast(ConversationEnv, env.unwrapped)


# -- a time limit -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["make", "by hand", "under others", "around others"])
def test_a_time_limit_ends_an_episode_with_its_grade(sandboxes: FakeSandboxes, how: str) -> None:
    settings: dict[str, Any] = {"tasks": [task()], "prompt_style": "standard"}
    env: gym.Env[Any, Any]
    match how:
        case "make":
            env = gym.make("ClawGym-v0", max_episode_steps=2, **settings)
        case "by hand":
            env = wrappers.TimeLimit(ClawGymEnv(**settings), 2)
        case "under others":
            env = wrappers.RecordEpisodeStatistics(gym.make("ClawGym-v0", max_episode_steps=2, **settings))
        case _:
            env = wrappers.TimeLimit(wrappers.TransformReward(ClawGymEnv(**settings), float), 2)
    asked = gym.make("ClawGym-v0", max_turns=2, **settings)
    for _ in range(2):  # the limit holds in every episode
        shown, info = env.reset(seed=0)
        assert (shown, info["turn"]) == (asked.reset(seed=0)[0], 0)
        assert inside(env).max_turns == 2 and "You have 2 turns" in inside(env).system_prompt
        assert inside(env).system_prompt == inside(asked).system_prompt
        assert env.step(HELLO)[1:4] == (0.0, False, False) == asked.step(HELLO)[1:4]
        observation, reward, terminated, truncated, info = env.step(LOOK)
        assert (observation, reward, terminated, truncated) == asked.step(LOOK)[:4]
        assert reward == pytest.approx(0.8) and truncated and not terminated
        assert info["stop_reason"] == "max_turns" and info["passed"] and len(info["assertions"]) == 4
        with pytest.raises(gym.error.ResetNeeded):
            inside(env).step(LOOK)
    env.close()
    asked.close()


def test_a_limit_above_the_budget_leaves_the_budget(sandboxes: FakeSandboxes) -> None:
    env = gym.make("ClawGym-v0", tasks=[task()], max_episode_steps=9)
    env.reset(seed=0)
    assert inside(env).max_turns == 4
    assert [env.step(LOOK)[3] for _ in range(4)] == [False, False, False, True]
    env.close()


def test_a_limit_is_gone_with_its_wrapper(sandboxes: FakeSandboxes) -> None:
    env = gym.make("ClawGym-v0", tasks=[task()], max_episode_steps=2)
    env.reset(seed=0)
    assert inside(env).max_turns == 2
    inside(env).reset(seed=0)
    assert inside(env).max_turns == 4
    env.close()


def test_a_limit_is_of_the_environment_that_it_is_around(sandboxes: FakeSandboxes) -> None:
    """An environment that another one resets in its own `reset` is not cut by the other one's limit."""

    class Outer(gym.Env[str, str]):
        observation_space = action_space = ClawGymEnv([task()]).observation_space

        def __init__(self) -> None:
            self.other = ClawGymEnv([task()])

        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
            return self.other.reset(seed=seed)

    outer = Outer()
    wrappers.TimeLimit(outer, 1).reset(seed=0)
    assert outer.other.max_turns == 4
    outer.other.close()


@pytest.mark.parametrize("item", [task(), question()], ids=["shell", "question"])
def test_a_mixed_environment_hands_the_limit_to_who_plays(sandboxes: FakeSandboxes, item: Any) -> None:
    env = gym.make("Mixed-v0", tasks=[item], max_episode_steps=2)
    env.reset(seed=0)
    assert inside(env).max_turns == 2 and "2 turns" in inside(env).system_prompt
    assert env.step(LOOK)[2:4] == (False, False)
    *_, truncated, info = env.step(LOOK)
    assert truncated and info["stop_reason"] == "max_turns" and "passed" in info and info["turn"] == 2
    env.close()


def test_questions_end_at_a_limit_too(sandboxes: FakeSandboxes) -> None:
    env = gym.make("GSM8K-v0", tasks=[question()], max_episode_steps=1, reward="binary")
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("")
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["stop_reason"] == "max_turns" and info["passed"] is False
    env.reset(seed=0)
    _, reward, terminated, _, info = env.step("#### 72")  # an answer on the last turn is an answer
    assert (reward, terminated, info["stop_reason"]) == (1.0, True, "submitted")
    env.close()


@pytest.mark.parametrize("mode", [None, "sync", "async"])
@pytest.mark.parametrize("name", ["ClawGym-v0", "GSM8K-v0", "Mixed-v0"])
def test_vector_environments_take_the_limit(sandboxes: FakeSandboxes, name: str, mode: Any) -> None:
    items = questions(3) if name == "GSM8K-v0" else tasks(3)
    env = gym.make_vec(name, num_envs=2, vectorization_mode=mode, tasks=items, max_episode_steps=2)
    env.reset(seed=0)
    for _ in range(2):  # the second time after autoreset
        assert not env.step([LOOK, LOOK])[3].any()
        _, rewards, terminated, truncated, infos = env.step([LOOK, LOOK])
        assert truncated.all() and not terminated.any()
        assert list(infos["stop_reason"]) == ["max_turns"] * 2 and not infos["passed"].any()
        assert rewards == pytest.approx([0.5 - 0.2] * 2 if name != "GSM8K-v0" else [-0.2] * 2)
        env.step([LOOK, LOOK])
    env.close()


@pytest.mark.parametrize(("limit", "refused"), [(0, True), (1.5, True), (-1, False), (None, False)])
def test_a_vector_environments_limit_is_a_number_of_turns(limit: Any, refused: bool) -> None:
    if refused:
        with pytest.raises(ValueError, match=r"max_episode_steps is .*at least one turn"):
            gym.make_vec("ClawGym-v0", tasks=[task()], max_episode_steps=limit)
        return
    gym.make_vec("ClawGym-v0", tasks=[task()], max_episode_steps=limit).close()


def test_slots_may_be_wrapped(sandboxes: FakeSandboxes) -> None:
    one = lambda: wrappers.TransformReward(  # noqa: E731
        gym.make("ClawGym-v0", tasks=[task()], max_episode_steps=1), lambda reward: 10 * reward
    )
    env = ConversationVectorEnv([one, one])
    env.reset(seed=0)
    sandboxes.all[0].fail = "run"
    sandboxes.all[0].deadly = ["ls"]
    _, rewards, _, truncated, infos = env.step([LOOK, LOOK])
    assert truncated.all() and sorted(infos["stop_reason"])[-1] == "max_turns"
    assert np.nanmax(rewards) == pytest.approx(3.0)
    env.close()


def test_a_slot_that_fails_behind_wrappers_is_masked(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    env = ConversationVectorEnv([lambda: gym.make("ClawGym-v0", tasks=[task()])] * 2)
    env.reset(seed=0)

    def broken(action: str) -> Any:
        raise SandboxError("gone")

    monkeypatch.setattr(env.envs[1].unwrapped, "step", broken)
    _, rewards, _, _, infos = env.step([LOOK, LOOK])
    assert infos["masked"].tolist() == [False, True] and np.isnan(rewards).tolist() == [False, True]
    assert infos["stop_reason"][1] == "infrastructure"
    env.close()


@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version")
def test_the_checker_has_nothing_to_say_behind_a_limit(sandboxes: FakeSandboxes) -> None:
    env = gym.make("ClawGym-v0", tasks=tasks(3), max_episode_steps=3)
    check_env(WrappedConversation(env), skip_render_check=True)
    check_env(env.unwrapped)
    env.close()


# -- behind the wrappers ----------------------------------------------------------------------------------------------


class Doubles(gym.Wrapper[str, str, str, str]):
    """Cuts an episode by itself, and pays twice."""

    def __init__(self, env: gym.Env[str, str], turns: int) -> None:
        super().__init__(env)
        self.turns = turns

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, 2 * float(reward), terminated, truncated or info["turn"] == self.turns, info


def test_the_rest_of_the_interface_is_that_of_the_conversation(sandboxes: FakeSandboxes) -> None:
    env = as_conversation(gym.make("ClawGym-v0", tasks=[task()], max_turns=3, max_episode_steps=2))
    plain = ClawGymEnv([task()], max_turns=3)
    env.reset(seed=0)
    plain.reset(seed=0)
    assert env.system_prompt == plain.system_prompt.replace("3 turns", "2 turns") != plain.system_prompt
    assert (env.prompt_hash, env.raw_prompts, env.losses) == (plain.prompt_hash, False, [])
    assert env.own_max_turns == 2 and not env.acting and not env.pays_otherwise and env.stops == ()
    assert as_conversation(env) is env and as_conversation(plain) is plain
    env.close()
    plain.close()


def test_finish_pays_through_the_wrappers(sandboxes: FakeSandboxes) -> None:
    env = as_conversation(wrappers.TransformReward(gym.make("ClawGym-v0", tasks=[task()]), lambda reward: reward + 5))
    plain = ClawGymEnv([task()])
    for played in (env, plain):
        played.reset(seed=0)
        played.step(HELLO)
    reward, info = env.finish("max_tokens")
    expected, expected_info = plain.finish("max_tokens")
    assert reward == expected + 5 and info == expected_info and info["stop_reason"] == "max_tokens"
    assert env.pays_otherwise and env.acting == ["TransformReward"]
    env.reset(seed=0)
    assert env.finish("infrastructure")[0] is None
    env.close()
    plain.close()


def test_an_episode_that_a_wrapper_cuts_is_graded(sandboxes: FakeSandboxes) -> None:
    env = as_conversation(Doubles(gym.make("ClawGym-v0", tasks=[task()]), 2))
    env.reset(seed=0)
    assert env.step(HELLO)[1:4] == (0.0, False, False)
    _, reward, terminated, truncated, info = env.step(LOOK)
    assert (terminated, truncated) == (False, True)
    assert reward == pytest.approx(2 * (1 - 0.2 * 2 / 4)) and info["passed"] and info["stop_reason"] == "max_turns"
    assert info["command"] == "ls" and info["exit_code"] == 0  # of the turn, not of its end
    env.close()


def test_other_words_have_another_hash(sandboxes: FakeSandboxes) -> None:
    base = gym.make("ClawGym-v0", tasks=[task()])
    loud = wrappers.TransformObservation(base, str.upper, base.observation_space)
    env = as_conversation(wrappers.RecordEpisodeStatistics(loud))
    shown, _ = env.reset(seed=0)
    assert shown.isupper() and env.step(LOOK)[0].isupper()
    assert env.prompt_hash != inside(base).prompt_hash and env.acting == ["TransformObservation"]
    assert not env.pays_otherwise
    env.close()


class Repeats(gym.Wrapper[str, str, str, str]):
    def step(self, action: str) -> Any:
        self.env.step(action)
        return self.env.step(action)


class Whispers(gym.Wrapper[str, str, str, str]):
    def step(self, action: str) -> Any:
        return self.env.step(action.lower())


class Hides(gym.Wrapper[str, str, str, str]):
    def step(self, action: str) -> Any:
        *result, _, _, info = self.env.step(action)
        return (*result, False, False, info)


class Swaps(gym.Wrapper[str, str, str, str]):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.env.reset(seed=seed)


class Empties(gym.Wrapper[str, str, str, str]):
    def step(self, action: str) -> Any:
        return (*self.env.step(action)[:4], {})


class Numbers(gym.Wrapper[Any, str, str, str]):
    def step(self, action: str) -> Any:
        return (0, *self.env.step(action)[1:])


@pytest.mark.parametrize(
    ("wrapper", "reply", "why"),
    [
        (Repeats, LOOK, "as one turn"),
        (Whispers, bash("LS"), "did not act as it is"),
        (Hides, "TASK_COMPLETE", "the episode is over"),
        (Swaps, LOOK, "another task was laid out"),
        (Empties, LOOK, "`info` lacks"),
        (Numbers, LOOK, "an observation is text, not int"),
    ],
)
def test_what_only_a_step_can_show_is_said_there(sandboxes: FakeSandboxes, wrapper: Any, reply: str, why: str) -> None:
    env = as_conversation(wrapper(gym.make("ClawGym-v0", tasks=[task()])))
    with pytest.raises(ValueError, match=why) as refused:
        env.reset(seed=0, options={"task": task(id="other")})
        env.step(reply)
    assert str(refused.value).startswith(f"wrapper {wrapper.__name__}: ") and "\n" not in str(refused.value)
    env.close()


class Chance(gym.Env[int, int]):
    observation_space = action_space = gym.spaces.Discrete(2)


@pytest.mark.parametrize(
    ("wrap", "starts"),
    [
        (lambda env: wrappers.TransformAction(env, str, env.action_space), "TransformAction cannot be around"),
        (lambda env: wrappers.StickyAction(env, 0.1), "StickyAction cannot be around"),
        (lambda env: wrappers.RepeatAction(env, 2), "RepeatAction cannot be around"),
        (wrappers.Autoreset, "Autoreset cannot be around ClawGymEnv: it resets"),
        (lambda env: wrappers.RecordEpisodeStatistics(wrappers.Autoreset(env)), "Autoreset cannot be around"),
        (lambda env: wrappers.DelayObservation(env, 1), "DelayObservation cannot be around"),
        (lambda env: wrappers.NormalizeReward(env), "NormalizeReward cannot be around"),
        (
            lambda env: wrappers.TransformObservation(env, len, gym.spaces.Discrete(9)),
            "TransformObservation cannot be around ClawGymEnv: its observations are Discrete(9)",
        ),
        (lambda env: wrappers.FrameStackObservation(env, 2), "FrameStackObservation cannot be around"),
        (lambda env: wrappers.OrderEnforcing(Chance()), "<OrderEnforcing<Chance instance>>: Chance is no Conv"),
        (lambda env: Chance(), "Chance is no conversation (it has no `finish`)"),
        (
            lambda env: gym.make_vec("ClawGym-v0", tasks=[task()]),
            "ConversationVectorEnv holds several environments",
        ),
    ],
)
def test_what_breaks_a_rollout_is_refused_in_one_line(wrap: Any, starts: str) -> None:
    env = wrap(gym.make("ClawGym-v0", tasks=[task()]))
    with pytest.raises(ValueError) as refused:
        as_conversation(env)
    assert str(refused.value).startswith(starts) and "\n" not in str(refused.value)
    env.close()
