"""`keep_observations`: a rule for prompts that every environment takes, and that its hash tells."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import pytest
from gymnasium.wrappers import TransformObservation

from envs import ClawGymEnv, GSM8KEnv, MixedEnv
from envs.prompts import LINE_CUT
from envs.wrapping import as_conversation
from tests.envs.fakes import task

LONG = "exit code: 1\nstdout:\n" + "many words\n" * 30


class Brief(ClawGymEnv):
    def summary(self, observation: str) -> str:
        return observation.splitlines()[0]


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3"])
def test_what_is_no_number_of_observations_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="keep_observations is .*: a whole number of at least 1, or None"):
        ClawGymEnv([task()], keep_observations=wrong)


def test_gymnasium_hands_it_on() -> None:
    made = gym.make("envs:ClawGym-v0", tasks=[task()], keep_observations=2).unwrapped
    assert isinstance(made, ClawGymEnv) and made.keep_observations == 2
    envs = gym.make_vec("envs:GSM8K-v0", num_envs=2, keep_observations=3)
    assert [env.unwrapped.keep_observations for env in envs.envs] == [3, 3]  # type: ignore[attr-defined]
    assert ClawGymEnv([task()]).keep_observations is None


def test_the_hash_of_the_prompts_tells_number_and_line() -> None:
    plain = ClawGymEnv([task()])
    assert plain.prompt_hash == plain.style.hash()
    lines = [kind([task()], keep_observations=n) for kind in (ClawGymEnv, Brief) for n in (1, 2)]
    makes = [ClawGymEnv([task()]), *lines]
    assert len({env.prompt_hash for env in makes}) == 5
    assert Brief([task()]).prompt_hash == plain.prompt_hash  # no line is ever shown
    assert ClawGymEnv([task()], keep_observations=1).prompt_hash == makes[1].prompt_hash
    mixed = [MixedEnv([task()], keep_observations=n) for n in (None, 1, 2)]
    assert len({env.prompt_hash for env in mixed}) == 3


def test_lines_are_those_of_the_environment_that_carries_the_task_out() -> None:
    line = ClawGymEnv([task()]).summary(LONG)
    assert line.startswith("exit code: 1 stdout: many words") and len(line) <= LINE_CUT
    assert MixedEnv([task()], keep_observations=1).summary(LONG) == line
    assert Brief([task()]).summary(LONG) == "exit code: 1"
    base = GSM8KEnv(prompt_style="base", keep_observations=1)
    assert base.summary(f"\n\n{LONG}\n\nAnswer:").endswith(" [cut]\n\nAnswer:")
    wrapped = as_conversation(TransformObservation(Brief([task()], keep_observations=4), lambda text: text, None))
    assert wrapped.keep_observations == 4 and wrapped.summary(LONG) == "exit code: 1"
