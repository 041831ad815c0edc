from __future__ import annotations

from collections import Counter

import pytest

from sandboxes import Sandbox
from tasks.assertions import AssertionKind
from tasks.assertions.base import leaves
from tasks.families.office.parts import PERSONAS
from tasks.model import TaskError
from tasks.proof import Status, prove
from tasks.sources import FOLDER, load_library, load_tasks
from tasks.task import Difficulty, Oracle, Task
from tests.tasks.sources.library_traps import AFTER_THE_ORACLE, CHEATS, TRAPS

TASKS = load_library()


def test_by_name() -> None:
    assert load_tasks("library") == TASKS
    assert [task.id for task in load_tasks("library:merge-contacts")] == ["merge-contacts"]
    with pytest.raises(TaskError, match="unknown library task 'merge-contact': did you mean 'merge-contacts'?"):
        load_tasks("library:merge-contact")


def test_the_library_is_varied() -> None:
    assert len(TASKS) >= 40
    asked = Counter(task.persona.role for task in TASKS if task.persona)
    assert all(asked[role] >= 5 for role in PERSONAS), asked
    assert {task.difficulty for task in TASKS} == set(Difficulty)
    kinds = {leaf.kind for task in TASKS for top in task.assertions for leaf in (top, *leaves(top))}
    on_answers = {"number_equals", "number_format", "math_equivalent", "math_format", "instruction"}
    assert kinds == set(AssertionKind) - on_answers - {"heard"}  # tasks with a user: test_dialogues.py
    for task in TASKS:
        assert len(task.assertions) >= 4, task.id
        assert len(task.workspace.files) >= 3, task.id
        assert (FOLDER / f"{task.id}.yaml").is_file()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_task_is_proven(task: Task, proving: Sandbox) -> None:
    proof = prove(task, proving)
    assert proof.status is Status.PROVEN, proof.problems
    assert proof.oracle_rate == 1.0
    assert proof.noop_rate is not None and proof.noop_rate <= 0.5
    assert proof.notes == ()
    assert len(set(proof.final_hashes)) == 1


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_hasty_way_fails(task: Task, proving: Sandbox) -> None:
    hasty = task.model_copy(update={"oracle": Oracle(commands=(TRAPS[task.id],))})
    proof = prove(hasty, proving)
    assert proof.status is Status.FAILED
    assert proof.oracle_rate is not None and proof.oracle_rate < 1


@pytest.mark.parametrize(("name", "command"), CHEATS)
def test_cheating_ends_in_a_bad_grade(name: str, command: str, proving: Sandbox) -> None:
    (task,) = load_tasks(f"library:{name}")
    proof = prove(task.model_copy(update={"oracle": Oracle(commands=(command,))}), proving)
    assert proof.status is Status.FAILED
    assert proof.oracle_rate is not None and proof.oracle_rate < 0.8, proof.problems


@pytest.mark.parametrize("name", AFTER_THE_ORACLE)
def test_what_was_left_open_does_not_count(name: str, proving: Sandbox) -> None:
    (task,) = load_tasks(f"library:{name}")
    assert task.oracle is not None
    commands = (*task.oracle.commands, AFTER_THE_ORACLE[name])
    proof = prove(task.model_copy(update={"oracle": Oracle(commands=commands)}), proving)
    assert proof.status is Status.PROVEN, proof.problems
