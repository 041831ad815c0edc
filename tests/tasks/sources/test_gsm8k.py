from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.model import TaskError
from tasks.sources import gsm8k
from tasks.sources import questions as datasets_io
from tasks.task import Task
from tests.shared_data import shared

NOTE = re.compile(r"<<([^<>=]+)=([^<>=]+)>>")


def rows(path: Path, *items: Any) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    return path


def row(answer: str = "2+2=4\n#### 4", question: str = "What is 2+2?") -> dict[str, str]:
    return {"question": question, "answer": answer}


def passed(task: Task, answer: str | None) -> bool:
    return grade(task, Outcome({}, {}, answer)).passed


def test_our_own_problems_are_right_and_prove_themselves() -> None:
    tasks = gsm8k.load("sample")
    assert len(tasks) >= 40 and len({task.intent for task in tasks}) == len(tasks)
    golds = []
    for task in tasks:
        assert task.oracle is not None and task.oracle.answer is not None
        answer = task.oracle.answer
        notes = NOTE.findall(answer)
        for left, right in notes:  # each note is worked out exactly: every number a fraction
            assert re.fullmatch(r"[0-9.+\-*/() ]+", left), left
            exact = re.sub(r"[0-9]+(?:\.[0-9]+)?", lambda found: f"Fraction('{found[0]}')", left)
            assert eval(exact, {"Fraction": Fraction}) == Fraction(right), (task.id, left, right)
        gold = int(answer.rpartition("#### ")[2].replace(",", ""))
        golds.append(gold)
        assert Fraction(notes[-1][1]) == gold, task.id
        assert passed(task, answer) and not passed(task, None) and not passed(task, f"#### {gold + 1}")
    assert min(golds) < 0 and max(golds) >= 10_000


def test_a_task_has_the_form_that_the_sets_share() -> None:
    task = gsm8k.load("sample?limit=1")[0]
    assert (task.id, task.family, task.tags) == ("gsm8k-sample-0001", "gsm8k", ())
    assert (task.budget.max_turns, task.budget.turn_tokens) == (8, 1024)
    assert task.files() == {}
    assert {item.name: item.weight for item in task.assertions} == {"correct": 1.0, "format": 0.0}
    weighed = gsm8k.load("sample?limit=1&format_weight=0.5")[0]
    assert grade(weighed, Outcome({}, {}, "It is 75 rolls")).rate == pytest.approx(1 / 1.5)


@pytest.mark.parametrize("mode", ["fixed", "strict_hash", "strict_phrase", "flexible", "last_number", "any"])
def test_the_oracle_is_right_in_every_mode(mode: str) -> None:
    for task in gsm8k.load(f"sample?mode={mode}"):
        assert task.oracle is not None
        result = grade(task, Outcome({}, {}, task.oracle.answer))
        assert result.passed and all(item.verdict == "pass" for item in result.results), (task.id, result)


def test_files_and_folders(tmp_path: Path) -> None:
    rows(tmp_path / "test.jsonl", row(), row("#### 1,000", "How much?"))
    rows(tmp_path / "train.jsonl", row("#### -5"))
    rows(tmp_path / "My Rows.jsonl", row())
    assert [task.id for task in gsm8k.load(str(tmp_path))] == ["gsm8k-test-0001", "gsm8k-test-0002"]
    assert [task.id for task in gsm8k.load(f"{tmp_path}?split=train")] == ["gsm8k-train-0001"]
    assert [task.id for task in gsm8k.load(f"{tmp_path}/train.jsonl")] == ["gsm8k-train-0001"]
    assert [task.id for task in gsm8k.load(f"{tmp_path}/My Rows.jsonl")] == ["gsm8k-my-rows-0001"]
    assert passed(gsm8k.load(f"{tmp_path}?limit=2")[1], "It is $1000.00")


def test_what_is_wrong_is_named_with_its_place(tmp_path: Path) -> None:
    file = rows(tmp_path / "test.jsonl", row(), row("no mark"), {"question": "x"}, row("#### 10-5"), row(question=" "))
    with pytest.raises(TaskError) as caught:
        gsm8k.load(str(file))
    assert [(problem.line, problem.key) for problem in caught.value.problems] == [
        (2, "answer"),
        (3, "answer"),
        (4, "answer"),
        (5, "question"),
    ]
    for spec, words in {
        f"{tmp_path}/none": "gsm8k:hub",
        f"{tmp_path}?split=dev": "dev.jsonl",
        "sample?limt=3": "did you mean 'limit'",
        "sample?limit=0": "at least 1",
        "sample?mode=strict": "did you mean",
        "sample?format_weight=-1": "at least 0",
        "sample?limit=1&limit=2": "twice",
        "sample?limit": "needs a value",
        "": "gsm8k:PATH",
    }.items():
        with pytest.raises(TaskError, match=re.escape(words)):
            gsm8k.load(spec)


def test_the_hub_is_asked_only_by_name_and_its_absence_says_what_else_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    asked: list[tuple[Any, ...]] = []

    def load_dataset(name: str, config: str | None, split: str) -> list[dict[str, str]]:
        asked.append((name, config, split))
        if name == "no/such":
            raise ConnectionError("no route")
        return [row()]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    gsm8k.load("sample?limit=1")
    assert asked == []
    assert gsm8k.load("hub?split=train")[0].id == "gsm8k-train-0001"
    assert gsm8k.load("hub/my/copy")[0].id == "gsm8k-test-0001"
    assert asked == [("openai/gsm8k", "main", "train"), ("my/copy", "main", "test")]
    with pytest.raises(TaskError, match=r"(?s)no route.*gsm8k:PATH.*gsm8k:sample"):
        gsm8k.load("hub/no/such")


def test_other_formats_of_rows(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([row(), row()]), encoding="utf-8")
    assert [item.line for item in datasets_io.read_rows(f"{tmp_path}/a.json", "gsm8k", "x/y")] == [1, 2]
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "main").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist([row()]), tmp_path / "main" / "test-00000-of-00001.parquet")
    assert [task.id for task in gsm8k.load(str(tmp_path))] == ["gsm8k-test-0001"]
    for name, text in {"b.jsonl": "{", "c.jsonl": "3\n", "d.jsonl": "\n", "e.txt": "x"}.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(TaskError, match=re.escape(name)):
            gsm8k.load(str(tmp_path / name))


@pytest.mark.parametrize(("split", "count"), [("train", 7473), ("test", 1319)])
def test_every_public_gold_answer_scores_1_and_empty_0(split: str, count: int) -> None:
    tasks = gsm8k.load(f"{shared('data/gsm8k')}?split={split}")
    assert len(tasks) == count
    assert all(task.oracle is not None and passed(task, task.oracle.answer) for task in tasks)
    assert not any(passed(task, "") for task in tasks)
