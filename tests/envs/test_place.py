"""What version 2 of a task asks of its place, as an episode meets it: start, services, loss, time, images."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from envs.clawgym import ClawGymEnv
from envs.mixed import MixedEnv
from envs.questions import GSM8KEnv
from sandboxes import Backend, SandboxError, SandboxPool, SupervisedSandbox, open_sandbox
from tasks.model import TaskError
from tasks.place import CannotBegin
from tasks.task import Task
from tests.envs.fakes import FakeSandboxes, bash, kill, task
from tests.sandboxes.conftest import require
from tests.tasks.test_place import ASK, SERVICES, make

DONE = "TASK_COMPLETE"
LATE = {
    "name": "late",
    "command": "while :; do [ -e asked ] && [ ! -e answer ] && { sleep 0.3; echo K-17 > answer; }; sleep 0.02; done",
    "ready": "true",
}
"""A service that answers only a while after it was asked."""
ANSWERED = {"kind": "file_equals", "path": "answer", "equals": "K-17\n"}


@pytest.fixture(scope="module")
def real() -> Iterator[SupervisedSandbox]:
    require(Backend.BUBBLEWRAP)
    with open_sandbox(Backend.BUBBLEWRAP) as opened:
        yield opened


@pytest.mark.bubblewrap
def test_an_episode_with_setup_and_a_service(real: SupervisedSandbox) -> None:
    env = ClawGymEnv([make(services=SERVICES)], sandbox=real, reward="delta")
    first, start = env.reset(seed=0)
    assert "out/" in first and "orders.sock" in first
    info = env.step(bash(f"{ASK} > code.txt"))[-1]
    assert info["signal"] == pytest.approx(0.5) and info["exit_code"] == 0
    _, _, terminated, _, info = env.step(DONE)
    assert terminated and info["passed"]
    assert env.reset(seed=0) == (first, start)
    assert env.step(bash("rm -r out"))[-1]["signal"] == pytest.approx(-0.5)
    env.close()


@pytest.mark.bubblewrap
@pytest.mark.parametrize("reward", ["shaped", "delta"])
def test_what_a_service_did_until_it_ended_is_graded(real: SupervisedSandbox, reward: str) -> None:
    env = ClawGymEnv([make(setup=[], services=[LATE], assertions=[ANSWERED])], sandbox=real, reward=reward)
    env.reset(seed=0)
    assert env.step(bash("touch asked"))[-1]["signal"] == 0.0
    real.run("for i in $(seq 200); do [ -s answer ] && break; sleep 0.02; done")
    info = env.step(DONE)[-1]
    assert info["passed"] and real.services() == []
    env.close()


@pytest.mark.bubblewrap
def test_a_lost_sandbox_begins_anew_with_setup_and_services() -> None:
    require(Backend.BUBBLEWRAP)
    env = ClawGymEnv([make(services=SERVICES)], sandbox="bubblewrap")
    env.reset(seed=0)
    env.step(bash("echo mine > notes"))
    kill(env._sandbox)
    info = env.step(bash(f"cat notes out/seed; {ASK} > code.txt"))[-1]
    assert [loss["end"] for loss in info["losses"]] == ["replayed"] and info["exit_code"] == 0
    assert env.step(DONE)[-1]["passed"]
    env.close()


@pytest.mark.bubblewrap
def test_a_task_that_cannot_begin_has_no_reward(real: SupervisedSandbox) -> None:
    env = ClawGymEnv([make(setup=["echo why >&2; exit 3"])], sandbox=real)
    with pytest.raises(SandboxError, match=r"place: setup\[0\]: .* ended with 3: why") as error:
        env.reset(seed=0)
    assert isinstance(error.value, CannotBegin | TaskError)
    assert env.finish("infrastructure")[0] is None
    env.close()


@pytest.mark.bubblewrap
def test_a_question_with_setup_is_laid_out_at_once(real: SupervisedSandbox) -> None:
    asked = make(assertions=[{"kind": "number_equals", "gold": "17"}], oracle={"answer": "#### 17"})
    env = GSM8KEnv([asked], sandbox=real)
    first, _ = env.reset(seed=0)
    assert "out/" in first
    assert "K-17" in env.step(bash("cat out/seed"))[0]
    assert env.step("#### 17")[-1]["passed"]
    env.close()


@pytest.mark.parametrize("kind", [ClawGymEnv, MixedEnv])
def test_images_are_refused_when_an_environment_is_made(kind: Any) -> None:
    tasks = [make(id="a", image="x:1"), make(id="b")]
    with pytest.raises(TaskError) as error:
        kind(tasks, sandbox="landlock")
    assert str(error.value) == (
        "a: asks for the image 'x:1', which only the docker sandbox can give; here it is landlock"
    )
    kind(tasks[1:], sandbox="landlock")
    kind(tasks, sandbox="docker")
    with pytest.raises(TaskError, match="here it is bubblewrap"):
        kind(tasks[1:], task=tasks[0], sandbox="bubblewrap")


@pytest.mark.bubblewrap
def test_a_pool_refuses_images_and_gives_limits() -> None:
    require(Backend.BUBBLEWRAP)
    with SandboxPool(Backend.BUBBLEWRAP, 1) as pool:
        with pytest.raises(TaskError, match="which only the docker sandbox can give; here it is bubblewrap"):
            ClawGymEnv([make(image="x:1")], sandbox=pool)
        env = ClawGymEnv([make(limits={"workspace_mb": 7}), make(id="plain")], sandbox=pool)
        for name, size in (("place", "7"), ("plain", "64"), ("place", "7")):
            env.reset(options={"task": name})
            assert env.step(bash("df -m . | tail -1 | awk '{print $2}'"))[0].split()[-1] == size
            env.finish("max_tokens")
        env.close()


# -- The wall time of an episode --------------------------------------------------------------------------------------


class Clock:
    """What `time.monotonic` says to the turn loop and to recovery."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("envs.conversation.time.monotonic", lambda: self.now)


