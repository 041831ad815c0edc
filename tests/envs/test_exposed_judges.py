"""Tasks whose judge runs the agent's programs, in sandboxes that cannot keep the two apart."""

from __future__ import annotations

import pytest

from envs.clawgym import ClawGymEnv
from envs.sandboxed import ExposedJudge
from sandboxes.sandbox import JudgeIsolation
from tests.envs.fakes import FakeSandbox, bash, task

STARTS = {"kind": "command", "command": "python3 made.py", "stdout": "42"}
LOADS = {"kind": "command", "command": 'python3 -c "import made; print(made.f())"', "stdout": "42"}
READS = {"kind": "file_exists", "path": "made.py"}


def played(assertion: dict[str, object], isolation: JudgeIsolation, **settings: object) -> dict[str, object]:
    fake = FakeSandbox()
    fake.judge_isolation = isolation
    with ClawGymEnv([task(assertions=[assertion], oracle=None)], sandbox=fake, **settings) as env:  # type: ignore[arg-type]
        env.reset(seed=0)
        env.step(bash("echo 'print(42)' > made.py"))
        return env.step("TASK_COMPLETE")[-1]


@pytest.mark.parametrize("assertion", [STARTS, LOADS])
def test_they_are_refused_with_the_remedies(assertion: dict[str, object]) -> None:
    with pytest.raises(
        ExposedJudge, match=r"judge_isolation: none.*1 of 1 tasks.*first.*remedy: .*allow_exposed_judges"
    ):
        played(assertion, JudgeIsolation.NONE)


def test_every_result_says_how_its_judge_stood() -> None:
    assert played(STARTS, JudgeIsolation.FULL)["judge_isolation"] == "full"
    assert played(STARTS, JudgeIsolation.NONE, allow_exposed_judges=True)["judge_isolation"] == "none"
    assert played(READS, JudgeIsolation.NONE)["judge_isolation"] == "full"  # it runs nothing
    assert played(LOADS, JudgeIsolation.FULL)["judge_isolation"] == "none"  # no sandbox can help
