from __future__ import annotations

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from tasks.answers.number_equals import MarkerMode, NumberEquals, NumberFormat, NumberMode, extract_number
from tasks.assertions.base import Outcome, judge
from tests.shared_data import shared
from tests.tasks.assertions.build import build
from tests.tasks.assertions.hostile import texts

NOT_18 = [
    "\\boxed{\\sqrt{18}}",
    "\\boxed{\\log 18}",
    "\\boxed{\\ln{18}}",
    "\\boxed{f(18)}",
    "\\boxed{\\frac{x}{18}}",
    "\\boxed{\\frac{18}{x}}",
    "\\boxed{18/x}",
    "\\boxed{\\binom{18}{x}}",
    "\\boxed{a_{18}}",
    "\\boxed{x \\cdot 18}",
    "\\boxed{x - 18}",
    "\\boxed{18, x}",
    "\\boxed{[18,\\infty)}",
    "\\boxed{2x = 18}",
    "\\boxed{x^2 = 18}",
    "\\boxed{x \\not= 18}",
    "\\boxed{x != 18}",
    "\\boxed{18i}",
    "\\boxed{18 x}",
    "\\boxed{18\\pi}",
    "\\boxed{|18|}",
    "\\boxed{18 or more}",
    "\\boxed{\\text{at least } 18}",
    "\\sqrt{\\boxed{18}}",
    "2 \\times \\boxed{18}",
    "not \\boxed{18}",
    "The answer is not $\\boxed{18}$.",
    "\\boxed{18}^2",
    "\\boxed{18} or \\boxed{20}",
    "\\boxed{20} or \\boxed{18}",
    "\\boxed{18} \\text{ or } 20",
    "#### sqrt(18)",
    "#### √18",
    "#### 18i",
    "#### 18 pi",
    "#### \\sqrt{18}",
    "#### \\frac{x}{18}",
    "#### \\frac{18}{x}",
    "#### f(18)",
    "#### 18/x",
    "#### x - 18",
    "The answer is x - 18.",
    "The answer is $\\sqrt{18}$.",
    "$\\sqrt{18}$",
    "<answer>\\sqrt{18}</answer>",
    "<answer>x - 18</answer>",
    "<answer>not 18</answer>",
    "<answer>f(18)</answer>",
    "#### -(18)",
    "\\boxed{-(18)}",
    "\\boxed{\\pm 18}",
    "\\boxed{\\leq 18}",
    "\\boxed{x \\geq 18}",
    "\\boxed{18 < x}",
    "\\boxed{x \\ne 18}",
    "\\boxed{\\neq 18}",
    "The answer is less than 18",
    "The answer is at most 18",
    "The answer is under 18",
    "The answer is at least 18.",
    "It is at most 18",
    "It is under 18.",
    "-\\boxed{18}",
    "$-\\boxed{18}$",
    "#### >= 18",
    "#### ≥ 18",
    "#### != 18",
    "#### \\pm 18",
    "±18",
    "< 18",
    "#### \\leq 18",
    "\\boxed{\\text{not } 18}",
    "The answer is not 18",
    "The answer isn't 18",
    "The answer isn’t 18.",
    "The answer cannot be 18",
    "The answer can't be 18",
    "The answer is definitely not 18",
    "#### not 18",
    "It is not 18.",
    "It isn't 18",
    "#### 18 maybe 20",
    "#### 18 vs 20",
    "#### 18~20",
    "#### 18 (20)",
    "#### 18..20",
    "#### 18? 19?",
    "#### 18 if x, 20 otherwise",
    "#### 18 \\text{ or } 20",
    "#### 18 \\\\ 20",
    "#### 18 \\quad 20",
    "The answer is 18 eggs or possibly 20 eggs",
    "It is 17, 18.",
    "#### 18 squared",
    "#### half of 18",
    "#### twice 18",
    "#### 18**2",
    "#### 18 choose 2",
    "#### 18 mod 5",
    "#### 18 less than 30",
    "#### 18 increased by 5",
    "#### 18 and a half",
    "#### 18 dollars and fifty cents",
    "The answer is half of 18.",
    "half of 18",
    "It is twice 18",
    "18**2",
    "18 ** 2",
    "18 maybe 20",
    "It is 20 maybe 18",
    "The answer is 18, or 20.",
    "#### 18 or twenty",
    "The answer is 18 or more.",
    "18 and a half",
    "She has 18 squared.",
    "The answer is 18.\nThe answer is not 18.",
    "The answer is 18.\nThe answer is half of 36.",
    "#### 18\nThe answer is at most 20",
    "18 \\boxed{18!}",
    "#### 18 or so",
    "<answer>18 or so</answer>",
    "\\boxed{18 \\text{ squared}}",
    "The answer won't be 18.",
    "#### 18%of 20",
    "The answer is 18 no 20",
    "The answer is 18 but could be 20",
    "The answer is 18? No, 20",
    "#### 18 -> 20",
    "18 is not the answer.",
    "18 is wrong.",
    "I don't think the answer is 18.",
    "#### 18 dollars, but 20",
    "It is 20~18",
    "It is 20 (18)",
    "20 -> 18",
    "20 if x, 18 otherwise",
    "20 \\text{ or } 18",
    "20 \\\\ 18",
    "20 increased by 18",
    "#### 18 dollars, maybe 20",
    "The answer wasn't 18",
    "The answer is not equal to 18",
]
"""Each holds an 18 that is only a part of the answer, is not said to be it, or not alone."""


