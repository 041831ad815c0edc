"""The real upstream tasks: ours must score what upstream's own `reward.sh` prints, before and after an agent's work."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import open_sandbox
from sandboxes.sandbox import Sandbox, SandboxUnavailable
from tasks.assertions.base import Outcome
from tasks.assertions.grade import Grade, grade
from tasks.assertions.grader import SandboxGrader
from tasks.place import begin
from tasks.sources import load_tasks
from tasks.sources.clawgym import Folder, read_folders
from tasks.task import Task
from tests.shared_data import shared
from tests.tasks.sources.upstream import attempt, upstream_score

EVAL = "data/clawgym/clawgym_eval.tar.xz"
TRAIN = "data/clawgym/clawgym_train.tar.xz"
pytestmark = pytest.mark.bubblewrap


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    try:
        opened = open_sandbox("bubblewrap")
        opened.open({})
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
    with opened:
        yield opened


def our_grade(task: Task, sandbox: Sandbox, commands: list[str]) -> Grade:
    begin(task, sandbox)
    initial = sandbox.snapshot()
    for command in commands:
        sandbox.run(command)
    return grade(task, Outcome(sandbox.snapshot(), initial, grader=SandboxGrader(sandbox)))


def compare(task: Task, folder: Folder, sandbox: Sandbox, commands: list[str]) -> str:
    """Say how our verdict differs from upstream's; empty if it does not. A judge that fails is an error for us."""
    ours = our_grade(task, sandbox, commands)
    theirs, stderr = upstream_score(folder, sandbox, commands)
    if theirs is None:
        return (
            "" if ours.rate is None and ours.errors else f"{task.id}: rate {ours.rate}, theirs fails: {stderr[-200:]}"
        )
    if ours.rate is None:
        return f"{task.id}: theirs {theirs}, ours errs: {ours.errors[0].detail}"
    return "" if math.isclose(ours.rate, theirs, abs_tol=1e-9) else f"{task.id}: theirs {theirs}, ours {ours.rate}"


def folders_of(archive: Path) -> dict[str, Folder]:
    return {folder.name: folder for folder in read_folders(archive)}


def test_every_evaluation_task_scores_what_upstream_prints(sandbox: Sandbox) -> None:
    archive = shared(EVAL)
    folders = folders_of(archive)
    tasks = load_tasks(f"clawgym:{archive}")
    assert len(tasks) == 140
    differences = [compare(task, folders[task.id], sandbox, []) for task in tasks]
    assert [line for line in differences if line] == []


def test_work_half_done_scores_what_upstream_prints(sandbox: Sandbox) -> None:
    archive = shared(EVAL)
    folders = folders_of(archive)
    moved: list[str] = []
    problems: list[str] = []
    for task in load_tasks(archive)[:30]:
        commands = attempt(task)
        before, after = our_grade(task, sandbox, []), our_grade(task, sandbox, commands)
        problems.append(compare(task, folders[task.id], sandbox, commands))
        if before.rate is not None and after.rate is not None and before.rate < after.rate < 1:
            moved.append(task.id)
    assert [line for line in problems if line] == []
    assert len(moved) >= 5, "the scripted agent earns too little for this test to mean something"


def test_a_sample_of_the_training_tasks(sandbox: Sandbox) -> None:
    archive = shared(TRAIN)
    folders = folders_of(archive)
    tasks = random.Random(0).sample(load_tasks(archive), len(folders) // 100)
    problems = [
        compare(task, folders[task.id], sandbox, commands) for task in tasks for commands in ([], attempt(task))
    ]
    assert [line for line in problems if line] == []


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.timeout(3600)
def test_all_training_tasks(sandbox: Sandbox) -> None:
    archive = shared(TRAIN)
    folders = folders_of(archive)
    tasks = load_tasks(archive)
    assert len(tasks) == 1900
    problems = [
        compare(task, folders[task.id], sandbox, commands) for task in tasks for commands in ([], attempt(task))
    ]
    assert [line for line in problems if line] == []


def test_doing_nothing_does_not_pass_and_repeats(sandbox: Sandbox) -> None:
    for task in random.Random(1).sample(load_tasks(shared(EVAL)), 12):
        first, second = our_grade(task, sandbox, []), our_grade(task, sandbox, [])
        assert not first.passed and first == second, task.id
