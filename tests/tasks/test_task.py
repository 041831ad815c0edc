from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tasks.assertions.files import FileContains, FileExists
from tasks.task import Budget, Difficulty, Oracle, SplitName, Task


def make(**changes: Any) -> Task:
    content: dict[str, Any] = {
        "id": "demo",
        "intent": "copy a to b",
        "workspace": {"files": {"a": "x\n"}},
        "assertions": [{"kind": "file_exists", "path": "b"}],
        "oracle": {"commands": ["cp a b"]},
        **changes,
    }
    return Task.model_validate(content)


def test_defaults() -> None:
    task = make()
    assert (task.schema_version, task.difficulty, task.split, task.family) == (1, Difficulty.MEDIUM, None, None)
    assert task.budget == Budget(max_turns=12, command_seconds=10.0, turn_tokens=512)


def test_python_and_plain_data_make_the_same_task() -> None:
    other = Task(
        id="demo",
        intent="copy a to b",
        workspace=make().workspace,
        assertions=(FileExists(path="b"),),
        oracle=Oracle(commands=("cp a b",)),
    )
    assert other == make()
    assert Task.model_validate(other.model_dump()) == other
    assert Task.model_validate_json(other.model_dump_json()) == other


@pytest.mark.parametrize(
    "same",
    [
        {"id": "other"},
        {"split": "held_out"},
        {"family": "copy"},
        {"tags": ["t"]},
        {"workspace": {"files": {"a": {"base64": "eAo="}}}},
    ],
)
def test_equal_content_has_equal_hash(same: dict[str, Any]) -> None:
    assert make(**same).content_hash == make().content_hash
    assert make(**same).problem_hash == make().problem_hash


@pytest.mark.parametrize(
    "change",
    [
        {"intent": "copy a to c"},
        {"workspace": {"files": {"a": "y\n"}}},
        {"workspace": {"files": {"a": {"text": "x\n", "mode": "0755"}}}},
        {"workspace": {"files": {"a": "x\n"}, "dirs": ["d"]}},
        {"assertions": [{"kind": "file_not_exists", "path": "b"}]},
        {"assertions": [{"kind": "file_exists", "path": "b", "weight": 2}]},
        {"persona": {"role": "cook"}},
    ],
)
def test_another_problem_has_other_hashes(change: dict[str, Any]) -> None:
    assert make(**change).content_hash != make().content_hash
    assert make(**change).problem_hash != make().problem_hash


@pytest.mark.parametrize("change", [{"budget": {"max_turns": 3}}, {"oracle": None}, {"difficulty": "hard"}])
def test_another_frame_is_other_content_but_the_same_problem(change: dict[str, Any]) -> None:
    assert make(**change).content_hash != make().content_hash
    assert make(**change).problem_hash == make().problem_hash


def test_writing_a_default_out_changes_nothing() -> None:
    assert make(budget={"max_turns": 12}, difficulty="medium").content_hash == make().content_hash


def test_the_hash_is_stable_between_versions() -> None:
    """Run folders keep these hashes; a change here means that old folders no longer match their tasks."""
    assert make().content_hash == "3eaca270092563e37c8d8b43ae92642c5a258792a506afc45db745d416b4af12"


def test_a_changed_copy_has_its_own_hash() -> None:
    task = make()
    assert task.content_hash != task.model_copy(update={"intent": "something else"}).content_hash
    assert task.model_copy(update={"id": "x"}).content_hash == task.content_hash


def test_assertions_get_unique_names() -> None:
    task = make(
        assertions=[
            {"kind": "file_exists", "path": "b"},
            {"kind": "file_exists", "path": "b"},
            {"kind": "file_exists", "path": "c", "name": "file_exists:b#2"},
            {"kind": "file_exists", "path": "./b"},
        ]
    )
    assert [item.name for item in task.assertions] == [
        "file_exists:b",
        "file_exists:b#3",
        "file_exists:b#2",
        "file_exists:b#4",
    ]


