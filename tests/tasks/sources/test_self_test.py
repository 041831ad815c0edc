from __future__ import annotations

import pytest

from tasks.sources.questions import self_test
from tests.envs.fakes import task
from tests.envs.questions import question, questions


def test_coverage_of_right_and_of_no_answers() -> None:
    found = self_test([*questions(7), task()])
    assert found is not None and found.ok and not found.hopeless
    assert found.text() == "gold scores 1 on 7/7, empty 0 on 7/7"


def test_no_question_no_test() -> None:
    assert self_test([task()]) is None


def test_what_fails_is_named() -> None:
    wrong = question(id="wrong", oracle={"answer": "#### 71"})
    free = question(id="free", assertions=[{"kind": "not", "of": {"kind": "number_equals", "gold": "5"}}])
    found = self_test([*questions(2), wrong, free])
    assert found is not None and not found.ok and not found.hopeless
    assert (found.gold_right, found.gold, found.empty_right, found.tested) == (3, 4, 3, 4)
    assert "wrong: the right answer scores 0 (number_equals" in found.text()
    assert "free: no answer scores 1" in found.text()
    alone = self_test([wrong])
    assert alone is not None and alone.hopeless


def test_an_error_is_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(question().assertions[0])
    monkeypatch.setattr(kind, "check", lambda self, outcome: self.erred("no verifier"))
    found = self_test(questions(2))
    assert found is not None and found.hopeless and "could not be judged: number_equals: no verifier" in found.text()


def test_a_large_set_is_sampled_evenly() -> None:
    found = self_test(questions(50), most=10)
    assert found is not None and found.tested == 10
    assert "of 50 questions, 10 were tested" in found.text()


def test_a_set_without_right_answers_says_so() -> None:
    found = self_test([question(oracle=None)])
    assert found is not None and not found.hopeless
    assert found.text() == "gold scores 1 on 0/0, empty 0 on 1/1 (no task of the set knows a right answer)"
