from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

import pytest

from sandboxes import Sandbox
from tasks.assertions.base import AssertionKind, leaves
from tasks.assertions.files import FileUnchanged
from tasks.families import ALL, ALL_FAMILIES, FAMILIES, OFFICE, OFFICE_MIX, generate
from tasks.families.office.parts import PERSONAS
from tasks.proof import Status, play, prove
from tasks.sources import load_tasks
from tasks.task import Difficulty, Oracle, Task

MANY = 60


@pytest.fixture(scope="module")
def by_family() -> dict[str, list[Task]]:
    return {name: generate(name, MANY, seed=0) for name in OFFICE}


def test_there_are_enough_and_no_name_is_taken_twice() -> None:
    assert len(OFFICE) >= 25
    assert not set(OFFICE) & set(FAMILIES)
    assert not set(OFFICE) - set(ALL_FAMILIES)


@pytest.mark.parametrize("family", OFFICE)
def test_both_ways_solve_it_and_doing_nothing_does_not(family: str, proving: Sandbox) -> None:
    (task,) = generate(family, 1, seed=8)
    assert task.oracle is not None
    for commands in task.oracle.ways:
        proof = prove(task.model_copy(update={"oracle": Oracle(commands=commands)}), proving)
        assert proof.status is Status.PROVEN, (task.id, commands, proof.problems)
        assert proof.noop_rate is not None and proof.noop_rate <= 0.5, task.id
        assert proof.notes == ()


def test_oracles_are_single_lines_and_the_alternative_has_a_here_document(by_family: dict[str, list[Task]]) -> None:
    for tasks in by_family.values():
        for task in tasks:
            assert task.oracle is not None
            assert all("\n" not in command for command in task.oracle.commands), task.id
            (other,) = task.oracle.alternatives
            assert any("<<'EOF'" in command for command in other), task.id
            assert max(len(task.oracle.commands), len(other)) < task.budget.max_turns, task.id


@pytest.mark.parametrize("family", OFFICE)
def test_half_an_oracle_is_not_enough(family: str, by_family: dict[str, list[Task]], proving: Sandbox) -> None:
    task = next(task for task in by_family[family])
    assert task.oracle is not None
    if len(task.oracle.commands) > 1:
        half = task.model_copy(update={"oracle": Oracle(commands=task.oracle.commands[:1])})
        assert prove(half, proving).status is Status.FAILED


def test_three_levels_several_phrasings_and_several_personas(by_family: dict[str, list[Task]]) -> None:
    asked: Counter[str] = Counter()
    for name, tasks in by_family.items():
        assert {task.difficulty for task in tasks} == set(Difficulty), name
        assert len({task.intent.split()[0:3].__str__() for task in tasks}) >= 3, name
        roles = {task.persona.role for task in tasks if task.persona}
        assert len(roles) >= 2, name
        asked.update(roles)
    assert set(asked) == set(PERSONAS) and len(PERSONAS) == 8


def test_intents_name_what_is_judged(by_family: dict[str, list[Task]]) -> None:
    for tasks in by_family.values():
        for task in tasks:
            assert len(task.intent) >= 80, task.intent
            places = set(re.findall(r"{.*?}", task.intent))
            assert places <= {"{name}", "{amount}", "{date}"} and (task.family == "mail_merge" or not places)
            assert len(task.assertions) >= 2, task.id
            for assertion in task.assertions:
                path = getattr(assertion, "path", None)
                if path is not None and not isinstance(assertion, FileUnchanged):
                    top = path.split("/")[0]
                    stands_below_a_named_folder = top in task.intent or any(
                        words in task.intent for words in (" .txt files", "tree that", "outlines", "create all of it")
                    )
                    named = path in task.intent or stands_below_a_named_folder or "plan.txt" in task.intent
                    assert named, (task.id, path)