def test_one_text_or_a_list_of_texts() -> None:
    one = FileContains.model_validate({"path": "a", "contains": "x"})
    assert (
        one == FileContains(path="a", contains=("x",)) == FileContains.model_validate({"path": "a", "contains": ["x"]})
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"assertions": []}, "at least 1"),
        ({"intent": " "}, "blank"),
        ({"id": "Big Name"}, "pattern"),
        ({"id": ""}, "pattern"),
        ({"difficulty": "tough"}, "easy"),
        ({"schema_version": 3}, "1 or 2"),
        ({"budget": {"max_turns": 0}}, "greater than or equal to 1"),
        ({"budget": {"max_turns": "3"}}, "valid integer"),
        ({"budget": {"max_turns": True}}, "valid integer"),
        ({"budget": {"command_seconds": float("inf")}}, "finite"),
        ({"oracle": {"commands": []}}, "at least 1"),
        ({"oracle": {"commands": [" "]}}, "blank"),
        ({"oracle": {"commands": ["ls\r\n"]}}, "carriage return"),
        ({"assertions": [{"kind": "file_unchanged", "path": "b"}]}, "'b' is not among files or dirs"),
        ({"assertions": [{"kind": "file_matches", "path": "b", "pattern": "("}]}, "no regular expression"),
        ({"assertions": [{"kind": "file_contains", "path": "b", "contains": ""}]}, "at least 1 character"),
        ({"assertions": [{"kind": "file_exists", "path": "b", "weight": 0}]}, "so nothing decides"),
        ({"assertions": [{"kind": "file_exists", "path": "b", "weight": float("nan")}]}, "finite|greater than"),
        ({"assertions": [{"kind": "file_exists", "path": "b", "weight": -1}]}, "greater than or equal to 0"),
        (
            {
                "assertions": [
                    {"kind": "file_exists", "path": "b", "name": "n"},
                    {"kind": "file_exists", "path": "c", "name": "n"},
                ]
            },
            "two assertions are named 'n'",
        ),
        ({"surprise": 1}, "Extra inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        make(**change)


def test_unchanged_accepts_folders_links_and_either_unicode_form() -> None:
    task = make(
        workspace={"files": {"d/f": "x", "l": {"symlink": "d/f"}, "e\u0301te\u0301": "y"}},
        assertions=[{"kind": "file_unchanged", "path": path} for path in ("d", "l", "\u00e9t\u00e9")],
    )
    assert len(task.assertions) == 3


def test_tasks_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        make().intent = "other"  # type: ignore[misc]


def test_split_is_a_closed_set() -> None:
    assert make(split="pool").split is SplitName.POOL
    with pytest.raises(ValidationError, match="held_out"):
        make(split="test")


def test_an_oracle_may_answer_and_may_know_other_ways() -> None:
    task = make(oracle={"commands": ["cp a b"], "alternatives": [["cat a > b"], ["touch b"]], "answer": "done"})
    assert task.oracle is not None
    assert task.oracle.ways == (("cp a b",), ("cat a > b",), ("touch b",))
    assert make(oracle={"answer": "42"}).oracle == Oracle(answer="42")
    assert task.content_hash != make().content_hash
    assert task.problem_hash == make().problem_hash
    assert make(oracle={"commands": ["cp a b"], "alternatives": []}).content_hash == make().content_hash


@pytest.mark.parametrize(
    ("oracle", "words"),
    [
        ({}, "at least 1 command, or an answer"),
        ({"answer": ""}, "at least 1 character"),
        ({"alternatives": [["ls"]]}, "at least 1 command, or an answer"),
        ({"commands": ["ls"], "alternatives": [[]]}, "oracle alternative 1 needs at least 1 command"),
        ({"commands": ["ls"], "alternatives": [["ls", "a\r\n"]]}, "command 2 of oracle alternative 1 holds a carriage"),
        ({"commands": ["a\0b"]}, "NUL"),
    ],
)
def test_oracles_that_make_no_sense(oracle: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        make(oracle=oracle)
