from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tasks.oracle import NotRead, Reading, layers, read, references, replies, resolve
from tasks.proof import Proof, Status, play, prove
from tasks.task import Task
from tests.tasks.fake_sandbox import FakeSandbox

LOG = Reading(run="cat log", reads={"file": r"refused (\S+)"})
CODE = Reading(run="cat {{file}}", reads={"code": r"code (\d+)"})
WRITE = "echo {{code}} > code"


def make(**changes: Any) -> Task:
    content: dict[str, Any] = {
        "schema_version": 2,
        "id": "demo",
        "intent": "write the code of the file that the log names into code",
        "workspace": {"files": {"log": "took a\nrefused b\n", "a": "code 1\n", "b": "code 77\n"}},
        "turns": 3,
        "assertions": [
            {"kind": "file_equals", "path": "code", "equals": "77\n"},
            {"kind": "file_unchanged", "path": "b"},
        ],
        "oracle": {"commands": [LOG, CODE, WRITE]},
        **changes,
    }
    return Task.model_validate(content)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[FakeSandbox]:
    with FakeSandbox() as sandbox:
        yield sandbox


def proof(sandbox: FakeSandbox, **changes: Any) -> Proof:
    return prove(make(**changes), sandbox)


def test_names_between_braces() -> None:
    text = "mv {{a}} {{ b_2 }} {{.Names}} {{a}} ${x} {a} {{3}}"
    assert references(text) == ("a", "b_2")
    assert resolve(text, {"a": "x y"}) == "mv x y {{ b_2 }} {{.Names}} x y ${x} {a} {{3}}"


def test_a_read_takes_the_first_match_or_says_which_pattern_finds_nothing() -> None:
    assert read(LOG, "refused b\nrefused c\n") == {"file": "b"}
    assert read("ls", "anything") == {}
    with pytest.raises(NotRead, match=r"printed nothing that the pattern 'refused \(.*\)' of 'file' finds"):
        read(LOG, "took b")
    with pytest.raises(NotRead):
        read(Reading(run="x", reads={"n": "a(b)?"}), "a")


def test_replies_are_forced_by_what_is_read() -> None:
    assert replies([LOG, "ls", CODE, WRITE]) == [[0, 1], [2], [3]]
    assert layers([LOG, CODE, WRITE, "ls"]) == [[0, 3], [1], [2]]
    assert replies([]) == layers([]) == []


def test_an_oracle_that_reads_is_played(sandbox: FakeSandbox) -> None:
    task = make()
    assert task.oracle is not None
    run = play(task, sandbox, task.oracle.commands, "it is {{code}}")
    assert run.grade.passed and not run.unread
    assert run.outcome.final_message == "it is 77"
    assert [entry["content"] for entry in run.outcome.transcript if entry["role"] == "assistant"] == [
        "cat log",
        "cat b",
        "echo 77 > code",
        "it is 77",
    ]
    joined = play(task, sandbox, task.oracle.commands, "it is {{code}}", together=[1, 2, 3])
    assert not joined.grade.passed and joined.outcome.final_message == "it is {{code}}"


def test_a_task_that_needs_its_turns_is_proven_and_says_so(sandbox: FakeSandbox) -> None:
    found = proof(sandbox)
    assert found.status is Status.PROVEN, found.problems
    assert found.notes == ("turns: 3; in one reply the oracle scores 0.50",)
    assert proof(sandbox, turns=None).notes == ()


def test_an_answer_that_was_read_last_is_a_turn_of_its_own(sandbox: FakeSandbox) -> None:
    asked = {
        "oracle": {"commands": [LOG, CODE], "answer": "#### {{code}}"},
        "assertions": [{"kind": "number_equals", "gold": "77"}],
    }
    assert proof(sandbox, **asked).status is Status.PROVEN
    (problem,) = proof(sandbox, turns=4, **asked).problems
    assert problem.startswith("turns: 4, but what the oracle reads forces no more than 3 of them")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"turns": 4}, ["turns: 4, but what the oracle reads forces no more than 3 of them"]),
        (
            {"oracle": {"commands": [Reading(run="cat log", reads={"file": "lost (.)"}), CODE, WRITE]}},
            ["oracle command 1 printed nothing that the pattern 'lost (.)' of 'file' finds"],
        ),
        (  # what is read is not needed: the shell finds it out itself
            {"oracle": {"commands": [LOG, CODE, "echo {{code}} > code; sed -n 's/code //p' b > code"]}},
            ["passes in too few turns: the oracle joined into one reply", "with command 3 of the oracle in one reply"],
        ),
        (  # one of two ways is short
            {"oracle": {"commands": [LOG, CODE, WRITE], "alternatives": [["sed 's/code //' b > code"]]}},
            ["turns: 3, but what the oracle alternative 1 reads forces no more than 1"],
        ),
        (  # the second command could as well stand in the first reply
            {
                "turns": 3,
                "oracle": {
                    "commands": [
                        LOG,
                        "echo {{file}} > seen",
                        Reading(run="sed 's/code/CODE/' b", reads={"code": r"CODE (\d+)"}),
                        "test -e seen && echo {{code}} > code",
                    ]
                },
            },
            ["passes in too few turns: the oracle in 2 replies (commands 1 with 3, 2 with 4)"],
        ),
    ],
)
def test_a_task_that_needs_no_such_turns_is_failed(
    sandbox: FakeSandbox, changes: dict[str, Any], words: list[str]
) -> None:
    problems = proof(sandbox, **changes).problems
    for word in words:
        assert any(word in problem for problem in problems), problems


def test_a_command_may_wait_for_what_another_did(sandbox: FakeSandbox) -> None:
    """Reads alone would let the second look stand in the first reply, but it shows the right thing only later."""
    look = "if [ -e one ]; then echo 'line 7'; else echo 'line 3'; fi"
    steps = [
        Reading(run=look, reads={"first": r"line (\d)"}),
        'test "{{first}}" = 3 && touch one',
        Reading(run=look, reads={"second": r"line (\d)"}),
        "echo {{second}}7 > code",
    ]
    found = proof(sandbox, turns=3, oracle={"commands": steps, "may_survive": {"one": "any mark will do"}})
    assert found.status is Status.PROVEN, found.problems


def test_reading_changes_the_content_but_not_the_problem() -> None:
    plain = make(oracle={"commands": ["cat b"]}, turns=None)
    assert make().content_hash != make(turns=2).content_hash != plain.content_hash
    assert make().problem_hash == make(turns=2).problem_hash == plain.problem_hash
    assert Task.model_validate_json(make().model_dump_json()) == make()
