from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.answers.instructions import IFEVAL, InstructionFollowed, Semantics
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.model import TaskError
from tasks.sources.ifeval import load
from tasks.task import Task
from tests.shared_data import shared

ROW: dict[str, Any] = {
    "key": 7,
    "prompt": "Say it in words.",
    "instruction_id_list": ["keywords:frequency", "punctuation:no_comma", "keywords:frequency"],
    "kwargs": [
        {"keyword": "sea", "frequency": 2.0, "relation": "at least", "num_words": None},
        {},
        {"keyword": "rock", "frequency": 1, "relation": "less than"},
    ],
}


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def verdicts(task: Task, reply: str | None) -> dict[str, str]:
    return {result.name: result.verdict.value for result in grade(task, Outcome({}, {}, reply)).results}


@pytest.fixture(scope="module")
def sample() -> list[Task]:
    return load("sample")


def test_the_sample_covers_every_id(sample: list[Task]) -> None:
    assert len(sample) >= 40
    ids = [item.id for task in sample for item in task.assertions if isinstance(item, InstructionFollowed)]
    assert set(ids) == {known.id for known in IFEVAL}
    assert all(1 <= len(task.assertions) <= 3 for task in sample)
    assert len({task.intent for task in sample}) == len(sample)


@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("loose", [0, 1])
def test_every_reply_of_the_sample_follows_everything_and_an_empty_one_nothing(
    semantics: Semantics, loose: int
) -> None:
    for task in load(f"sample?semantics={semantics}&loose={loose}"):
        assert task.oracle is not None and task.oracle.answer is not None
        assert set(verdicts(task, task.oracle.answer).values()) == {"pass"}, task.id
        for empty in (None, "", "\n"):
            assert set(verdicts(task, empty).values()) == {"fail"}, task.id


def test_a_row_becomes_a_task(tmp_path: Path) -> None:
    (task,) = load(str(write(tmp_path, ROW)))
    assert task.id == "ifeval-0007" and task.family == "ifeval" and task.intent == ROW["prompt"]
    assert task.budget.max_turns == 8 and task.budget.turn_tokens == 4096
    assert task.oracle is None and not task.files()
    assert task.tags == ("set:ifeval", "instruction:keywords:frequency", "instruction:punctuation:no_comma")
    assert [item.name for item in task.assertions] == [
        "keywords:frequency",
        "punctuation:no_comma",
        "keywords:frequency#2",
    ]


def test_an_id_that_stands_twice_is_judged_by_its_own_arguments(tmp_path: Path) -> None:
    (task,) = load(str(write(tmp_path, ROW)))
    assert set(verdicts(task, "sea and sea").values()) == {"pass"}
    assert verdicts(task, "sea, rock") == {
        "keywords:frequency": "fail",
        "punctuation:no_comma": "fail",
        "keywords:frequency#2": "fail",
    }
    assert verdicts(task, "sea sea rock")["keywords:frequency#2"] == "fail"
    graded = grade(task, Outcome({}, {}, "sea sea rock"))
    assert not graded.passed and graded.rate == pytest.approx(2 / 3)


def test_semantics_and_loose_reach_the_assertions(tmp_path: Path) -> None:
    file = write(tmp_path, ROW)
    (task,) = load(f"{file}?semantics=reference&loose=1")
    for item in task.assertions:
        assert isinstance(item, InstructionFollowed)
        assert item.semantics is Semantics.REFERENCE and item.loose
    assert task.content_hash != load(str(file))[0].content_hash


def test_limit(tmp_path: Path) -> None:
    file = write(tmp_path, ROW, {**ROW, "key": "B 2"})
    assert [task.id for task in load(str(file))] == ["ifeval-0007", "ifeval-b-2"]
    assert [task.id for task in load(f"{file}?limit=1")] == ["ifeval-0007"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"instruction_id_list": ["no:such", *ROW["instruction_id_list"][1:]]}, "unknown instruction 'no:such'"),
        ({"kwargs": [{}, {}, {}]}, "'keyword' is missing"),
        ({"kwargs": [{}]}, "must be a list of 3 objects"),
        ({"kwargs": [1, {}, 2]}, "must be an object"),
        ({"instruction_id_list": []}, "at least one"),
        ({"prompt": " "}, "is blank"),
        ({"prompt": 3}, "must be a text"),
        ({"key": [1]}, "whole number or a text"),
        ({"key": "?"}, "whole number or a text"),
    ],
)
def test_faulty_rows_are_named_with_file_and_line(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = write(tmp_path, ROW, {**ROW, "key": 8, **change})
    with pytest.raises(TaskError) as caught:
        load(str(file))
    assert said in str(caught.value)
    assert f"{file}:2" in str(caught.value)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="stands twice"):
        load(str(write(tmp_path, ROW, ROW)))


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("sample?semantic=fixed", "semantics"),
        ("sample?semantics=loose", "reference"),
        ("sample?loose=2", "loose"),
        ("sample?limit=0", "at least 1"),
        ("nowhere.jsonl", "ifeval:hub"),
        ("", "ifeval:PATH"),
    ],
)
def test_faulty_specs_say_what_to_do(rest: str, said: str) -> None:
    with pytest.raises(TaskError, match=said):
        load(rest)


def test_the_public_prompts() -> None:
    tasks = load(str(shared("data/ifeval/input_data.jsonl")))
    assert len(tasks) == 541
    assert sum(len(task.assertions) for task in tasks) == 834
    twice = [task for task in tasks if any("#2" in (item.name or "") for item in task.assertions)]
    assert len(twice) == 17
