"""A sandbox lost in mid-episode: played again, or the agent's doing, or the machinery's."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest

import envs  # noqa: F401  (registers)
from envs.clawgym import ClawGymEnv
from envs.mixed import MixedEnv
from envs.questions import GSM8KEnv
from sandboxes import Backend, SandboxError, SandboxPool, SupervisedSandbox, probe
from tasks.assertions.base import BaseAssertion
from tasks.assertions.grade import GradeError
from tests.envs.fakes import FIRST, FakeSandbox, FakeSandboxes, bash, kill, task, tasks

WRITE = bash("echo hello > greeting.txt")
DEADLY = bash("echo more; deadly")
GRADER = {"kind": "command", "name": "c", "command": "grep -q hello greeting.txt"}


def make(**settings: Any) -> ClawGymEnv:
    return ClawGymEnv([task()], sandbox="auto", prompt_style="compact", **settings)


def played(env: ClawGymEnv, lose: Any = lambda turn: None) -> list[Any]:
    """An episode of three commands and a submission; everything that it showed but its losses."""
    seen: list[Any] = [env.reset(seed=3)]
    for turn, reply in enumerate((bash("echo a > x; cat x"), WRITE, bash("cat greeting.txt; exit 3"), "TASK_COMPLETE")):
        lose(turn)
        *step, info = env.step(reply)
        info.pop("losses", None)
        seen.append((*step, info))
    return seen


@pytest.mark.parametrize("call", ["run", "snapshot"])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_loss_is_made_good_and_changes_nothing(sandboxes: FakeSandboxes, call: str, at: int) -> None:
    calm = played(make())

    def lose(turn: int) -> None:
        if turn == at:
            lost.append(env._sandbox)
            env._sandbox.fail = call  # type: ignore[union-attr]

    lost: list[Any] = []
    env = make()
    assert played(env, lose) == calm
    assert [(loss["turn"], loss["end"]) for loss in env.losses] == [(at + 1, "replayed")]
    assert lost[0].closed == 1 and env._sandbox is not lost[0]
    assert [sandbox.closed for sandbox in sandboxes.all[2:]].count(1) == 1  # the canary; the fresh one serves on
    env.reset(seed=3)
    assert env.losses == []


def test_lost_twice_at_the_same_command_is_a_fail(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset(seed=0)
    env.step(WRITE)
    sandboxes.deadly.append("deadly")
    observation, reward, terminated, truncated, info = env.step(DEADLY)
    assert (observation, terminated, truncated, info["stop_reason"]) == ("", False, True, "lost")
    assert reward == pytest.approx(0.0 - 0.2 * 2 / 4) and info["rate"] == 0.0 and info["passed"] is False
    assert len(info["assertions"]) == 4
    for record in info["assertions"]:
        assert (record["verdict"], record["score"], record["broke"]) == ("fail", 0.0, True)
        assert record["detail"] == "the sandbox was lost twice at this command: echo more; deadly"
    assert (info["command"], info["exit_code"], info["signal"]) == ("echo more; deadly", None, None)
    assert [(loss["command"], loss["end"]) for loss in info["losses"]] == [("echo more; deadly", "lost")]
    json.dumps(info)
    sandboxes.deadly.clear()
    assert env.reset(seed=0)[1]["turn"] == 0
    env.step(WRITE)
    assert env.step("TASK_COMPLETE")[4]["passed"]


def test_the_reward_of_a_lost_episode_follows_the_rule(sandboxes: FakeSandboxes) -> None:
    sandboxes.deadly.append("deadly")
    for settings, expected in (
        ({"reward": "binary"}, 0.0),
        ({"reward": "delta"}, -0.5),  # all turns sum to the final rate less that at the start
        ({"turn_penalty": 0.0, "subtract_baseline": True}, -1.0),
    ):
        env = make(**settings)
        env.reset(seed=0)
        total = env.step(WRITE)[1]
        assert total + env.step(DEADLY)[1] == pytest.approx(expected), settings


def test_a_loss_on_the_last_turn_is_no_spent_budget(sandboxes: FakeSandboxes) -> None:
    sandboxes.deadly.append("deadly")
    env = make(max_turns=1)
    env.reset(seed=0)
    *_, terminated, truncated, info = env.step(f"{DEADLY}\nTASK_COMPLETE")
    assert (terminated, truncated, info["stop_reason"], info["turn"]) == (False, True, "lost", 1)


@pytest.mark.parametrize("at", ["open", "run"])
def test_a_dead_canary_says_that_the_machinery_failed(sandboxes: FakeSandboxes, at: str) -> None:
    env = make()
    env.reset(seed=0)
    sandboxes.deadly.append("deadly")
    sandboxes.fail_next = [at]
    with pytest.raises(SandboxError, match="not made good: .*broken at"):
        env.step(DEADLY)
    reward, info = env.finish("infrastructure")
    assert reward is None and [loss["end"] for loss in info["losses"]] == ["infrastructure"]


def test_a_canary_that_dies_meanwhile_says_so_too(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset(seed=0)
    env.step(WRITE)
    sandboxes.deadly.append("deadly")
    first = FakeSandbox.run

    def run(sandbox: FakeSandbox, command: str, **settings: Any) -> Any:
        if "deadly" in command and len(sandboxes.all) > 2:
            sandboxes.all[1].dead = True  # the machine goes down: the canary with it
        return first(sandbox, command, **settings)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SandboxError, match="a second sandbox .* does not ans"):
        patch.setattr(FakeSandbox, "run", run)
        env.step(DEADLY)


@pytest.mark.parametrize(
    ("command", "difference"),
    [
        ("date +%N", "output"),
        ("date +%N > now", "workspace"),
        (f"[ ! -e {{mark}} ] && touch {{mark}}{' ' * 3}", "exit code"),
    ],
)
def test_what_comes_out_otherwise_cannot_be_judged(
    sandboxes: FakeSandboxes, command: str, difference: str, tmp_path: Any
) -> None:
    env = make()
    env.reset(seed=0)
    env.step(bash(command.format(mark=tmp_path / "mark")))
    env._sandbox.fail = "run"  # type: ignore[union-attr]
    with pytest.raises(SandboxError, match=f"broken at run; not made good: .*another {difference}"):
        env.step(WRITE)
    assert env.finish("infrastructure")[0] is None


def test_a_fresh_sandbox_that_is_lost_while_turns_are_played_again_is_no_fail(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset(seed=0)
    env.step(WRITE)
    env._sandbox.fail = "run"  # type: ignore[union-attr]
    sandboxes.fail_next = ["", "run"]
    with pytest.raises(SandboxError, match="not made good: played again, command 1 was lost as well: broken at run"):
        env.step(bash("ls"))


def test_no_time_left_is_the_machinerys(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.recovery.REPLAY_SECONDS", 0.0)
    env = make()
    env.reset(seed=0)
    sandboxes.deadly.append("deadly")
    with pytest.raises(SandboxError, match="takes more than 0 seconds"):
        env.step(DEADLY)


def test_lost_while_graded_is_played_again_and_graded_once_more(sandboxes: FakeSandboxes) -> None:
    env = ClawGymEnv([task(assertions=[GRADER])], prompt_style="compact")
    for end in ("replayed", "lost"):
        env.reset(seed=0)
        env.step(WRITE)
        env._sandbox.fail = "run"  # type: ignore[union-attr]
        if end == "lost":
            sandboxes.deadly.append("grep")  # what the agent left is run by a grader, and ends the sandbox
        _, reward, terminated, truncated, info = env.step("TASK_COMPLETE")
        assert [(loss["command"], loss["turn"], loss["end"]) for loss in info["losses"]] == [("", 2, end)]
        assert info["passed"] is (end == "replayed") and (terminated, truncated) == (end == "replayed", end == "lost")
        assert reward == pytest.approx((end == "replayed") - 0.2 * 2 / 4)
    assert info["stop_reason"] == "lost" and "while this was graded" in info["assertions"][0]["detail"]
    sandboxes.deadly.clear()
    env.reset(seed=0)
    env.step(bash("true"))
    sandboxes.deadly.append("grep")
    reward, info = env.finish("max_tokens")
    assert reward == pytest.approx(-0.05) and info["stop_reason"] == "lost"


def test_abort_ends_a_replay(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset(seed=0)
    env.step(WRITE)
    for call in ("abort", "close"):
        first = FakeSandbox.run

        def run(sandbox: FakeSandbox, command: str, call: str = call, first: Any = first, **settings: Any) -> Any:
            if sandbox is not sandboxes.all[0] and "hello" in command:  # the fresh one, in the middle of the replay
                threading.Thread(target=getattr(env, call)).start()
                while sandbox.closed == 0:
                    pass
            return first(sandbox, command, **settings)

        lost = env._sandbox
        lost.fail = "run"  # type: ignore[union-attr]
        with pytest.MonkeyPatch.context() as patch, pytest.raises(SandboxError, match="broken at run"):
            patch.setattr(FakeSandbox, "run", run)
            env.step(bash("ls"))
        env.close()
        assert all(sandbox.closed for sandbox in sandboxes.all)
        assert len(sandboxes.all) == 3
        sandboxes.all.clear()
        env.reset(seed=0)
        env.step(WRITE)


def test_questions_and_mixed_environments_do_the_same(sandboxes: FakeSandboxes) -> None:
    sandboxes.deadly.append("deadly")
    for env in (GSM8KEnv(prompt_style="compact"), MixedEnv(prompt_style="compact")):
        env.reset(seed=0)
        env.step(bash("echo kept > x"))
        sandboxes.last.fail = "run"
        assert env.step(bash("cat x"))[0] == "ok\nkept"
        _, reward, terminated, truncated, info = env.step(DEADLY)
        assert (terminated, truncated, info["stop_reason"], info["passed"]) == (False, True, "lost", False)
        assert [loss["end"] for loss in env.losses] == ["replayed", "lost"] and reward < 0
        assert env.reset(seed=0)[1]["stop_reason"] is None and env.losses == []
        env.close()


def test_a_given_sandbox_is_opened_again(sandboxes: FakeSandboxes) -> None:
    mine = FakeSandbox()
    mine.maker = sandboxes
    env = ClawGymEnv([task()], sandbox=mine, prompt_style="compact")
    env.reset(seed=0)
    env.step(WRITE)
    mine.fail = "snapshot"
    assert env.step(bash("cat greeting.txt"))[0] == "ok\nhello"
    assert (mine.opened, mine.closed, len(sandboxes.all), sandboxes.last.closed) == (2, 0, 1, 1)
    mine.close()


def test_a_vector_of_environments_masks_no_lost_episode(sandboxes: FakeSandboxes) -> None:
    sandboxes.deadly.append("deadly")
    vector = gym.make_vec("ClawGym-v0", num_envs=2, tasks=tasks(4), prompt_style="compact")
    vector.reset(seed=0)
    _, rewards, terminated, truncated, infos = vector.step([DEADLY, WRITE])
    assert not infos["masked"].any() and truncated.tolist() == [True, False] and not terminated.any()
    assert rewards.tolist() == [pytest.approx(-0.05), 0.0] and infos["stop_reason"][0] == "lost"
    vector.close()


# -- agent_errors ---------------------------------------------------------------------------------------------------


def test_agent_errors_takes_both_out_of_the_grade(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(item: BaseAssertion, outcome: object) -> object:
        return item.broken("crashed on it")

    gymnasium = gym.make("ClawGym-v0", tasks=[task()], agent_errors="error", prompt_style="compact")
    assert gymnasium.unwrapped.agent_errors == "error"  # type: ignore[attr-defined]
    for kind in ("fail", "error"):
        env = make(agent_errors=kind)
        env.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr("tasks.assertions.files.FileContains.check", check)
            *_, info = env.step(WRITE)
            assert (info["signal"] is None) is (kind == "error")
            if kind == "fail":
                records = env.step("TASK_COMPLETE")[4]["assertions"]
                assert [record.get("broke", False) for record in records] == [False, True, False, False]
            else:
                with pytest.raises(GradeError, match="could not be graded: file_contains.*: crashed on it"):
                    env.step("TASK_COMPLETE")
    sandboxes.deadly.append("deadly")
    env = make(agent_errors="error")
    env.reset(seed=0)
    with pytest.raises(SandboxError, match="lost twice at this command"):
        env.step(DEADLY)
    assert [loss["end"] for loss in env.finish("infrastructure")[1]["losses"]] == ["infrastructure"]
    with pytest.raises(ValueError, match="unknown agent_errors 'maybe': choose one of fail, error"):
        make(agent_errors="maybe")


# -- real sandboxes -------------------------------------------------------------------------------------------------


@pytest.fixture(
    params=[pytest.param(Backend.BUBBLEWRAP, marks=pytest.mark.bubblewrap), Backend.LANDLOCK], ids=lambda b: str(b)
)
def backend(request: pytest.FixtureRequest) -> Backend:
    found = probe(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not work here: {found.reason}")
    return request.param


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Sandboxes are killed when a command names `deadly`; the number is how often that may still happen."""
    left = [0]
    real = SupervisedSandbox.run_and_snapshot

    def run_and_snapshot(sandbox: Any, command: str, **settings: Any) -> Any:
        if "deadly" in command and left[0]:
            left[0] -= 1
            kill(sandbox)
        return real(sandbox, command, **settings)

    monkeypatch.setattr(SupervisedSandbox, "run_and_snapshot", run_and_snapshot)
    yield left


@pytest.mark.parametrize("pooled", [False, True])
def test_a_supervisor_killed_once_and_twice(backend: Backend, killing: list[int], pooled: bool) -> None:
    given = task(assertions=[*FIRST["assertions"], GRADER])  # type: ignore[misc]
    with SandboxPool(backend, size=1) as pool:
        env = ClawGymEnv([given], sandbox=pool if pooled else backend, prompt_style="compact")
        env.reset(seed=0)
        env.step(bash("mkdir d; cd d; x=1; echo hello > ../greeting.txt"))
        killing[0] = 1
        assert env.step(bash("echo $x; basename $PWD # deadly"))[0] == "ok\n1\nd"
        *_, info = env.step("TASK_COMPLETE")
        assert info["passed"] and [loss["end"] for loss in info["losses"]] == ["replayed"]
        env.reset(seed=0)
        killing[0] = 2
        *_, truncated, info = env.step(bash("echo deadly"))
        assert truncated and info["stop_reason"] == "lost" and info["losses"][0]["error"].startswith(f"{backend} sand")
        env.reset(seed=0)
        env.step(WRITE)
        assert env.step("TASK_COMPLETE")[4]["passed"]
        env.close()
        assert not pool._lent and (not pooled or pool.lost == 3)
