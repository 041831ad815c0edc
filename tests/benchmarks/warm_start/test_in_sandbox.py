"""The demonstrations against the real environment: what was emulated is what an agent would have met."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.warm_start.emulator import snapshot
from benchmarks.warm_start.episodes import demonstrations
from benchmarks.warm_start.habits import Recipe
from benchmarks.warm_start.statistics import score
from envs.clawgym import ClawGymEnv
from sandboxes import Sandbox, SandboxUnavailable, open_sandbox
from tasks.families import build


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox()
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    with opened:
        yield opened


def test_replayed_in_the_environment_every_word_and_every_reward_is_the_same(sandbox: Sandbox) -> None:
    recipe = Recipe(habit=0.5, misname=0.25, retry=0.5, repeat=0.3)
    shown = list(demonstrations(80, seed=11, recipe=recipe))
    tasks = [build(one.family, one.parts) for one in shown]
    env = ClawGymEnv(tasks=tasks, sandbox=sandbox, prompt_style="compact")
    for one, task in zip(shown, tasks, strict=True):
        first, _ = env.reset(seed=0, options={"task": task.id})
        assert first == one.first_message
        ended = False
        for reply, expected in one.turns:
            observation, reward, terminated, truncated, info = env.step(reply)
            ended = terminated or truncated
            assert reply == "TASK_COMPLETE" or observation == expected, (task.id, reply)
        assert ended and terminated == one.submitted
        assert reward == pytest.approx(score(one).reward) and info["passed"] == bool(score(one).passed)
        seen = sandbox.snapshot()
        assert {path: (entry.kind, entry.content) for path, entry in seen.items()} == {
            path: (entry.kind, entry.content) for path, entry in snapshot(one.files).items()
        }
    env.close()
