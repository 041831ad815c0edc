"""Tasks of several sets in one environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from envs.clawgym import ClawGymEnv
from envs.mixed import MixedEnv, kind_of_env
from envs.questions import GSM8KEnv
from sandboxes import Backend, SandboxPool, probe
from sandboxes.sandbox import SandboxError
from tests.envs.fakes import FakeSandboxes, bash, task
from tests.envs.questions import question

SOLVE = f"{bash('echo hello > greeting.txt')}\nTASK_COMPLETE"


def make(**settings: Any) -> MixedEnv:
    return MixedEnv([task(), question()], **settings)


def test_each_task_is_played_as_its_own_environment_would(sandboxes: FakeSandboxes) -> None:
    for style in ("standard", "compact"):
        env = make(prompt_style=style)
        single: list[tuple[Any, list[str]]] = [
            (ClawGymEnv([task()], prompt_style=style), [bash("ls"), "??", SOLVE]),
            (GSM8KEnv([question()], prompt_style=style), [bash("echo 72"), "", "#### 72"]),
        ]
        for own, replies in single:
            shown, info = env.reset(seed=3, options={"task": own.tasks[0].id})
            expected, expected_info = own.reset(seed=3)
            assert shown == expected and env.system_prompt == own.system_prompt
            for reply in replies:
                *result, info = env.step(reply)
                *same, expected_info = own.step(reply)
                assert result == same
                assert {k: v for k, v in info.items() if k != "environment"} == expected_info
            assert info["passed"] and info["environment"] == ("clawgym" if own.task.id == "first" else "gsm8k")
            assert (env.max_turns, env.task) == (own.max_turns, own.task)
            own.close()
        env.close()
    env.close()


def test_one_sandbox_serves_all_sets(sandboxes: FakeSandboxes) -> None:
    env = make()
    for name, reply in (("first", SOLVE), ("eggs", "#### 72"), ("first", SOLVE)):
        env.reset(options={"task": name})
        env.step(bash("ls"))
        assert env.step(reply)[4]["passed"]
    assert len(sandboxes.all) == 1
    env.close()
    assert sandboxes.last.closed
    env.reset(options={"task": "first"})
    env.close()


def test_the_time_of_an_episode_can_begin_after_its_reset(
    sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("envs.conversation.time", SimpleNamespace(monotonic=lambda: now[0]))
    env = MixedEnv([task(schema_version=2, budget={"max_turns": 4, "episode_seconds": 10.0})])
    for waits, cut in ((False, True), (True, False)):
        env.reset(seed=0)
        now[0] += 60.0
        if waits:
            env.start_clock()
        assert env.step(bash("ls"))[3] is cut
    env.close()


def test_seeds_draw_from_all_sets(sandboxes: FakeSandboxes) -> None:
    env = make()
    drawn = [env.reset(seed=seed)[1]["task_id"] for seed in range(12)]
    assert set(drawn) == {"first", "eggs"} and drawn == [env.reset(seed=seed)[1]["task_id"] for seed in range(12)]
    assert env.reset(seed=4)[1]["seed"] == 4
    env.close()


def test_a_failure_is_an_error_and_the_next_episode_works(sandboxes: FakeSandboxes) -> None:
    env = make()
    sandboxes.fail_next = ["open"]
    with pytest.raises(SandboxError):
        env.reset(options={"task": "first"})
    assert env.finish("infrastructure")[0] is None
    env.reset(options={"task": "first"})
    assert env.step(SOLVE)[4]["passed"]
    env.close()


def test_which_environment_a_task_needs() -> None:
    assert kind_of_env(question()) is GSM8KEnv
    assert kind_of_env(task()) is ClawGymEnv
    both = [{"kind": "number_equals", "gold": "1"}, {"kind": "file_exists", "path": "a"}]
    assert kind_of_env(question(assertions=both)) is ClawGymEnv
    shown = [{"kind": "number_equals", "gold": "1"}, {"kind": "file_exists", "path": "a", "weight": 0}]
    assert kind_of_env(question(assertions=shown)) is GSM8KEnv


def test_settings_reach_the_sets(sandboxes: FakeSandboxes) -> None:
    env = make(tools=False, max_turns=1)
    env.reset(options={"task": "eggs"})
    assert env.step(bash("echo"))[2]
    assert make().prompt_hash != env.prompt_hash == make(tools=False, max_turns=3).prompt_hash
    with pytest.raises(ValueError, match="'base' is for questions alone"):
        make(prompt_style="base")
    with pytest.raises(ValueError, match="there is no prompt style 'fancy'"):
        make(prompt_style="fancy")
    env.close()


def test_a_pool_lends_one_sandbox_at_a_time_and_none_to_an_answer() -> None:
    backend = next((name for name in (Backend.BUBBLEWRAP, Backend.LANDLOCK) if probe(name).ok), None)
    if backend is None:
        pytest.skip("no safe sandbox works here")
    with SandboxPool(backend, size=1) as pool:
        first, second = make(sandbox=pool), make(sandbox=pool)
        first.reset(options={"task": "eggs"})
        second.reset(options={"task": "first"})  # the question holds none, so this one gets it
        assert len(pool._lent) == 1
        assert second.step(SOLVE)[4]["passed"] and not pool._lent
        assert first.step(bash("python3 -c 'print(12 * 6)'"))[4]["exit_code"] == 0 and len(pool._lent) == 1
        assert first.step("#### 72")[4]["passed"] and not pool._lent
        first.close()
        second.close()


def test_a_member_that_cannot_close_leaves_none_of_the_others_open(
    sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make()
    for own in env.tasks:
        env.reset(options={"task": own.id})
    closed: list[str] = []

    def close(member: Any) -> None:
        closed.append(type(member).__name__)
        raise SandboxError(f"{type(member).__name__} is stuck")

    for member in env._members.values():
        monkeypatch.setattr(type(member), "close", close)
    with pytest.raises(SandboxError, match="is stuck"):
        env.close()
    assert sorted(closed) == ["ClawGymEnv", "GSM8KEnv"]