def test_many_kinds_of_assertion_are_used(by_family: dict[str, list[Task]]) -> None:
    kinds = {leaf.kind for tasks in by_family.values() for task in tasks for a in task.assertions for leaf in leaves(a)}
    assert {
        AssertionKind.FILE_EQUALS,
        AssertionKind.JSON_VALUE,
        AssertionKind.YAML_VALUE,
        AssertionKind.CSV_CELL,
        AssertionKind.CSV_ROWS,
        AssertionKind.FILE_MODE,
        AssertionKind.COMMAND,
        AssertionKind.DIR_EXISTS,
        AssertionKind.FILE_COUNT,
    } <= kinds


def test_the_same_seed_gives_the_same_bytes_in_another_process() -> None:
    program = (
        "import hashlib\nfrom tasks.families import generate\n"
        "text = ''.join(t.model_dump_json() for t in generate('all', 130, 4))\n"
        "print(hashlib.sha256(text.encode()).hexdigest())"
    )
    outputs = {
        subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
        for env in ({"PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"})
    }
    assert len(outputs) == 1 and len(outputs.pop().strip()) == 64


@pytest.mark.parametrize(("mix", "members"), [(ALL, {**FAMILIES, **OFFICE}), (OFFICE_MIX, OFFICE)])
def test_the_mixes_are_balanced(mix: str, members: dict[str, object]) -> None:
    tasks = load_tasks(f"generated:{mix}?n={2 * len(members)}&seed=2")
    assert Counter(task.family for task in tasks) == dict.fromkeys(members, 2)


def test_fewer_are_the_beginning_of_more_and_other_seeds_differ() -> None:
    assert generate(OFFICE_MIX, 20, seed=3) == generate(OFFICE_MIX, 50, seed=3)[:20]
    for name in OFFICE:
        drawn = [{task.problem_hash for task in generate(name, 20, seed=seed)} for seed in (0, 1)]
        assert not drawn[0] & drawn[1], name


def test_relative_imports_are_as_good_as_absolute_ones(proving: Sandbox) -> None:
    for task in generate("fix_imports", 6, seed=1):
        package = next(path.split("/")[0] for path in task.workspace.files if "/" in path)
        relative = f"sed -i -E 's/from {package}\\.([a-z]+) import/from .\\1 import/' {package}/*.py"
        found = _rate_after(proving, task, relative)
        assert found["passed"] == "True", (task.id, found)


def _rate_after(sandbox: Sandbox, task: Task, *commands: str) -> dict[str, str]:
    """What each assertion says after the oracle and these commands, and whether all pass as `passed`."""
    assert task.oracle is not None
    run = play(task, sandbox, [*task.oracle.commands, *commands])
    return {result.name: str(result.verdict) for result in run.grade.results} | {"passed": str(run.grade.passed)}


def test_a_program_that_prints_constants_does_not_fix_the_imports(proving: Sandbox) -> None:
    for task in generate("fix_imports", 6, seed=1):
        found = _rate_after(
            proving, task, 'python3 main.py > p; printf \'print(open("p").read(), end="")\\n\' > main.py'
        )
        assert found["main.py works"] == "pass", task.id
        assert found["main.py works with another value"] == "fail", task.id
        assert found["passed"] == "False"


APPLIES = "plan.patch leads from the old to the new version"


def test_a_patch_that_does_not_apply_is_none_and_labels_are_free(proving: Sandbox) -> None:
    for task in generate("make_diff", 3, seed=1):
        for labels in (
            "--label a/plan.txt --label b/plan.txt",
            "--label old/plan.txt --label new/plan.txt",
            "-U0",
            "-U9",
        ):
            found = _rate_after(proving, task, f"diff -u {labels} old/plan.txt new/plan.txt > plan.patch; true")
            assert found["passed"] == "True", (task.id, labels, found)
        for spoil in (
            "sed -i '0,/^ /s/^ /  /' plan.patch",  # a line of context that the old file does not have
            "sed -i '$d' plan.patch",
            "sed -i 's/^@@ -1/@@ -3/' plan.patch",
            "diff -u new/plan.txt old/plan.txt > plan.patch; true",
            "grep '^[-+@]' plan.patch > p; mv p plan.patch",
        ):
            found = _rate_after(proving, task, spoil)
            assert found[APPLIES] == "fail" and found["passed"] == "False", (task.id, spoil)