def timed(seconds: float | None) -> Task:
    return task(schema_version=2, budget={"max_turns": 4, "episode_seconds": seconds})


SOLVE = bash("echo hello > greeting.txt")


@pytest.mark.parametrize(("seconds", "ends_at"), [(10.0, 2), (4.0, 1), (None, None)])
def test_an_episode_ends_with_its_time(
    sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch, seconds: float | None, ends_at: int | None
) -> None:
    env = ClawGymEnv([timed(seconds)], prompt_style="compact")
    clock = Clock(monkeypatch)
    env.reset(seed=0)
    ended = None
    for turn in (1, 2, 3):
        clock.now += 5.0  # commands, and a policy that thinks
        _, reward, terminated, truncated, info = env.step(SOLVE)
        if truncated:
            ended = turn
            assert (terminated, info["stop_reason"], info["passed"]) == (False, "max_seconds", True)
            assert reward == pytest.approx(1.0 - 0.2 * turn / 4)  # as a submission in that turn
            break
    assert ended == ends_at
    env.close()


def test_a_submission_or_the_last_turn_comes_before_the_time(
    sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = ClawGymEnv([timed(1.0)], prompt_style="compact", max_turns=1)
    clock = Clock(monkeypatch)
    for reply, reason in ((DONE, "submitted"), (SOLVE, "max_turns")):
        env.reset(seed=0)
        clock.now += 5.0
        assert env.step(reply)[-1]["stop_reason"] == reason
    env.reset(seed=0)  # the time of an episode begins with it
    assert env.finish("max_seconds")[1]["stop_reason"] == "max_seconds"
    env.close()


def test_playing_a_lost_sandbox_again_does_not_count(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    env = ClawGymEnv([timed(10.0)], prompt_style="compact")
    clock = Clock(monkeypatch)
    env.reset(seed=0)
    lost = env._sandbox
    assert lost is not None
    lost.fail = "run"  # type: ignore[attr-defined]
    env._place.renew, renew = lambda seconds: _slow(clock, renew, seconds), env._place.renew  # type: ignore[method-assign]
    info = env.step(SOLVE)[-1]
    assert [loss["end"] for loss in info["losses"]] == ["replayed"] and info["stop_reason"] is None
    clock.now += 10.0
    assert env.step(SOLVE)[-1]["stop_reason"] == "max_seconds"
    env.close()


def _slow(clock: Clock, renew: Any, seconds: float) -> Any:
    clock.now += 50.0
    return renew(seconds)
