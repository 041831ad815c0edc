"""The property on whole tasks: what ships, and upstream's evaluation set."""

from __future__ import annotations

import pytest

from tasks.assertions.script import Script
from tasks.check import with_judges
from tasks.commands import list_tasks
from tasks.families import ALL_FAMILIES
from tasks.judges import JudgeUse
from tasks.proof import Proof
from tasks.show import describe
from tasks.sources import load_tasks
from tasks.task import Task
from tasks.yaml import parse_task
from tests.shared_data import REPOSITORY, shared

IMPORTING = {"task_0012", "task_0032", "task_0059", "task_0119", "task_0157", "task_0181"}
"""Judges of the evaluation set that load the agent's code, by reading all of them."""
STARTING = {"0006", "0025", "0032", "0047", "0050", "0057", "0112", "0115", "0119", "0183", "0194", "0196", "0199"}
"""Those that start programs; two of them load code as well."""

TRAINING = """
0102 0275 0336 0349 0380 0429 0447 0522 0778 0805 0949 0975 1027 1051 1097 1259 1266 1344 1384 1639 1641 1642 1659 1684
1708 1745 1786 1894 1943 1957 1980
"""
"""Those of the training set that load it, likewise; 139 start programs."""


def made(**more: object) -> Task:
    script = {"kind": "script", "name": "report", "command": 'python3 -I "$GRADER/check.py"', "weight": 2}
    files = {"check.py": "import runpy\n\nrunpy.run_path('config.py')\n"}
    return Task.model_validate({"id": "a", "intent": "b", "assertions": [{**script, "files": files}], **more})


def test_a_task_says_what_its_judges_do() -> None:
    task = made()
    assert task.judge_use is JudgeUse.IN_PROCESS
    (finding,) = task.judge_findings
    assert str(finding) == "report, check.py:3: runpy.run_path('config.py') runs a file in the judge"
    plain = task.model_copy(update={"assertions": load_tasks("library:calculator")[0].assertions})
    assert plain.judge_use is JudgeUse.STARTS
    assert load_tasks("library:bump-version")[0].judge_use is JudgeUse.NEITHER


def test_assertions_inside_others_count() -> None:
    inner = {"kind": "command", "command": ". ./lib.sh"}
    task = made(assertions=[{"kind": "not", "name": "outer", "of": {"kind": "any_of", "of": [inner]}}])
    assert [str(f) for f in task.judge_findings] == ["outer, command:1: source ./lib.sh"]


def test_a_script_has_a_safe_path_and_a_command_has_not() -> None:
    command = "python3 -c 'import json'"
    assert made(assertions=[{"kind": "command", "command": command}]).judge_use is JudgeUse.IN_PROCESS
    assert made(assertions=[{"kind": "script", "command": command}]).judge_use is JudgeUse.NEITHER


def test_check_notes_it_and_fails_what_ships() -> None:
    proof = Proof("a", "hash", 1.0, 0.0, ("x",), ("y",))
    (note,) = with_judges(made(), proof).notes
    assert "report, check.py:3: runpy.run_path('config.py')" in note and "subprocess.run" in note
    assert "runs the agent's code in its own process" in note
    shipped = with_judges(made(family=next(iter(ALL_FAMILIES))), proof)
    assert shipped.problems == (note,) and shipped.notes == ()
    assert with_judges(load_tasks("library:failing-test")[0], proof) is proof


def test_list_and_show_mark_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    task = made()
    assert "in-process judge: report, check.py:3: runpy.run_path('config.py')" in describe(task)
    monkeypatch.setattr("tasks.commands.load_tasks", lambda spec: [task, load_tasks("library:calculator")[0]])
    list_tasks("any")
    lines = capsys.readouterr().out.splitlines()
    assert [line.endswith("in-process judge") for line in lines[1:3]] == [True, False]


def test_the_safe_form_of_the_documentation_only_starts_programs() -> None:
    text = (REPOSITORY / "docs/judges.md").read_text(encoding="utf-8").split("## Judges and the agent's code")[1]
    example = text.split("```yaml\n")[1].split("```")[0]
    task = parse_task(f"id: a\nintent: b\n{example}")
    assert task.judge_use is JudgeUse.STARTS


def test_no_task_that_ships_has_one() -> None:
    tasks = [*load_tasks("library"), *load_tasks([f"generated:{family}?n=5" for family in ALL_FAMILIES])]
    assert [task.id for task in tasks if task.judge_use is JudgeUse.IN_PROCESS] == []
    assert any(isinstance(item, Script) for task in tasks for item in task.assertions)


def test_the_evaluation_set_of_upstream() -> None:
    tasks = load_tasks(f"clawgym:{shared('data/clawgym/clawgym_eval.tar.xz')}")
    assert {task.id for task in tasks if task.judge_use is JudgeUse.IN_PROCESS} == IMPORTING
    starting = {task.id for task in tasks if any(f.use is JudgeUse.STARTS for f in task.judge_findings)}
    assert starting == {f"task_{number}" for number in STARTING}


@pytest.mark.slow
def test_the_training_set_of_upstream() -> None:
    tasks = load_tasks(f"clawgym:{shared('data/clawgym/clawgym_train.tar.xz')}")
    loading = {task.id for task in tasks if task.judge_use is JudgeUse.IN_PROCESS}
    assert loading == {f"task_{number}" for number in TRAINING.split()}
    assert sum(any(f.use is JudgeUse.STARTS for f in task.judge_findings) for task in tasks) == 139
