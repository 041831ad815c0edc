"""An agent that works its answers out with python3 in a real sandbox: on our problems, and on the public set's.

It is scripted: of each problem it is told the steps as expressions (from the solution's annotations), not one result.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from envs.questions import GSM8KEnv
from sandboxes import Backend, SandboxPool, probe
from tasks.sources import load_tasks
from tasks.task import Task
from tests.envs.fakes import bash
from tests.shared_data import shared

STEP = re.compile(r"<<([^=<>]+)=([^<>]+)>>")


@pytest.fixture(
    params=[pytest.param(Backend.BUBBLEWRAP, marks=pytest.mark.bubblewrap), Backend.LANDLOCK], ids=lambda b: str(b)
)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    found = probe(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not work here: {found.reason}")
    with SandboxPool(request.param, size=1) as pool:
        yield pool


def steps(task: Task) -> list[str]:
    """The left sides of the solution's annotations, as Python."""
    assert task.oracle is not None and task.oracle.answer is not None
    return [side.replace(",", "").replace("%", "/100").strip() for side, _ in STEP.findall(task.oracle.answer)]


def solve(env: GSM8KEnv, task: Task) -> dict[str, object]:
    """One episode: lay the steps into a file, run it, answer with what it printed last."""
    observation, info = env.reset(seed=0, options={"task": task})
    assert observation.startswith(task.intent)
    program = "\n".join(f"print(round({step}, 6))" for step in steps(task))
    write = bash(f"cat > a.py <<END\n{program}\nEND")
    observation, reward, terminated, _, info = env.step(f"I write it down.\n{write}")
    assert (info["exit_code"], reward, terminated) == (0, 0.0, False)
    observation, _, _, _, info = env.step(bash("python3 a.py"))
    assert info["exit_code"] == 0, observation
    result = observation.split()[-1]
    _, _, terminated, _, info = env.step(f"The program says {result}.\n#### {result}")
    assert terminated and info["turn"] == 3
    return info


def play(pool: SandboxPool, tasks: Sequence[Task]) -> list[str]:
    env = GSM8KEnv(tasks, sandbox=pool, prompt_style="compact")
    failed = [task.id for task in tasks if not solve(env, task)["passed"]]
    env.close()
    assert not pool._lent
    return failed


def test_it_solves_the_sample(pool: SandboxPool) -> None:
    tasks = load_tasks("gsm8k:sample")
    assert len(tasks) >= 40 and play(pool, tasks) == []


def test_it_solves_real_problems(pool: SandboxPool) -> None:
    folder: Path = shared("data/gsm8k")
    told = [task for task in load_tasks(f"gsm8k:{folder}?split=test") if _ends_with_its_last_step(task)]
    assert len(told) > 800
    assert play(pool, told[::25]) == []


def _ends_with_its_last_step(task: Task) -> bool:
    """Whether the last annotation of the solution is about the answer, and Python can read its steps."""
    assert task.oracle is not None and task.oracle.answer is not None
    found = STEP.findall(task.oracle.answer)
    plain = all(re.fullmatch(r"[\d+*/(). -]+", step) for step in steps(task))
    return bool(found) and plain and found[-1][1].strip() == task.oracle.answer.rpartition("#### ")[2]
