from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import envs  # noqa: F401  (registers)
from envs.vector import ConversationVectorEnv
from sandboxes.sandbox import SandboxError, SandboxUnavailable
from tests.envs.fakes import FakeSandbox, FakeSandboxes, bash, tasks

SOLVE = f"{bash('echo hello > greeting.txt')}\nTASK_COMPLETE"
LOOK = bash("cat notes.txt; echo caf\u00e9")


def make(n: int = 2, mode: str | None = None, **settings: Any) -> Any:
    return gym.make_vec(
        "ClawGym-v0", num_envs=n, vectorization_mode=mode, tasks=tasks(20), prompt_style="compact", **settings
    )


def play(mode: str | None) -> list[Any]:
    env = make(2, mode)
    seen: list[Any] = []
    observations, infos = env.reset(seed=5)
    seen.append((tuple(observations), infos["task_id"].tolist(), infos["anchor"].tolist()))
    for replies in [(LOOK, "??"), (SOLVE, bash("exit 2")), (LOOK, SOLVE), (LOOK, LOOK)]:
        observations, rewards, terminated, truncated, infos = env.step(replies)
        assert observations in env.observation_space
        code = infos["exit_code"].tolist() if "exit_code" in infos else []
        seen.append((tuple(observations), rewards.tolist(), terminated.tolist(), truncated.tolist(), code))
    env.close()
    return seen


@pytest.mark.parametrize("mode", [None, "sync", "async"])
def test_every_mode_shows_the_same(sandboxes: FakeSandboxes, mode: str | None) -> None:
    seen = play(mode)
    ids = seen[0][1]
    assert seen[0][0] == tuple(f"Number {i[1:]}: write hello into greeting.txt." for i in ids)
    assert seen[1][0] == ("ok\nkeep me\ncaf\u00e9", "error: no bash block and no TASK_COMPLETE")
    assert seen[1][4] == [0, None]
    assert seen[2][0] == ("ok", "exit 2") and seen[2][2] == [True, False]
    assert seen[3][0][0].startswith("Number ") and seen[3][1][0] == 0.0 and seen[3][2] == [False, True]
    assert seen[4][0][0] == "ok\nkeep me\ncaf\u00e9" and seen[4][0][1].startswith("Number ")
    assert seen == play("sync")


def test_the_default_mode_is_ours(sandboxes: FakeSandboxes) -> None:
    env = make(3)
    assert isinstance(env, ConversationVectorEnv)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    env.reset(seed=0)
    assert [len(sandbox.calls) > 0 for sandbox in sandboxes.all] == [True] * 3
    env.close()
    env.close()
    assert all(sandbox.closed >= 1 for sandbox in sandboxes.all)


def test_a_slot_whose_sandbox_fails_is_masked_and_recovers(sandboxes: FakeSandboxes) -> None:
    env = make(3)
    _, infos = env.reset(seed=0)
    assert infos["masked"].tolist() == [False] * 3
    by_root = {e._sandbox: i for i, e in enumerate(env.envs)}
    sandboxes.all[1].fail = "run"
    sandboxes.fail_next = ["open"]  # and the canary, too: the machinery is at fault
    broken = by_root[sandboxes.all[1]]
    observations, rewards, terminated, truncated, infos = env.step([LOOK] * 3)
    well = [i for i in range(3) if i != broken]
    assert infos["masked"].tolist() == [i == broken for i in range(3)]
    assert infos["stop_reason"][broken] == "infrastructure" and infos["error"][broken].startswith("broken at run;")
    assert observations[broken] == "" and np.isnan(rewards[broken])
    assert truncated.tolist() == [i == broken for i in range(3)] and not terminated.any()
    assert all(observations[i] == "ok\nkeep me\ncaf\u00e9" and rewards[i] == 0.0 for i in well)

    observations, rewards, terminated, truncated, infos = env.step([SOLVE] * 3)
    assert not infos["masked"].any() and observations[broken].startswith("Number ")
    assert rewards[broken] == 0.0 and terminated.tolist() == [i != broken for i in range(3)]
    env.close()