def says(message: str | None) -> Outcome:
    return Outcome({}, {}, message)


def verdict(message: str | None, gold: str, mode: str = "fixed") -> str:
    return str(build("number_equals", gold=gold, mode=mode).check(says(message)).verdict)


@pytest.mark.parametrize("mode", list(NumberMode))
def test_no_answer_fails_in_every_mode(mode: NumberMode) -> None:
    for message in (None, "", " \n", "no digits here"):
        result = NumberEquals(gold="0", mode=mode).check(says(message))
        assert result.verdict == "fail" and result.score == 0.0 and result.detail


def test_a_result_says_which_rule_read_what_and_where() -> None:
    result = NumberEquals(gold="18").check(says("So it is\n#### $20"))
    assert result.detail == "'$20' (hash, characters 14-17) is not '18'"
    found = extract_number("So it is\n#### $20")
    assert found is not None and (found.number, found.rule, found.start, found.end) == (20, "hash", 14, 17)
    assert "expression" in NumberEquals(gold="18").check(says("#### 20-2")).detail
    assert not NumberEquals(gold="18").check(says("#### 18")).detail


@pytest.mark.parametrize("message", NOT_18)
def test_a_number_that_is_only_a_part_is_no_answer(message: str) -> None:
    found = extract_number(message)
    assert found is not None and found.number is None and found.problem, found
    assert verdict(message, "18") == "fail"
    assert build("number_format").check(says(message)).verdict == "fail"


def test_a_gold_that_is_no_number_is_refused() -> None:
    for gold in ("", "eighteen", "10-5", "18 eggs", "1,23", "5/0", "x"):
        with pytest.raises(ValidationError, match="gold"):
            build("number_equals", gold=gold)
    for gold in ("18", "-3", "70,000", "1/2", "-1.50", "$5"):
        assert verdict(f"#### {gold}", gold) == "pass"


def test_it_judges_the_answer_alone_and_has_a_plain_name() -> None:
    assertion = build("number_equals", gold="18")
    assert assertion.on_answer and not assertion.on_files
    assert assertion.default_name() == "number_equals"
    assert assertion.canonical() == {"kind": "number_equals", "gold": "18"}


