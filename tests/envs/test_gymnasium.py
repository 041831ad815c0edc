"""What Gymnasium's own tools say about the environments."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  (registers)
from tests.envs.fakes import FakeSandboxes, bash, task, tasks
from tests.shared_data import REPOSITORY


def test_check_env_has_nothing_to_say(sandboxes: FakeSandboxes) -> None:
    env = gym.make("ClawGym-v0", tasks=tasks(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("name", ["ClawGym-v0", "TurnGym/ClawGym-v0", "envs:ClawGym-v0"])
def test_every_name_makes_the_environment(sandboxes: FakeSandboxes, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(name, tasks=[task()], reward="binary", max_turns=3, prompt_style="compact", sandbox="auto")
        observation, _ = env.reset(seed=0)
        assert observation in env.observation_space
        observation, reward, terminated, truncated, info = env.step(
            f"{bash('echo hello > greeting.txt')}\nTASK_COMPLETE"
        )
        assert (reward, terminated, truncated, info["passed"]) == (1.0, True, False, True)
    env.close()


def test_the_module_form_needs_no_import() -> None:
    code = "import gymnasium as gym; e = gym.make('envs:ClawGym-v0'); print(type(e.unwrapped).__name__); e.close()"
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "ClawGymEnv", done.stderr


def test_a_spec_makes_the_environment_again(sandboxes: FakeSandboxes) -> None:
    env = gym.make("ClawGym-v0", tasks=[task()], max_turns=2)
    assert env.spec is not None
    again = gym.make(env.spec)
    again.reset(seed=0)
    assert again.unwrapped.max_turns == 2  # type: ignore[attr-defined]
    again.close()


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(TypeError, match="turns"):
        gym.make("ClawGym-v0", tasks=[task()], turns=3)
