"""What Gymnasium's own tools say about the environments with questions, on the samples that ship."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  (registers)
from envs.vector import ConversationVectorEnv
from tests.envs.fakes import FakeSandboxes, bash
from tests.shared_data import REPOSITORY

NAMES = ("GSM8K-v0", "MATH-v0", "IFEval-v0")


@pytest.mark.parametrize("name", [*NAMES, "Mixed-v0"])
def test_check_env_has_nothing_to_say(sandboxes: FakeSandboxes, name: str) -> None:
    env = gym.make(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", ["{}", "TurnGym/{}", "envs:{}"])
def test_every_name_makes_the_environment(name: str, form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gym.make(form.format(name), prompt_style="compact", reward="binary")
        observation, info = env.reset(seed=0)
        assert observation in env.observation_space
        answer = {task.id: task for task in env.unwrapped.tasks}[info["task_id"]].oracle.answer  # type: ignore
        _, reward, terminated, truncated, info = env.step(answer)
        assert (reward, terminated, truncated, info["passed"]) == (1.0, True, False, True), info
    env.close()


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_is_solved_by_its_answer_and_offline(name: str) -> None:
    env = gym.make(name).unwrapped
    assert len(env.tasks) >= 40  # type: ignore[attr-defined]
    for task in env.tasks:  # type: ignore[attr-defined]
        env.reset(options={"task": task})
        *_, info = env.step(task.oracle.answer)
        assert info["passed"] and len(info["answers"]) == 1, (task.id, info["assertions"])
        env.reset(options={"task": task})
        *_, info = env.step("TASK_COMPLETE")
        assert info["rate"] == 0.0, task.id


def play(name: str, mode: str | None) -> list[Any]:
    env = gym.make_vec(name, num_envs=3, vectorization_mode=mode, prompt_style="compact")
    if mode is None:
        assert isinstance(env, ConversationVectorEnv)
    seen: list[Any] = []
    observations, infos = env.reset(seed=5)
    seen.append((tuple(observations), infos["task_id"].tolist(), infos["anchor"].tolist()))
    for replies in [(bash("echo 1"), "", "#### 1"), ("It is \\boxed{1}", bash("exit 3"), "a"), ("x", "y", "z")]:
        observations, rewards, terminated, truncated, infos = env.step(replies)
        assert tuple(observations) in env.observation_space
        seen.append((tuple(observations), rewards.tolist(), terminated.tolist(), truncated.tolist()))
        seen.append((infos["anchor"].tolist(), infos["text_after_stop"].tolist()))
    env.close()
    return seen


@pytest.mark.parametrize("name", NAMES)
def test_the_default_vector_form_shows_what_the_others_show(sandboxes: FakeSandboxes, name: str) -> None:
    ours = play(name, None)
    assert ours[1][0][0] == "ok\n1" and ours[1][0][1].startswith("error: ") and ours[1][2] == [False, False, True]
    assert ours == play(name, "sync") == play(name, "async")


def test_importing_the_environments_imports_no_verifier() -> None:
    """Parsers for mathematics and languages cost a second and more: only who asks for them pays."""
    code = (
        "import sys, envs; bad = {'sympy', 'math_verify', 'latex2sympy2_extended', 'langdetect', 'datasets'}; "
        "print(sorted(bad & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