def test_a_slot_that_cannot_start_is_masked_until_it_can(sandboxes: FakeSandboxes) -> None:
    sandboxes.fail_next = ["open", "open"]
    env = make(1)
    observations, infos = env.reset(seed=0)
    assert observations == ("",) and infos["masked"].tolist() == [True]
    observations, rewards, _, truncated, infos = env.step([LOOK])
    assert np.isnan(rewards[0]) and truncated[0] and infos["masked"][0]
    observations, rewards, _, truncated, infos = env.step([LOOK])
    assert observations[0].startswith("Number ") and not truncated[0] and not infos["masked"][0]
    assert env.step([LOOK])[0][0] == "ok\nkeep me\ncaf\u00e9"
    env.close()


def test_a_backend_that_cannot_work_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(*args: object) -> FakeSandbox:
        raise SandboxUnavailable("no backend works here")

    monkeypatch.setattr("envs.workplace.open_sandbox", unavailable)
    env = make(2)
    with pytest.raises(SandboxUnavailable, match="no backend works here"):
        env.reset(seed=0)
    env.close()


def test_gymnasiums_own_modes_raise_what_a_slot_raises(sandboxes: FakeSandboxes) -> None:
    env = make(2, "sync")
    assert isinstance(env, SyncVectorEnv) and not isinstance(env, ConversationVectorEnv)
    env.reset(seed=0)
    sandboxes.last.fail = "run"
    sandboxes.fail_next = ["open"]
    with pytest.raises(SandboxError, match="broken at run"):
        env.step([LOOK] * 2)
    env.close()


def test_same_step_autoreset_keeps_the_final_observation(sandboxes: FakeSandboxes) -> None:
    env = make(2, autoreset_mode="SameStep")
    env.reset(seed=0)
    observations, rewards, terminated, _, infos = env.step([SOLVE, LOOK])
    assert terminated.tolist() == [True, False] and rewards[0] > 0.9
    assert observations[0].startswith("Number ") and infos["final_obs"][0] == "ok"
    assert infos["final_info"]["passed"][0] and infos["final_info"]["_passed"].tolist() == [True, False]
    assert env.step([LOOK, LOOK])[0][0] == "ok\nkeep me\ncaf\u00e9"
    env.close()


def test_without_autoreset_finished_slots_are_reset_by_hand(sandboxes: FakeSandboxes) -> None:
    env = make(2, autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step([SOLVE, LOOK])
    with pytest.raises(ValueError, match=r"episodes of slots \[0\] are over"):
        env.step([LOOK, LOOK])
    observations, infos = env.reset(options={"reset_mask": np.array([True, False])})
    assert observations[0].startswith("Number ") and observations[1] == "ok\nkeep me\ncaf\u00e9"
    assert infos["_task_id"].tolist() == [True, False]
    assert env.step([LOOK, LOOK])[0] == ("ok\nkeep me\ncaf\u00e9",) * 2
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([False, False])})
    env.close()


def test_seeds_and_tasks_of_slots(sandboxes: FakeSandboxes) -> None:
    env = make(3)
    ids = env.reset(seed=11)[1]["task_id"].tolist()
    single = gym.make("ClawGym-v0", tasks=tasks(20))
    assert ids == [single.reset(seed=11 + i)[1]["task_id"] for i in range(3)]
    single.close()
    assert env.reset(seed=[11, None, 13])[1]["task_id"].tolist()[::2] == ids[::2]
    assert env.reset(options={"task": "t4"})[1]["task_id"].tolist() == ["t4"] * 3
    assert env.reset(options={"task": ["t4", "t5", "t6"]})[1]["task_id"].tolist() == ["t4", "t5", "t6"]
    with pytest.raises(ValueError, match="2 entries for 3 slots"):
        env.reset(options={"task": ["t4", "t5"]})
    with pytest.raises(ValueError, match="3 slots and 1 replies"):
        env.step([LOOK])
    env.close()


def test_one_open_sandbox_cannot_serve_several_slots() -> None:
    mine = FakeSandbox()
    with pytest.raises(ValueError, match="one open sandbox"):
        make(2, sandbox=mine)
    mine.close()
