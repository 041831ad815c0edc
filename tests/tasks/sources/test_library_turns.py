from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks.families.turns.__main__ import seal
from tasks.families.turns.sealing import written
from tasks.model import TaskError
from tasks.mutants import cheats, damaged
from tasks.oracle import command_of, replies
from tasks.proof import grade_end, play
from tasks.sources import FOLDER, TURNS, load_library, load_tasks
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox
from tests.tasks.families.test_turns import follow

TASKS = load_library(TURNS)
A_FEW = ("harbour-crane", "mail-quarantine", "modes-audit", "paper-chase", "timer-cases", "zone-transfer")
"""One of each kind of observation; `python -m tasks check --all` proves every one."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def test_they_are_a_shelf_of_their_own() -> None:
    assert len(TASKS) >= 30 and load_tasks("library:turns") == TASKS
    assert not {task.id for task in TASKS} & {task.id for task in load_library()}
    assert load_tasks("library:harbour-crane")[0] in TASKS
    assert all((FOLDER / TURNS / f"{task.id}.yaml").is_file() for task in TASKS)
    assert {task.turns for task in TASKS} >= {3, 4, 5, 6, 7, 8, 10}
    with pytest.raises(TaskError, match="unknown library task 'harbor-crane': did you mean 'harbour-crane'"):
        load_tasks("library:harbor-crane")


@pytest.mark.parametrize(
    "task",
    [task if task.id in A_FEW else pytest.param(task, marks=pytest.mark.whole) for task in TASKS],
    ids=lambda task: task.id,
)
def test_each_reply_makes_progress_and_only_all_of_them_pass(task: Task, sandbox: FakeSandbox) -> None:
    rates, said, end = follow(task, sandbox)
    assert task.turns is not None and task.oracle is not None
    assert task.turns == len(said) == len(replies(task.oracle.commands)) < task.budget.max_turns
    assert rates[0] <= 0.5 and rates[-1] == 1.0
    assert sum(after > before for before, after in zip(rates, rates[1:], strict=False)) >= task.turns - 1, rates
    joined = play(task, sandbox, ["\n".join(command_of(step) for step in task.oracle.commands)])
    assert joined.grade.rate is not None and joined.grade.rate < 1
    on_files = task.model_copy(update={"assertions": tuple(item for item in task.assertions if item.on_files)})
    if on_files.assertions == task.assertions:  # a grader's command for each mutant takes its time: `tasks check` does
        for wrong in (*damaged(end.initial, end.files), *cheats(task.intent, end.initial, end.files)):
            assert not grade_end(on_files, sandbox, type(end)(wrong.files, end.initial)).passed, wrong.name


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_program_is_what_the_metadata_say(task: Task) -> None:
    source = (task.files()[task.metadata["program"]].content or b"").decode()
    assert source == written(task.metadata), f"python -m tasks.families.turns tasks/library/turns/{task.id}.yaml"
    laid = "".join((entry.content or b"").decode() for entry in task.files().values())
    assert not [page for page in task.metadata["pages"] if page["text"] in laid]


def test_pages_are_sealed_anew_after_an_edit(tmp_path: Path) -> None:
    path = Path(shutil.copy(FOLDER / TURNS / "mail-quarantine.yaml", tmp_path))
    assert not seal(path)
    text = path.read_text()
    changed = re.sub(r"our own lottery\s+club", "our own sports club", text)
    assert changed != text
    path.write_text(changed)
    assert seal(path) and not seal(path)
    path.write_text(text.replace("program: scan", "program: sound"))
    with pytest.raises(ValueError, match="the workspace has no file 'sound'"):
        seal(path)
