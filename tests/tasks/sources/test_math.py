from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tasks.answers.math import MathEquivalent, MathFormat, MathMode
from tasks.assertions import grade
from tasks.assertions.base import Outcome
from tasks.model import TaskError
from tasks.sources import math
from tasks.sources.questions import self_test
from tasks.task import Difficulty, Task

ROW = {"problem": "What is 2+3?", "level": "Level 2", "type": "Algebra", "solution": r"It is $\boxed{5}$."}


def lay(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def score(task: Task, message: str | None) -> float | None:
    return grade(task, Outcome({}, {}, final_message=message)).rate


def test_the_sample_is_proven() -> None:
    tasks = math.load("sample")
    assert len(tasks) >= 40
    assert len({task.content_hash for task in tasks}) == len({task.id for task in tasks}) == len(tasks)
    for task in tasks:
        assert task.oracle is not None and task.oracle.answer is not None
        assert score(task, task.oracle.answer) == 1.0, task.id
        assert score(task, r"\boxed{123454321}") == 0.0, task.id
        assert score(task, "") == score(task, None) == 0.0, task.id


def test_the_sample_has_every_level_and_subject() -> None:
    tags = Counter(tag for task in math.load("sample") for tag in task.tags)
    assert all(tags[f"level:{level}"] >= 5 for level in range(1, 6))
    assert all(tags[f"subject:{subject}"] >= 5 for subject in math.SUBJECTS)


def test_a_task(tmp_path: Path) -> None:
    (task,) = math.load(lay(tmp_path / "test.jsonl", ROW))
    assert (task.id, task.intent, task.family) == ("math-test-0001", "What is 2+3?", "math")
    assert task.tags == ("level:2", "subject:algebra")
    assert task.difficulty is Difficulty.EASY
    assert (task.budget.max_turns, task.budget.turn_tokens) == (8, 2048)
    equal, form = task.assertions
    assert isinstance(equal, MathEquivalent) and isinstance(form, MathFormat)
    assert (equal.gold, equal.mode, equal.weight, form.weight) == ("5", MathMode.FIXED, 1.0, 0.0)
    assert not task.files()


def test_the_public_layout(tmp_path: Path) -> None:
    for split, subject, number in (("train", "algebra", 1), ("train", "geometry", 7), ("test", "algebra", 2)):
        path = tmp_path / split / subject / f"{number}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**ROW, "problem": f"{split} {subject}", "type": subject.title()}))
    train = math.load(f"{tmp_path}?split=train")
    assert [(task.id, task.intent) for task in train] == [
        ("math-train-0001", "train algebra"),
        ("math-train-0002", "train geometry"),
    ]
    assert [task.id for task in math.load(f"{tmp_path}?split=train&subject=geometry")] == ["math-train-0002"]
    assert len(math.load(tmp_path)) == 3


def test_other_keys_of_public_copies(tmp_path: Path) -> None:
    row = {"problem": "p", "solution": "no box", "answer": r"\frac12", "level": 5, "subject": "Counting & Probability"}
    (task,) = math.load(lay(tmp_path / "rows.jsonl", row))
    assert task.tags == ("level:5", "subject:counting_and_probability")
    assert task.difficulty is Difficulty.HARD
    assert score(task, r"\boxed{0.5}") == 1.0
    (unknown,) = math.load(lay(tmp_path / "other.jsonl", {**ROW, "level": "Level ?"}))
    assert unknown.tags[0] == "level:?"


def test_parameters() -> None:
    assert [task.id for task in math.load("sample?limit=2")] == ["math-sample-0001", "math-sample-0002"]
    hard = math.load("sample?level=5&subject=geometry&mode=boxed&format_weight=0.5")
    assert hard and all({"level:5", "subject:geometry"} == set(task.tags) for task in hard)
    equal, form = hard[0].assertions
    assert isinstance(equal, MathEquivalent)
    assert (equal.mode, form.weight) == (MathMode.BOXED, 0.5)
    assert score(hard[0], "The answer is 5.") == 0.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"solution": r"\boxed{5"}, r"rows.jsonl:2: solution: holds no closed \boxed{...}"),
        ({"solution": None}, "rows.jsonl:2: solution: must be a text"),
        ({"level": "Level 9"}, "rows.jsonl:2: level: must be 'Level 1' to 'Level 5'"),
        ({"type": "Algebro"}, "did you mean 'algebra'?"),
        ({"problem": " "}, "rows.jsonl:2: intent: makes no task: the intent is blank"),
    ],
)
def test_malformed_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = lay(tmp_path / "rows.jsonl", ROW, {**ROW, **change})
    with pytest.raises(TaskError) as error:
        math.load(path)
    assert message in str(error.value)