@pytest.mark.parametrize(
    ("message", "any_", "hash_", "phrase", "box"),
    [
        ("#### 7", "pass", "pass", "fail", "fail"),
        ("The answer is 7.", "pass", "fail", "pass", "fail"),
        ("so \\boxed{7}", "pass", "fail", "fail", "pass"),
        ("#### 7\nThe answer is 7.", "pass", "fail", "pass", "fail"),
        ("it is 7", "fail", "fail", "fail", "fail"),
        ("#### 10-5", "fail", "fail", "fail", "fail"),
        ("\\boxed{}", "fail", "fail", "fail", "fail"),
        ("", "fail", "fail", "fail", "fail"),
    ],
)
def test_format_looks_at_the_last_marker(message: str, any_: str, hash_: str, phrase: str, box: str) -> None:
    modes = ("any", "hash", "phrase", "box")
    found = tuple(str(build("number_format", mode=mode).check(says(message)).verdict) for mode in modes)
    assert found == (any_, hash_, phrase, box)


def test_public_bug_reports_are_judged_right() -> None:
    cases = json.loads(shared("fixtures/verifier_cases.json").read_text("utf-8"))
    cases = [case for case in cases if case["env"] == "gsm8k"]
    assert len(cases) == 21
    for case in cases:
        message = case["response"]
        stops = [message.find(stop) for stop in case.get("stop", ()) if stop in message]
        message = message[: min(stops, default=len(message))]
        assert (verdict(message, case["gold"]) == "pass") is case["expected"], case["id"]
        # The published modes answer as the published evaluator did, wrong where it was.
        assert (verdict(message, case["gold"], "flexible") == "pass") is case["observed"]["lm_eval_flexible"], case[
            "id"
        ]
        strict = {verdict(message, case["gold"], mode) for mode in ("strict_hash", "strict_phrase")}
        assert ("pass" in strict) is case["observed"]["lm_eval_strict"], case["id"]


def test_modes_of_the_other_evaluator_are_reproduced() -> None:
    cases = json.loads(shared("fixtures/credit.json").read_text("utf-8"))["cases"]
    cases = [case for case in cases if case["group"] == "verifier.gsm8k" and "response" in case["inputs"]]
    cases = [case for case in cases if isinstance(case["expected"], dict)]
    assert len(cases) == 14
    for case in cases:
        message, gold = case["inputs"]["response"], case["inputs"]["target"]
        for mode in ("flexible", "last_number", "any"):
            expected = case["expected"][mode]
            found = extract_number(message, NumberMode(mode))
            text = None if found is None else found.value
            if mode == "last_number" and text is not None:
                text = text.replace(",", "")
            assert text == expected["extracted"], (case["id"], mode)
            # `flexible` compares as lm-eval does, as text: 18.00 is not 18 there.
            if (case["id"], mode) != ("gsm8k_decimal", "flexible"):
                assert (verdict(message, gold, mode) == "pass") is (expected["score"] == 1.0), (case["id"], mode)
    assert verdict("The answer is 18.00.", "18", "flexible") == "fail"


def test_labelled_solutions_get_their_labels() -> None:
    path = shared("data/gsm8k/example_model_solutions.jsonl")
    counts: Counter[bool] = Counter()
    for line in path.read_text("utf-8").split("\n"):
        if not line:
            continue
        row = json.loads(line)
        gold = row["ground_truth"].rpartition("A: ")[2].strip()
        for entry in row.values():
            if isinstance(entry, dict):
                counts[(verdict(entry["solution"], gold) == "pass") is entry["is_correct"]] += 1
    assert counts == {True: 5276}


@pytest.mark.parametrize(("count", "seed"), [(60, 0), pytest.param(2000, 1, marks=pytest.mark.whole, id="whole")])
def test_no_reply_errs(count: int, seed: int) -> None:
    checks = [
        *(NumberEquals(gold="12", mode=mode) for mode in NumberMode),
        *(NumberFormat(mode=mode) for mode in MarkerMode),
    ]
    for text in texts(count, seed):
        for one in checks:
            (found,) = judge(one, Outcome({}, {}, text))
            assert found.verdict in ("pass", "fail") and not found.broke, (ascii(text), found)


def test_the_right_and_the_wrong_answer_of_each_mode() -> None:
    for gold in ("18", "-3", "70,000", "9182736"):
        assert [NumberEquals(gold=gold, mode=mode).self_test() for mode in NumberMode] == [[]] * len(NumberMode)
