"""The published results, one by one, and the public bug cases."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.answers.instructions import Semantics, follows, make
from tests.shared_data import shared

DIFFERING = frozenset(
    {
        "change_case:english_capital",
        "change_case:english_lowercase",
        "detectable_content:number_placeholders",
        "detectable_content:postscript",
        "detectable_format:constrained_response",
        "detectable_format:json_format",
        "detectable_format:multiple_sections",
        "detectable_format:number_bullet_lists",
        "detectable_format:number_highlighted_sections",
        "detectable_format:title",
        "keywords:existence",
        "keywords:forbidden_words",
        "keywords:frequency",
        "language:response_language",
        "length_constraints:nth_paragraph_first_word",
        "length_constraints:number_sentences",
        "startend:quotation",
    }
)
"""The ids whose readings differ: docs/verifiers.md says how."""


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line.strip()]


def test_the_published_results_on_gpt4_result_for_result() -> None:
    golden = json.loads(shared("fixtures/ifeval_golden.json").read_text(encoding="utf-8"))["sets"]["gpt4"]["results"]
    rows = {row["prompt"]: row for row in lines(shared("data/ifeval/input_data.jsonl"))}
    answers = lines(shared("data/ifeval/responses_gpt4_20231107.jsonl"))
    wrong: list[tuple[int, str, bool]] = []
    differing: set[str] = set()
    compared = 0
    for answer in answers:
        row = rows[answer["prompt"]]
        asked = list(zip(row["instruction_id_list"], row["kwargs"], strict=True))
        for loose, bits in zip((False, True), golden[str(row["key"])], strict=True):
            assert len(bits) == len(asked)
            for (id, kwargs), bit in zip(asked, bits, strict=True):
                found = make(id, kwargs)
                verdict = follows(found, answer["response"], Semantics.REFERENCE, loose=loose)
                if follows(found, answer["response"], Semantics.FIXED, loose=loose) != verdict:
                    differing.add(id)
                if bit == "?":  # the published evaluator draws at random
                    continue
                compared += 1
                if bit != str(int(verdict)):
                    wrong.append((row["key"], id, loose))
    assert len(answers) == len(golden) == 540
    assert compared == 1660
    assert not wrong
    assert differing <= DIFFERING


def cases() -> list[dict[str, Any]]:
    found = json.loads(shared("fixtures/verifier_cases.json").read_text(encoding="utf-8"))
    return [case for case in found if case.get("suite") == "ifeval"]


def test_public_bug_cases() -> None:
    wrong: list[tuple[str, str]] = []
    for case in cases():
        found = make(case["instruction_id"], case["kwargs"])
        if follows(found, case["response"]) is not case["expected"]:
            wrong.append((case["id"], "fixed"))
        drawn = case.get("nondeterministic_reference", False)
        if not drawn and follows(found, case["response"], Semantics.REFERENCE) is not case["observed"]["reference"]:
            wrong.append((case["id"], "reference"))
    assert len(cases()) == 16
    assert not wrong


@pytest.mark.parametrize("id", sorted(DIFFERING))
def test_the_documented_differences_are_those_in_the_tests(id: str) -> None:
    from tests.tasks.answers.ifeval.test_semantics import CASES

    assert any(case[0] == id and case[3] != case[4] for case in CASES)


def test_no_other_id_differs_in_the_tests() -> None:
    from tests.tasks.answers.ifeval.test_semantics import CASES

    assert {case[0] for case in CASES if case[3] != case[4]} == DIFFERING


def test_official_ids_as_another_project_reads_them() -> None:
    """An id that is unknown fails there and is an error here; a reply is judged without its thoughts, as everywhere."""
    found = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    multi = [case for case in found if case["group"] == "verifier.if_multi"]
    for case in multi:
        (asked,) = case["inputs"]["ground_truth"]
        reply = case["inputs"]["response"].rpartition("</think>")[2]
        *known, unknown = zip(asked["instruction_id"], asked["kwargs"], strict=True)
        with pytest.raises(ValueError, match="unknown:thing"):
            make(unknown[0], unknown[1] or {})
        verdicts = [follows(make(id, kwargs or {}), reply) for id, kwargs in known]
        assert verdicts == case["expected"]["per_constraint"][:-1], case["id"]
    assert len(multi) == 4


# -- The functions of a third project, which have names and readings of their own -------------------------------------


def _n(id: str, key: str) -> Any:
    return lambda given: (id, {key: given["N"]})


def _related(id: str, key: str, relation: str) -> Any:
    return lambda given: (id, {key: given["N"], relation: given.get("quantifier", "at least")})


def _plain(id: str, *keys: str) -> Any:
    return lambda given: (id, {key: given[key] for key in keys})


OFFICIAL = {
    "validate_word_constraint": _related("length_constraints:number_words", "num_words", "relation"),
    "verify_sentence_constraint": _related("length_constraints:number_sentences", "num_sentences", "relation"),
    "verify_keyword_frequency": lambda given: (
        "keywords:frequency",
        {"keyword": given["word"], "frequency": given["N"], "relation": "at least"},
    ),
    "verify_letter_frequency": lambda given: (
        "keywords:letter_frequency",
        {"letter": given["letter"], "let_frequency": given["N"], "let_relation": "at least"},
    ),
    "validate_forbidden_words": _plain("keywords:forbidden_words", "forbidden_words"),
    "validate_json_format": _plain("detectable_format:json_format"),
    "validate_title": _plain("detectable_format:title"),
    "validate_two_responses": _plain("combination:two_responses"),
    "validate_lowercase": _plain("change_case:english_lowercase"),
    "validate_placeholders": _n("detectable_content:number_placeholders", "num_placeholders"),
    "verify_bullet_points": _n("detectable_format:number_bullet_lists", "num_bullets"),
    "verify_paragraph_count": _n("length_constraints:number_paragraphs", "num_paragraphs"),
    "validate_highlighted_sections": _n("detectable_format:number_highlighted_sections", "num_highlights"),
    "validate_end": _plain("startend:end_checker", "end_phrase"),
    "verify_postscript": _plain("detectable_content:postscript", "postscript_marker"),
    "validate_no_commas": _plain("punctuation:no_comma"),
}
"""The official instruction that a function of that project stands for."""
OTHERWISE = {
    "ifeval_forbidden_substring": "a forbidden word is a word: `concatenate` does not hold `cat`",
    "ifeval_json_fenced": "the published evaluator takes the fence off, too",
    "ifeval_paragraph_count": "paragraphs are divided by `***`, not by `* * *`",
    "ifeval_postscript": "a postscript begins a line",
}
"""Cases that ours decides the other way, and why."""
NO_ANSWER = {
    "ifeval_words_around": "must be one of 'at least'",
    "ifeval_sentence_around": "must be one of 'at least'",
    "ifeval_bad_quantifier": "must be one of 'at least'",
    "ifeval_unknown_func": "nope",
    "ifeval_exception_swallowed": "number_paragraphs",
}
"""Instructions that are none of the 25: an error of the task here, and a silent pass or fail there."""
NOT_OFFICIAL = {"ifeval_choice_substring", "ifeval_choice_empty_norm"}
"""A choice among options is no official instruction: `constrained_response` has its own three."""


def test_official_instructions_under_the_names_of_a_third_project() -> None:
    found = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    decided: dict[str, bool] = {}
    refused: dict[str, str] = {}
    theirs = {case["id"]: case["expected"] for case in found if case["group"] == "verifier.ifeval"}
    for case in found:
        if case["group"] != "verifier.ifeval" or case["id"] in NOT_OFFICIAL:
            continue
        given, function = case["inputs"], case["function"].rpartition(":")[2]
        if case["id"] == "ifeval_none_kwargs_filtered":
            asked = ("punctuation:no_comma", {k: v for k, v in given["ground_truth"].items() if k != "func_name"})
        elif function in OFFICIAL:
            asked = OFFICIAL[function](given)
        else:  # what that project's verifier is given by name
            known = {"validate_paragraphs": "length_constraints:number_paragraphs"}
            asked = (known.get(given["func_name"], given["func_name"]), given.get("kwargs", {}))
        try:
            decided[case["id"]] = follows(make(*asked), given.get("text", ""))
        except ValueError as error:
            refused[case["id"]] = str(error)
    assert {id for id, verdict in decided.items() if verdict != bool(theirs[id])} == set(OTHERWISE)
    assert {id: NO_ANSWER[id] in message for id, message in refused.items()} == dict.fromkeys(NO_ANSWER, True)
    assert set(decided) | set(refused) | NOT_OFFICIAL == set(theirs)
