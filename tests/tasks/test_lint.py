from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sandboxes.sandbox import CommandResult
from tasks.proof import Fault, Status, prove
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox


@pytest.fixture
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox(snapshot_file_bytes=1000) as fake:
        yield fake


def make(*commands: str, **changes: Any) -> Task:
    return Task.model_validate(
        {
            "id": "demo",
            "intent": "copy a to b",
            "workspace": {"files": {"a": "x\n"}},
            "assertions": [
                {"kind": "file_equals", "path": "b", "equals": "x\n"},
                {"kind": "file_unchanged", "path": "a"},
            ],
            **({"oracle": {"commands": commands}} if commands else {}),
            **changes,
        }
    )


def test_a_good_task_is_proven(sandbox: FakeSandbox) -> None:
    task = make("cp a b")
    proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN
    assert (proof.oracle_rate, proof.noop_rate) == (1.0, 0.5)
    assert (proof.task_id, proof.task_hash) == ("demo", task.content_hash)
    assert len(proof.hashes) == 4 and len(set(proof.hashes)) == 1
    assert len(proof.final_hashes) == 2 and len(set(proof.final_hashes)) == 1
    assert proof.problems == proof.notes == ()


LOOSE = [{"kind": "file_exists", "path": "b"}]
EXCUSED = {"commands": ["cp a b"], "may_survive": {"b: eaten": "never tried"}}


@pytest.mark.parametrize(
    ("task", "faults"),
    [
        (make("cp a b"), ()),
        (make("cp a c"), (Fault.ORACLE,)),
        (make("cp a b", assertions=[{"kind": "file_exists", "path": "a"}]), (Fault.NOOP,)),
        (make("cp a b", assertions=LOOSE), (Fault.MUTANT, Fault.CHEAT)),
        (make(oracle=EXCUSED), (Fault.EXCUSE,)),
        (make("cp a b", setup=["false"], schema_version=2), (Fault.START,)),
    ],
)
def test_a_proof_says_which_part_of_it_found_something(
    task: Task, faults: tuple[Fault, ...], sandbox: FakeSandbox
) -> None:
    assert prove(task, sandbox).faults == faults


