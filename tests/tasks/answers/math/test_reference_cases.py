"""Public cases and golden pairs, judged as a reply is. Skipped where the shared test data is absent."""

from __future__ import annotations

import json

import pytest

from tasks.answers.math import judge, judge_many
from tasks.answers.math.extraction import find_answer, last_box
from tasks.assertions import Verdict
from tests.shared_data import shared

CASES = [case for case in json.loads(shared("fixtures/verifier_cases.json").read_text()) if case["env"] == "math"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_public_cases(case: dict[str, object]) -> None:
    found = judge(str(case["gold"]), str(case["response"]))
    assert found.verdict is (Verdict.PASS if case["expected"] else Verdict.FAIL), found


def test_golden_pairs_through_the_whole_way() -> None:
    pairs = json.loads(shared("fixtures/math_golden.json").read_text())["pairs"]
    found = judge_many([(pair["gold"], rf"so it is $\boxed{{{pair['candidate']}}}$.") for pair in pairs])
    expected = [Verdict.PASS if pair["expected"] else Verdict.FAIL for pair in pairs]
    assert [one.verdict for one in found] == expected


def test_verdicts_of_the_seeds_but_for_those_the_product_must_not_take_over() -> None:
    other = {
        "allenai_math_minerva_sign_lost": 0.0,  # the sign counts
        "allenai_math_sign_lost_dollar": 0.0,
        "allenai_math_sign_neg_gold": 1.0,
        "allenai_math_no_format": 0.0,  # a bare number is no answer
        "allenai_math_sym_equiv": 1.0,  # x+1 is 1+x
        "mathverify_last_number": 0.0,  # the last number is no answer
        "mathverify_percent": 1.0,  # 50% is 0.5, as math-35 has it
    }
    seen = 0
    for case in json.loads(shared("fixtures/credit.json").read_text())["cases"]:
        inputs = case["inputs"]
        if case["group"] not in ("verifier.math_flex", "verifier.math_verify") or not inputs.get("target"):
            continue
        seen += 1
        passed = judge(inputs["target"], inputs["response"]).verdict is Verdict.PASS
        assert float(passed) == other.get(case["id"], case["expected"]), case["id"]
    assert seen == 21


def test_where_the_seeds_find_an_answer() -> None:
    """As recorded, but for a box that is never closed, one after a space, and none at all for an empty gold."""
    other = {"retrain_boxed_unclosed": None, "retrain_boxed_space": "5", "retrain_boxed_none": None}
    seen = 0
    for case in json.loads(shared("fixtures/credit.json").read_text())["cases"]:
        if case["id"] == "retrain_boxed_empty_vs_empty":  # there the missing box equals the empty answer
            assert case["expected"] == 1.0 and last_box(case["inputs"]["response"]) is None
        elif case["group"] in ("verifier.boxed", "verifier.math_qwen"):
            find = last_box if case["group"] == "verifier.boxed" else find_answer
            found = find(case["inputs"]["text"])
            assert (found and found.text) == other.get(case["id"], case["expected"]), case["id"]
        else:
            continue
        seen += 1
    assert seen == 11
