"""The published readings give the published results; the fixed ones are right on the reported cases."""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest

from tasks.answers.instructions import InstructionError, Semantics, follows, make
from tests.shared_data import shared

EXCEPTED = {"words:start_verb"} | (set() if find_spec("syllapy") else {"words:odd_even_syllables"})
"""What needs the data of a tagger, or a package that is not installed here."""


def rows(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shared(path).read_text(encoding="utf-8").split("\n") if line]


def test_the_golden_results_are_reproduced() -> None:
    golden = json.loads(shared("fixtures/ifbench_golden.json").read_text(encoding="utf-8"))["results"]
    responses = {row["prompt"]: row["response"] for row in rows("data/ifbench/sample_output.jsonl")}
    compared, wrong = 0, []
    for row in rows("data/ifbench/IFBench_test.jsonl"):
        if row["key"] not in golden:
            continue
        results = zip(row["instruction_id_list"], row["kwargs"], *golden[row["key"]], strict=True)
        for id, kwargs, strict, loose in results:
            if id in EXCEPTED:
                continue
            instruction, response = make(id, kwargs), responses[row["prompt"]]
            found = [follows(instruction, response, Semantics.REFERENCE, loose=mode) for mode in (False, True)]
            compared += 1
            if found != [strict == "1", loose == "1"]:
                wrong.append((row["key"], id, found, strict, loose))
    assert not wrong
    assert compared == (316 if "words:odd_even_syllables" in EXCEPTED else 325)


REPORTED = json.loads(shared("fixtures/verifier_cases.json").read_text(encoding="utf-8"))
CASES = [case for case in REPORTED if case.get("suite") == "ifbench"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_reported_cases_are_right(case: dict[str, Any]) -> None:
    instruction = make(case["instruction_id"], case["kwargs"])
    assert follows(instruction, case["response"]) is case["expected"]
    assert follows(instruction, case["response"], Semantics.REFERENCE) is case["observed"]["reference"]


def test_every_public_prompt_can_be_judged() -> None:
    for row in rows("data/ifbench/IFBench_test.jsonl"):
        for id, kwargs in zip(row["instruction_id_list"], row["kwargs"], strict=True):
            try:
                verdict = follows(make(id, kwargs), "One word. Then two?\n* three\n- four")
            except InstructionError as error:
                assert id in {"words:start_verb", "words:odd_even_syllables"} and "turngym[ifbench]" in str(error)
            else:
                assert verdict in (True, False)