@pytest.mark.parametrize("left", [0, 4, 8])
def test_a_proof_ends_when_its_time_is_used_up(
    left: int, sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = iter(range(100))  # a second passes with each look at the clock
    monkeypatch.setattr("tasks.proof.time.monotonic", lambda: float(next(looks)))
    proof = prove(make("cp a b"), sandbox, seconds=left)
    assert (proof.status, proof.faults) == (Status.FAILED, (Fault.TIME,))
    assert "takes more than" in proof.problems[0]


def test_without_an_oracle_it_is_unproven(sandbox: FakeSandbox) -> None:
    proof = prove(make(), sandbox)
    assert proof.status is Status.UNPROVEN
    assert proof.oracle_rate is None


def problems(task: Task, sandbox: FakeSandbox) -> list[str]:
    proof = prove(task, sandbox)
    assert proof.status is Status.FAILED
    return list(proof.problems)


def test_a_wrong_oracle_says_what_is_missing(sandbox: FakeSandbox) -> None:
    found = problems(make("true", "cp missing b"), sandbox)
    assert "oracle command 2 ended with exit code 1" in found[0] and "missing" in found[0]
    assert found[1] == "after the oracle: file_equals:b: fail: b: nothing there"


def test_what_a_pipeline_said_is_shown(sandbox: FakeSandbox) -> None:
    found = problems(make("grpe x a | sort > b"), sandbox)
    assert "oracle command 1 wrote to stderr" in found[0] and "grpe: command not found" in found[0]


def test_an_exit_code_on_the_way_is_no_problem(sandbox: FakeSandbox) -> None:
    assert prove(make("grep nothing a", "cp a b"), sandbox).status is Status.PROVEN


def test_doing_nothing_must_not_pass(sandbox: FakeSandbox) -> None:
    task = make("cp a b", assertions=[{"kind": "file_unchanged", "path": "a"}])
    assert problems(task, sandbox) == ["doing nothing passes: add an assertion that fails until the work is done"]


def test_the_oracle_must_fit_the_budget(sandbox: FakeSandbox) -> None:
    found = problems(make("true", "cp a b", budget={"max_turns": 2}), sandbox)
    assert found == ["the oracle needs 3 turns (submitting is one), but max_turns is 2"]


def test_a_command_that_hangs_is_a_problem(sandbox: FakeSandbox) -> None:
    found = problems(make("cp a b; sleep 20", budget={"command_seconds": 0.3}), sandbox)
    assert "oracle command 1 ran out of time" in found[0]


def test_the_grade_must_be_the_same_twice(sandbox: FakeSandbox) -> None:
    """The second oracle run finds what the first left outside the workspace."""
    marker = f"{sandbox.root}.marker"
    task = make(f"if [ -e {marker} ]; then rm {marker}; else cp a b; touch {marker}; fi")
    assert "the oracle is judged differently the second time" in problems(task, sandbox)


def test_another_workspace_each_time_is_noted(sandbox: FakeSandbox) -> None:
    oracle = {"commands": ["cp a b; date +%N > now"], "may_survive": {"now": "nobody asks for it"}}
    proof = prove(make(oracle=oracle), sandbox)
    assert proof.status is Status.PROVEN
    assert "another workspace each time" in proof.notes[0]


def test_what_cannot_be_judged_is_a_problem(sandbox: FakeSandbox) -> None:
    found = problems(make("cp a b", workspace={"files": {"a": "x\n", "b": {"size": 2000}}}), sandbox)
    assert found == ["cannot be judged: file_equals:b: b: content not in the snapshot (2000 bytes, over the cap of the sandbox), so it cannot be judged"]  # fmt: skip  # noqa: E501


def test_a_gold_answer_that_cannot_be_computed_with_is_a_problem(sandbox: FakeSandbox) -> None:
    gold = {"kind": "math_equivalent", "gold": "\\frac{}{}+?", "name": "root"}
    inside = {"kind": "not", "of": {"kind": "instruction", "id": "no:such"}}
    good = [{"kind": "math_equivalent", "gold": "\\frac12"}, {"kind": "number_equals", "gold": "1,234"}]
    found = problems(make("cp a b", assertions=[gold, inside, *good]), sandbox)
    assert [problem for problem in found if problem.startswith("root:")] == [
        "root: the gold answer '\\\\frac{}{}+?' cannot be computed with: \\frac{}{}+?"
    ]
    assert any(problem.startswith("no:such: unknown instruction") for problem in found)
    assert not any(problem.startswith(("math_equivalent", "number_equals")) for problem in found)


def test_a_wrong_answer_must_fail(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.answers.number_equals.NumberEquals.wrong_answer", lambda self: "#### 7")
    found = problems(make("cp a b", assertions=[{"kind": "number_equals", "gold": "7"}]), sandbox)
    assert "number_equals: a wrong answer, '#### 7', is judged 'pass'" in found


def test_a_path_typed_with_decomposed_accents_is_found(sandbox: FakeSandbox) -> None:
    """The task writes composed accents, the agent decomposed ones, and both mean the same file."""
    wanted = "donn\u00e9es/rapport \u00e9t\u00e9 2024.csv"
    typed = unicodedata.normalize("NFD", wanted)
    assert typed != wanted
    task = make(
        f"mkdir '{typed.split('/')[0]}' && printf '\\377\\376x' > '{typed}'",
        assertions=[{"kind": "file_equals", "path": wanted, "equals": "\ufffd\ufffdx"}],
    )
    proof = prove(task, sandbox)
    assert proof.status is Status.PROVEN, proof.problems


def test_an_oracle_that_floods_proves_nothing(sandbox: FakeSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sandbox.run

    def flooded(command: str, **keys: Any) -> CommandResult:
        result = plain(command, **keys)
        return replace(result, truncated=True) if command.startswith("cp") else result

    monkeypatch.setattr(sandbox, "run", flooded)
    proof = prove(make("cp a b"), sandbox)
    assert proof.status is Status.FAILED
    assert proof.problems == ("oracle command 1 printed more than the sandbox keeps",)


LOOSE = [{"kind": "file_contains", "path": "b", "contains": "x"}, {"kind": "file_unchanged", "path": "a"}]
EXACT = [{"kind": "file_equals", "path": "b", "equals": "x\n"}, {"kind": "file_unchanged", "path": "a"}]


def test_a_damaged_result_that_passes_is_a_problem_with_the_name_of_its_file(sandbox: FakeSandbox) -> None:
    assert problems(make("cp a b", assertions=LOOSE), sandbox) == [
        "passes although wrong: b: junk appended (make an assertion stricter, or say why under oracle.may_survive)"
    ]
    assert prove(make("cp a b", assertions=EXACT), sandbox).status is Status.PROVEN


def test_an_author_may_say_why_one_may_survive(sandbox: FakeSandbox) -> None:
    oracle = {"commands": ["cp a b"], "may_survive": {"b: junk appended": "notes may follow"}}
    assert prove(make(assertions=LOOSE, oracle=oracle), sandbox).status is Status.PROVEN
    assert problems(make(assertions=EXACT, oracle=oracle), sandbox) == [
        "oracle.may_survive: 'b: junk appended' does not pass: remove it"
    ]


def test_an_excuse_changes_the_hash_of_a_task_and_none_does_not() -> None:
    oracle = {"commands": ["cp a b"]}
    assert make(oracle={**oracle, "may_survive": {}}).content_hash == make("cp a b").content_hash
    assert make(oracle={**oracle, "may_survive": {"b: emptied": "why"}}).content_hash != make("cp a b").content_hash


def test_damage_is_judged_by_graders_commands_too(sandbox: FakeSandbox) -> None:
    lax = {"kind": "command", "command": "grep -q x b"}
    assert problems(make("cp a b", assertions=[lax]), sandbox) == [
        "passes although wrong: b: junk appended (make an assertion stricter, or say why under oracle.may_survive)"
    ]
    strict = {"kind": "command", "command": "cat b", "stdout": "x"}
    assert prove(make("cp a b", assertions=[strict]), sandbox).status is Status.PROVEN


def test_cheap_cheats_must_not_pass(sandbox: FakeSandbox) -> None:
    task = make("tr a-z A-Z < a > b", assertions=[{"kind": "file_exists", "path": "b"}])
    found = " ".join(problems(task, sandbox))
    assert "passes although wrong: touch the files (" in found
    assert "passes although wrong: copy a (" in found


def test_deleting_all_earns_no_more_than_doing_nothing(sandbox: FakeSandbox) -> None:
    keeps_out = {"kind": "not", "of": {"kind": "file_contains", "path": "a", "contains": "x"}}
    task = make("echo y > a", assertions=[keeps_out, {"kind": "file_equals", "path": "a", "equals": "y\n"}])
    assert problems(task, sandbox) == ["delete all earns 0.50, more than doing nothing, 0.00"]
    deleting = make("rm a; echo y > b", assertions=[keeps_out, {"kind": "file_equals", "path": "b", "equals": "y\n"}])
    assert not [problem for problem in prove(deleting, sandbox).problems if "delete all" in problem]
