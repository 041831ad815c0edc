from __future__ import annotations

from typing import Any

import pytest

from tasks.answers.instructions import InstructionFollowed, Semantics
from tasks.assertions import AssertionResult, Verdict
from tasks.assertions.base import Outcome, judge
from tests.tasks.answers.ifbench.test_all_ids import EXAMPLES as IFBENCH
from tests.tasks.answers.ifeval.examples import EXAMPLES
from tests.tasks.assertions.build import build
from tests.tasks.assertions.hostile import texts

WORDS: dict[str, Any] = {"id": "length_constraints:number_words", "kwargs": {"num_words": 3, "relation": "at least"}}


def judged(message: str | None, **keys: Any) -> AssertionResult:
    return build("instruction", **{**WORDS, **keys}).check(Outcome({}, {}, message))


def test_pass_and_fail() -> None:
    assert judged("one two three").verdict is Verdict.PASS
    failed = judged("one two")
    assert failed.verdict is Verdict.FAIL and failed.score == 0
    assert failed.detail == "not followed: has at least 3 words"
    assert failed.name == "length_constraints:number_words"


@pytest.mark.parametrize("message", [None, "", " \n"])
def test_no_answer_fails(message: str | None) -> None:
    assert judged(message, kwargs={"num_words": 3, "relation": "less than"}).verdict is Verdict.FAIL


@pytest.mark.parametrize("message", ["one two three", None])
@pytest.mark.parametrize("keys", [{"id": "no:such"}, {"kwargs": {"num_words": 3}}, {"kwargs": {"words": 3}}])
def test_what_cannot_be_judged_is_an_error(keys: dict[str, Any], message: str | None) -> None:
    found = judged(message, **keys)
    assert found.verdict is Verdict.ERROR and found.score is None and found.detail


@pytest.mark.parametrize("language", ["klingon", "xx"])
@pytest.mark.parametrize("semantics", ["fixed", "reference"])
def test_a_language_that_no_one_can_tell_is_an_error(language: str, semantics: str) -> None:
    keys = {"id": "language:response_language", "kwargs": {"language": language}, "semantics": semantics}
    assert judged("nuqneH", **keys).verdict is Verdict.ERROR


def test_semantics_and_loose_decide() -> None:
    keys = {"id": "keywords:existence", "kwargs": {"keywords": ["art"]}}
    assert judged("smart", **keys).verdict is Verdict.FAIL
    assert judged("smart", **keys, semantics="reference").verdict is Verdict.PASS
    assert judged("a, b\nc", id="punctuation:no_comma", kwargs={}).verdict is Verdict.FAIL
    assert judged("a, b\nc", id="punctuation:no_comma", kwargs={}, loose=True).verdict is Verdict.PASS


def test_a_word_that_the_reference_cannot_read_is_an_error_there() -> None:
    keys = {"id": "keywords:frequency", "kwargs": {"keyword": "(", "frequency": 1, "relation": "at least"}}
    assert judged("a ( b", **keys).verdict is Verdict.PASS
    found = judged("a ( b", **keys, semantics="reference")
    assert found.verdict is Verdict.ERROR and "regular expression" in found.detail


def test_words_for_people_and_for_feedback() -> None:
    found = InstructionFollowed(**WORDS)
    assert found.describe() == "the answer has at least 3 words"
    assert found.feedback == "number of words"
    assert found.on_answer and not found.on_files
    unknown = InstructionFollowed(id="no:such")
    assert unknown.describe() == unknown.feedback == "no:such"


def test_canonical_form_is_read_again() -> None:
    found = build("instruction", **WORDS, semantics="reference")
    again = found.canonical()
    assert again == {"kind": "instruction", **WORDS, "semantics": "reference"}
    assert build(**again) == found


@pytest.mark.parametrize(("count", "seed"), [(20, 0), pytest.param(400, 1, marks=pytest.mark.whole, id="whole")])
def test_no_message_errs_or_breaks_a_check(count: int, seed: int) -> None:
    made = [(one.id, one.args) for one in EXAMPLES] + list(IFBENCH.items())
    checks = [InstructionFollowed(id=id, kwargs=kwargs, semantics=how) for id, kwargs in made for how in Semantics]
    checks = [one for one in checks if not one.self_test()]  # without those whose package is not installed
    assert len(checks) > 100
    for text in texts(count, seed):
        for one in checks:
            (found,) = judge(one, Outcome({}, {}, text))
            assert found.verdict in ("pass", "fail") and not found.broke, (one, ascii(text), found)
