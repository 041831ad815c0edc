"""Tasks that are judged by commands and scripts: only at the end, in clean state, and never by a failure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from envs.clawgym import ClawGymEnv
from envs.conversation import StopReason
from sandboxes import Backend, SandboxError, SandboxPool, open_sandbox, probe
from tasks.assertions.grade import GradeError
from tests.envs.fakes import FakeSandbox, bash, task

CHECK = """
import json, os, sys
said = json.load(open(os.path.join(os.path.dirname(__file__), "payload.json")))
print(json.dumps({"file": os.path.exists("greeting.txt"), "said": "done" in (said["final_message"] or ""), "n": min(1, len(said["transcript"]) / 4)}))
"""  # noqa: E501
SCRIPT = {
    "kind": "script",
    "name": "s",
    "files": {"check.py": CHECK},
    "payload": {"task_id": "first"},
    "command": 'python3 -I "$GRADER/check.py"',
}
COMMAND = {"kind": "command", "name": "c", "command": "grep -q hello greeting.txt"}
FILE = {"kind": "file_exists", "name": "f", "path": "greeting.txt"}


@pytest.fixture
def fake() -> Iterator[FakeSandbox]:
    fake = FakeSandbox()
    yield fake
    fake.close()


def env_of(fake: Any, *assertions: dict[str, Any], **settings: Any) -> ClawGymEnv:
    return ClawGymEnv([task(assertions=list(assertions))], sandbox=fake, prompt_style="compact", **settings)


WRITE = bash("echo hello > greeting.txt")


def test_sub_scores_stand_in_info_and_make_the_rate(fake: FakeSandbox) -> None:
    env = env_of(fake, SCRIPT)
    env.reset(seed=0)
    env.step(WRITE)
    *_, info = env.step("done\nTASK_COMPLETE")
    scores = {record["name"]: record["score"] for record in info["assertions"]}
    assert scores == {"s.file": 1.0, "s.said": 1.0, "s.n": 1.0} and info["passed"]
    json.dumps(info)
    assert env.reset(seed=0)[1]["turn"] == 0
    *_, info = env.step("done\nTASK_COMPLETE")
    assert info["rate"] == pytest.approx((0 + 1 + 0.5) / 3)


def test_turns_ask_no_grader_and_their_signal_is_that_of_the_files(fake: FakeSandbox) -> None:
    env = env_of(fake, SCRIPT, COMMAND, FILE)
    env.reset(seed=0)
    before = fake.calls.count("run")
    *_, info = env.step(WRITE)
    assert fake.calls.count("run") == before + 1 and info["signal"] == 1.0
    env = env_of(fake, SCRIPT)
    env.reset(seed=0)
    assert env.step(WRITE)[4]["signal"] is None


@pytest.mark.parametrize("reward", ["shaped", "binary"])
def test_the_baseline_is_measured_once_and_nothing_of_it_stays(fake: FakeSandbox, reward: str) -> None:
    marks = {"kind": "command", "name": "m", "command": "[ ! -e mark ] && touch mark"}
    env = env_of(fake, COMMAND, marks, reward=reward, subtract_baseline=reward == "shaped", turn_penalty=0.0)
    env.reset(seed=0)
    runs = fake.calls.count("run")
    _, reward_of_nothing, *_, info = env.step("TASK_COMPLETE")
    assert info["rate"] == 0.5 and reward_of_nothing == 0.0
    env.reset(seed=0)
    if reward == "shaped":
        assert runs > 0
    assert not (fake.root / "mark").exists()
    env.step(WRITE)
    _, gained, *_, info = env.step("TASK_COMPLETE")
    assert info["passed"] and gained == 1.0


def test_the_delta_reward_of_a_graders_task_comes_at_the_end(fake: FakeSandbox) -> None:
    env = env_of(fake, COMMAND, FILE, reward="delta")
    env.reset(seed=0)
    assert env.step(WRITE)[1] == 0.0
    assert env.step("TASK_COMPLETE")[1] == 1.0


def test_a_grader_that_fails_leaves_no_reward(fake: FakeSandbox) -> None:
    for program in ("print(float('nan'))", "raise SystemExit(1)", "print(1.5)", ""):
        env = env_of(fake, {**SCRIPT, "files": {"check.py": program}}, FILE)
        env.reset(seed=0)
        env.step(WRITE)
        with pytest.raises(GradeError, match="task 'first' could not be graded: s: the s"):
            env.step("TASK_COMPLETE")


def dead() -> FakeSandbox:
    raise SandboxError("no other sandbox can be opened")


def test_a_sandbox_lost_while_grading_is_infrastructure(fake: FakeSandbox) -> None:
    env = env_of(fake, FILE, SCRIPT, COMMAND)
    env.reset(seed=0)
    env.step(WRITE)
    fake.fail, fake.maker = "run", dead
    with pytest.raises(SandboxError, match="broken at run"):
        env.step("TASK_COMPLETE")
    reward, info = env.finish(StopReason.INFRASTRUCTURE)
    assert reward is None and "rate" not in info and info["stop_reason"] == "infrastructure"


@pytest.mark.bubblewrap
def test_in_real_sandboxes_of_a_pool_and_at_a_budget() -> None:
    if not probe(Backend.BUBBLEWRAP).ok:
        pytest.skip("bubblewrap does not work here")
    with SandboxPool(Backend.BUBBLEWRAP, 1) as pool:
        env = env_of(pool, SCRIPT, COMMAND, FILE, subtract_baseline=True)
        for _ in range(2):
            env.reset(seed=0)
            observation = env.step(
                bash("ls -A /tmp; env | grep GRADER; python3() { echo 1; }; echo hello > greeting.txt")
            )
            assert "turngym" not in observation[0] and "GRADER" not in observation[0]
            reward, info = env.finish("max_tokens")
            assert {r["name"]: r["score"] for r in info["assertions"]} == {
                "s.file": 1.0,
                "s.said": 0.0,
                "s.n": 0.75,
                "c": 1.0,
                "f": 1.0,
            }
            assert reward is not None and 0 < reward < 1
        env.close()


@pytest.mark.bubblewrap
def test_a_fixed_workdir_holds_for_agent_and_grader() -> None:
    if not probe(Backend.BUBBLEWRAP).ok:
        pytest.skip("bubblewrap does not work here")
    where = {"kind": "command", "command": 'echo "$PWD $WORKSPACE"', "stdout": "/data/work /data/work"}
    with open_sandbox(Backend.BUBBLEWRAP) as sandbox:
        env = ClawGymEnv([task(assertions=[where], workdir="/data/work")], sandbox=sandbox, prompt_style="compact")
        env.reset(seed=0)
        assert "/data/work" in env.step(bash("pwd"))[0]
        assert env.step("TASK_COMPLETE")[4]["passed"]
