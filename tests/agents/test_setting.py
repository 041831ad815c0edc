from __future__ import annotations

import json
from typing import Any

import pytest

from agents.trajectory import env_for, setting_of
from envs import ClawGymEnv, GSM8KEnv, IFEvalEnv
from envs.mixed import MixedEnv
from tasks.sources import load_tasks

CASES: list[tuple[type[Any], str, dict[str, Any]]] = [
    (ClawGymEnv, "library", {"max_turns": 3, "reward": "delta", "prompt_style": "compact", "subtract_baseline": True}),
    (GSM8KEnv, "gsm8k:sample", {"tools": False, "max_turns": 1, "prompt_style": "base", "stops": ["\nQ"]}),
    (IFEvalEnv, "ifeval:sample", {"revise": 2, "turn_penalty": 0.1}),
]


@pytest.mark.parametrize(("kind", "tasks", "settings"), CASES)
def test_another_environment_of_the_same_setting(kind: type[Any], tasks: str, settings: dict[str, Any]) -> None:
    task = load_tasks(tasks)[0]
    env = kind([task], task=task.id, sandbox="local", **settings)
    env._choose(0, None)
    setting = json.loads(json.dumps(setting_of(env)))
    other = env_for(task, setting, "local")
    other._choose(0, None)
    assert type(other) is kind and setting_of(other) == setting
    assert (other.prompt_hash, other.max_turns, other.rule) == (env.prompt_hash, env.max_turns, env.rule)


def test_a_mixed_environment_counts_as_the_one_that_plays() -> None:
    task = load_tasks("gsm8k:sample")[0]
    env = MixedEnv([task], prompt_style="compact", sandbox="local")
    env.reset(seed=0)
    setting = setting_of(env)
    assert (setting["env"], setting["prompt_style"]) == ("GSM8KEnv", "compact")
    assert env_for(task, setting, "local").prompt_hash == setting["prompt_hash"]
    env.close()


def test_unknown_settings_are_named() -> None:
    task = load_tasks("gsm8k:sample")[0]
    with pytest.raises(ValueError, match="unknown setting of an environment 'max_turn': did you mean 'max_turns'"):
        env_for(task, {"max_turn": 3})
    with pytest.raises(ValueError, match="unknown environment 'GSM8K'"):
        env_for(task, {"env": "GSM8K"})


def test_a_class_of_the_users_own_is_recorded_as_the_one_of_ours_that_it_extends() -> None:
    class Mine(ClawGymEnv):
        pass

    task = load_tasks("library")[0]
    env = Mine([task], task=task.id, sandbox="local")
    env._choose(0, None)
    assert setting_of(env)["env"] == "ClawGymEnv"
