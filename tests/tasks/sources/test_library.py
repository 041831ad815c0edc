from __future__ import annotations

import pytest

from sandboxes import open_sandbox
from sandboxes.sandbox import SandboxUnavailable
from tasks.assertions import AssertionKind
from tasks.lint import Status, prove
from tasks.problems import TaskError
from tasks.sources import library, load_tasks
from tasks.task import Difficulty, Oracle, Task
from tests.tasks.fake_sandbox import FakeSandbox

TASKS = library.load()


def test_by_name() -> None:
    assert load_tasks("library") == TASKS
    assert [task.id for task in load_tasks("library:merge-contacts")] == ["merge-contacts"]
    with pytest.raises(TaskError, match="unknown library task 'merge-contact': did you mean 'merge-contacts'?"):
        load_tasks("library:merge-contact")


def test_the_library_is_varied() -> None:
    assert len(TASKS) >= 8
    assert {task.difficulty for task in TASKS} == set(Difficulty)
    assert {assertion.kind for task in TASKS for assertion in task.assertions} == set(AssertionKind)
    for task in TASKS:
        assert len(task.assertions) >= 4, task.id
        assert len(task.workspace.files) >= 3, task.id
        assert (library.FOLDER / f"{task.id}.yaml").is_file()


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_every_task_is_proven(task: Task) -> None:
    with FakeSandbox() as sandbox:
        proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN, proof.problems
    assert proof.oracle_rate == 1.0
    assert proof.noop_rate is not None and proof.noop_rate <= 0.5
    assert proof.notes == ()
    assert len(set(proof.final_hashes)) == 1


def test_every_task_is_proven_in_a_real_sandbox() -> None:
    try:
        sandbox = open_sandbox("auto")
    except SandboxUnavailable as reason:
        pytest.skip(str(reason))
    with sandbox:
        for task in TASKS:
            proof = prove(task, sandbox)
            assert proof.status is Status.PROVEN, (task.id, proof.problems)


TRAPS = {
    "archive-old-logs": "mkdir -p archive/2023; mv logs/*2023* logs/*/*2023* archive/2023/",
    "bump-version": "grep -rl 1.4.2 . | xargs sed -i s/1.4.2/1.5.0/; rm RELEASE_PENDING",
    "change-port": "find services -type f | xargs -d '\\n' sed -i s/8080/9090/g",
    "invoice-totals": "rm invoices/2024-004.txt",
    "leaked-key": "grep -rl quill-live . > leaks.txt; echo .env >> .gitignore",
    "meeting-actions": "grep -h -F '- [ ]' minutes/*.md > actions/maya.md",
    "merge-contacts": "cat contacts/*.csv | sort -u > all.csv",
    "release-links": "ln -sf releases/1.10.0 current",
    "rename-photos": 'tail -n +2 names.csv | while IFS=, read -r old new; do mv "photos/$old" "photos/$new"; done',
    "repair-backup-script": "rm backup/.lock; bash tools/backup.sh",
    "start-project": "mkdir src tests; cp main.py src/; cp test_main.py tests/",
    "stock-difference": "comm -23 stock/monday.txt stock/friday.txt > sold.txt",
}
"""What a hasty agent does: it must not pass."""


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_the_hasty_way_fails(task: Task) -> None:
    hasty = task.model_copy(update={"oracle": Oracle(commands=(TRAPS[task.id],))})
    with FakeSandbox() as sandbox:
        proof = prove(hasty, sandbox)
    assert proof.status is Status.FAILED
    assert proof.oracle_rate is not None and proof.oracle_rate < 1