def test_every_malformed_row_is_listed(tmp_path: Path) -> None:
    rows = [{key: value for key, value in ROW.items() if key != missing} for missing in ("problem", "level", "type")]
    with pytest.raises(TaskError) as error:
        math.load(lay(tmp_path / "rows.jsonl", *rows))
    assert [problem.line for problem in error.value.problems] == [1, 2, 3]


AIME = [
    {"ID": "2024-I-90", "Problem": "Count the weekdays, times ten.", "Solution": "5 days, so 50.", "Answer": 50},
    {
        "id": 61,
        "problem": "Add 20 to 5.",
        "solution": "$20+5=\\boxed{025}$.",
        "answer": "025",
        "url": "u",
        "year": 2024,
    },
    {"question": "What is $9^3$ plus $270$?", "answer": "999"},
    {"problem": "What is $x-x$?", "solution": "\\boxed{000}", "url": "u"},
    {"problem": "What is $2^{10}$?", "answer": 1024.0},
]
"""In the shapes in which AIME is published; the problems are ours."""


def test_the_shapes_of_aime_are_read(tmp_path: Path) -> None:
    tasks = math.load(lay(tmp_path / "aime.jsonl", *AIME))
    golds = [task.assertions[0].gold for task in tasks if isinstance(task.assertions[0], MathEquivalent)]
    assert golds == ["50", "25", "999", "0", "1024"] and tasks[0].id == "math-aime-0001"
    assert {(task.family, task.tags, task.budget.turn_tokens) for task in tasks} == {("aime", (), 8192)}
    assert tasks[0].intent == "Count the weekdays, times ten." and tasks[2].oracle is not None
    assert tasks[1].oracle is not None and tasks[1].oracle.answer == AIME[1]["solution"]
    coverage = self_test(tasks)
    assert coverage is not None and coverage.ok and coverage.gold == 5
    for answer, right in (
        (r"\boxed{025}", 1.0),
        (r"\boxed{25}", 1.0),
        (r"\boxed{250}", 0.0),
        ("The answer is 25.", 1.0),
    ):
        assert score(tasks[1], answer) == right, answer


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem": "p", "answer": r"\frac12"}, "solution: is missing"),
        ({"problem": "p", "answer": True}, "solution: is missing"),
        ({"Answer": 7}, "question: is missing"),
        ({"problem": " ", "answer": 7}, "intent: makes no task"),
    ],
)
def test_what_is_no_row_of_aime_is_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        math.load(lay(tmp_path / "rows.jsonl", row))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere", "math:hub"),
        ("sample?mod=boxed", "did you mean 'mode'?"),
        ("sample?mode=box", "did you mean 'boxed'?"),
        ("sample?subject=geometri", "did you mean 'geometry'?"),
        ("sample?limit=0", "whole number"),
        ("sample?level=9", "no problem has this level and subject"),
    ],
)
def test_specs_that_mean_nothing(spec: str, message: str) -> None:
    with pytest.raises(TaskError) as error:
        math.load(spec)
    assert message in str(error.value)


def test_the_hub_is_asked_for_each_subject(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def fetch(name: str, scheme: str, split: str, config: str | None = None) -> list[math.Row]:
        asked.append((name, split, config))
        return [math.Row({**ROW, "problem": str(config)}, f"hub:{name}[{split}]", 1)]

    monkeypatch.setattr("tasks.sources.questions.from_hub", fetch)
    tasks = math.load("hub?split=test")
    assert [task.id for task in tasks] == [f"math-test-{number:04d}" for number in range(1, 8)]
    assert asked == [(math.HUB_NAME, "test", subject) for subject in math.SUBJECTS]
    asked.clear()
    math.load("hub/someone/maths")
    assert asked == [("someone/maths", "train", None)]
