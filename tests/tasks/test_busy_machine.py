"""Judges on a machine that hostile ones keep busy: the time that an honest judge waits for a core is not its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandboxes import Backend, open_sandbox, probe
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.assertions.grader import SandboxGrader
from tasks.task import Task

BURNS = "while True: pass"
WORKS = """
import json, time
begin = time.process_time()
while time.process_time() - begin < 0.15: pass
print(json.dumps({"right": open("out.txt").read() == "42\\n"}))
"""


def task(name: str, program: str, seconds: float) -> Task:
    script = {"kind": "script", "name": "s", "command": 'python3 -I "$GRADER/c.py"', "files": {"c.py": program}}
    return Task.model_validate({"id": name, "intent": "do", "assertions": [{**script, "timeout": seconds}]})


HONEST, HOSTILE = task("honest", WORKS, 0.5), task("hostile", BURNS, 0.5)


@pytest.mark.xdist_group("vllm")  # not while a real server needs the cores
@pytest.mark.parametrize("count", [6, pytest.param(1000, marks=[pytest.mark.whole, pytest.mark.timeout(1800)])])
def test_hostile_judges_change_no_honest_verdict(count: int) -> None:
    backend = next((b for b in (Backend.BUBBLEWRAP, Backend.LANDLOCK) if probe(b).ok), None)
    if backend is None:
        pytest.skip("neither bubblewrap nor landlock works here")
    over = threading.Event()

    def burn() -> list[str]:
        found = []
        with open_sandbox(backend) as sandbox:
            while not over.is_set():
                sandbox.open({})
                outcome = Outcome(sandbox.snapshot(), {}, grader=SandboxGrader(sandbox, HOSTILE))
                found += [str(result.verdict) for result in grade(HOSTILE, outcome).results]
        return found

    def judge(numbers: range) -> list[str]:
        wrong = []
        with open_sandbox(backend) as sandbox:
            for number in numbers:
                right = number % 2 == 0
                sandbox.open({"out.txt": "42\n" if right else "41\n"})
                outcome = Outcome(sandbox.snapshot(), {}, grader=SandboxGrader(sandbox, HONEST))
                (result,) = grade(HONEST, outcome).results
                if result.verdict != ("pass" if right else "fail") or result.broke:
                    wrong.append(f"{number}: {result}")
        return wrong

    with ThreadPoolExecutor(10) as threads:
        hostile = [threads.submit(burn) for _ in range(8)]
        try:
            honest = [threads.submit(judge, range(half, count, 2)) for half in range(2)]
            wrong = [line for each in honest for line in each.result()]
        finally:
            over.set()
        verdicts = {verdict for each in hostile for verdict in each.result()}
    assert wrong == []
    assert verdicts <= {"error"}  # on the untouched workspace it burns as well: the task is at fault
