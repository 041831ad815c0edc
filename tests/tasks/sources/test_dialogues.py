# ruff: noqa: E501 (one case a line)
"""The tasks with a user that ship: proven, apart from one another, and closed to whoever does not speak or listen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasks.assertions.base import leaves
from tasks.comparable import exact_twins, near_twins
from tasks.model import TaskError
from tasks.oracle import Saying, Step
from tasks.proof import Status, play, prove
from tasks.sources import DIALOGUES, FOLDER, load_library, load_shipped, load_tasks
from tests.tasks.fake_sandbox import FakeSandbox

TASKS = {task.id: task for task in load_library(DIALOGUES)}

WRONG: dict[str, list[list[Step]]] = {
    "count-and-tell": [
        [Saying(say="1, 2, 3, 4 or 5?"), "rm old.csv"],
        ["awk -F, 'NR > 1 && $2 > 50' readings.csv > high-77.csv; rm old.csv"],
    ],
    "error-code": [[Saying(say="It is U-2207."), "sed -i 's/2121/990/; s/plain/tls/; s/= 3/= 9/' upload.conf"]],
    "handover": [[Saying(say="Who takes search, login and mail?"), "sed -i '/^ina$/d' people.txt"]],
    "house-style": [["sed -i 's/cart/trolley/; s/Cart/Trolley/' texts/*; echo 'cart = trolley (since 2031-04)' > words.txt"]],
    "new-client": [[Saying(say="Name?"), "mkdir clients/quarzwerk-sued"]],
    "old-backups": [
        [Saying(say="May I delete all?"), "rm backups/2022-*; touch backups/KEEP-2033; echo 2021-audit.tar > left.txt"],
        # Asks when it is done, and does what was refused.
        ["rm backups/2022-*; touch backups/KEEP-2033; echo 2021-audit.tar > left.txt", Saying(say="May spring go?"), Saying(say="May autumn go?")],
        [Saying(say="Audit?"), Saying(say="Spring?"), Saying(say="Autumn?"), "rm backups/20*; touch backups/KEEP-2033; echo 2021-audit.tar > left.txt"],
    ],
    "release-notes": [
        ["echo 3.0.0rc1 > VERSION; sed -i '0,/^- /s/^- /## 3.0.0rc1 (2031-05-02)\\n\\n- /' CHANGES.md"],
        [Saying(say="Take 2.8.0?"), "echo 3.0.0rc1 > VERSION; sed -i '0,/^- /s/^- /## 3.0.0rc1 (2031-05-02)\\n\\n- /' CHANGES.md"],
    ],
    "table-plan": [[Saying(say="Where do Arndt, Bellini and Castro sit?"), "printf 'Arndt: table 7\\n' > plan.txt"]],
    "which-meyer": [["sed -i '/311/s/open/paid/' invoices.csv; echo 311 bank 77 >> paid.txt", Saying(say="Which one is it?")]],
    "within-budget": [["printf 'Lumo\\nNordlicht\\nKerze\\n' > shops.txt; echo Lumo > order-318.txt"]],
}  # fmt: skip
"""What somebody hasty does: guesses, asks for everything at once, asks afterwards, does what was refused."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def test_by_name_and_apart_from_the_library() -> None:
    assert load_tasks("library:dialogues") == list(TASKS.values()) and len(TASKS) == 10
    assert [task.id for task in load_tasks("library:old-backups")] == ["old-backups"]
    with pytest.raises(TaskError, match="unknown library task 'dialogue': did you mean 'dialogues'?"):
        load_tasks("library:dialogue")
    assert not {task.id for task in load_library()} & set(TASKS)
    assert exact_twins(load_shipped()) == [] and near_twins(load_shipped()) == []


@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_proven_and_needs_its_turns(name: str, sandbox: FakeSandbox) -> None:
    task = TASKS[name]
    proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN, proof.problems
    assert proof.oracle_rate == 1.0 and proof.noop_rate is not None and proof.noop_rate < 0.5
    assert task.turns is not None and task.turns >= 3 and len(proof.notes) == 4  # turns and user, of two ways
    assert task.oracle is not None and not task.oracle.may_survive and task.oracle.alternatives
    assert (FOLDER / "dialogues" / f"{name}.yaml").is_file() and task.persona and len(task.workspace.files) >= 2


@pytest.mark.parametrize("name", TASKS)
def test_who_does_not_ask_or_does_what_was_refused_does_not_pass(name: str, sandbox: FakeSandbox) -> None:
    for steps in WRONG[name]:
        run = play(TASKS[name], sandbox, steps)
        assert not run.grade.passed and run.grade.errors == (), steps


def test_they_hold_every_kind_of_rule() -> None:
    users = [task.user for task in TASKS.values() if task.user]
    rules = [rule for user in users for rule in user.rules]
    assert sum(rule.request for rule in rules) >= 8 and any(rule.again for rule in rules)
    assert {key for rule in rules for key in rule.when.model_dump(exclude_none=True)} == {"says", "turn", "file"}
    kinds = {str(leaf.kind) for task in TASKS.values() for item in task.assertions for leaf in leaves(item)}
    assert "heard" in kinds and sum(any(item.on_files for item in task.assertions) for task in TASKS.values()) == 10
