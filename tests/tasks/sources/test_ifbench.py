from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.assertions import Verdict
from tasks.assertions.base import Outcome
from tasks.model import TaskError
from tasks.sources.ifeval import load_ifbench
from tests.shared_data import shared


def test_the_sample_is_solved_by_its_replies_and_not_by_silence() -> None:
    tasks = load_ifbench("sample")
    assert len(tasks) >= 40
    assert len({assertion.id for task in tasks for assertion in task.assertions}) == 56  # type: ignore[union-attr]
    for task in tasks:
        assert task.family == "ifbench" and task.id.startswith("ifbench-sample-")
        assert task.oracle is not None and task.oracle.answer is not None
        for assertion in task.assertions:
            found = assertion.check(Outcome({}, {}, task.oracle.answer))
            assert found.verdict is Verdict.PASS, (task.id, found)
            assert assertion.check(Outcome({}, {}, None)).verdict is Verdict.FAIL
            assert assertion.check(Outcome({}, {}, " ")).verdict is Verdict.FAIL


def test_parameters() -> None:
    found = load_ifbench("sample?semantics=reference&loose=1&limit=2")
    assert [task.id for task in found] == ["ifbench-sample-0001", "ifbench-sample-0002"]
    assert found[0].assertions[0].canonical()["semantics"] == "reference"
    assert found[0].assertions[0].canonical()["loose"] is True


def test_an_unknown_id_names_file_line_and_key(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    row = {"key": "1", "prompt": "Go", "instruction_id_list": ["count:number"], "kwargs": [{"N": 2.0}]}
    file.write_text(json.dumps(row))
    with pytest.raises(TaskError, match=r"rows.jsonl:1: kwargs\[0\]: unknown instruction 'count:number': did you mean"):
        load_ifbench(str(file))


def test_nothing_there_names_the_ways() -> None:
    with pytest.raises(TaskError, match="ifbench:PATH.*ifbench:hub"):
        load_ifbench("/no/such/file.jsonl")


def test_the_public_set_loads_whole() -> None:
    tasks = load_ifbench(str(shared("data/ifbench/IFBench_test.jsonl")))
    assert len(tasks) == 300 and sum(len(task.assertions) for task in tasks) == 344
    assert tasks[0].id == "ifbench-0000"
