"""Readings of answers, and what several attempts vote for."""

from __future__ import annotations

import random
from itertools import combinations
from statistics import fmean

import pytest

from tasks.answers.readings import Reading, is_question, read_as, vote
from tasks.sources import load_tasks
from tasks.task import Task
from tests.trainers.fake_run import episode
from tests.trainers.fake_run import task as shell_task
from trainers.answers import Answers, Instructions, Readings, answers_of, instructions_of, majority_at_k

NUMBER = load_tasks("gsm8k:sample")[0]
EXPRESSION = load_tasks("math:sample")[0]
TEXT = next(task for task in load_tasks("ifeval:sample") if len(task.assertions) == 1)


def gold(task: Task) -> str:
    return str(getattr(task.assertions[0], "gold", ""))


@pytest.mark.parametrize(
    ("task", "text", "strict", "flexible"),
    [
        (NUMBER, "#### {}", True, True),
        (NUMBER, "So it is {}", False, True),
        (NUMBER, "#### {} of 7", True, False),
        (NUMBER, "#### 9182736", False, False),
        (NUMBER, None, False, False),
        (EXPRESSION, r"\boxed{{{}}}", True, True),
        (EXPRESSION, "Final Answer: The final answer is ${}$. I hope it is correct.", False, True),
        (EXPRESSION, "no idea", False, False),
    ],
)
def test_readings(task: Task, text: str | None, strict: bool, flexible: bool) -> None:
    answer = None if text is None else text.format(gold(task))
    assert read_as(task.assertions, answer, Reading.STRICT) is strict
    assert read_as(task.assertions, answer, Reading.FLEXIBLE) is flexible


def test_readings_of_instructions_are_strict_and_loose() -> None:
    right = TEXT.oracle.answer if TEXT.oracle else None
    assert read_as(TEXT.assertions, right, Reading.STRICT) is True is read_as(TEXT.assertions, right, Reading.FLEXIBLE)
    assert is_question(TEXT.assertions) and not is_question(shell_task(0, "pool").assertions)
    assert not is_question([])


def test_figures_of_instructions_have_their_published_names() -> None:
    """By hand: of two prompts with three instructions, the loose reading takes what stands behind the first line."""
    asked = [{"kind": "instruction", "id": "punctuation:no_comma", "kwargs": {}}]
    words = {"kind": "instruction", "id": "length_constraints:number_words"}
    both = [*asked, {**words, "kwargs": {"num_words": 3, "relation": "at least"}}]
    tasks = [
        Task.model_validate({"id": f"t{i}", "intent": "Write.", "assertions": each})
        for i, each in enumerate((asked, both))
    ]
    played = []
    for task, text in ((tasks[0], "Sure, here:\nfine words"), (tasks[1], "one two")):
        one = episode(task, random.Random(0), 1.0)
        one.passed, one.reward, one.notes = False, 0.0, {"answers": [{"turn": 1, "text": text}]}
        played.append(one)
    broken = episode(tasks[0], random.Random(0), 1.0, broken=True)
    expected = Instructions(2, 3, 0.0, pytest.approx(1 / 3), 0.5, pytest.approx(2 / 3))  # type: ignore[arg-type]
    found = answers_of(tasks, [*played, broken], 1)
    assert found is not None and found.instructions == expected
    assert found.to_json()["instructions"]["prompt_level_loose_acc"] == 0.5
    assert instructions_of([NUMBER], played) is None
    assert "instructions" not in Answers(Readings(1, 1, 1, 1, 0), {}).to_json()


def test_votes_are_numbers_and_expressions() -> None:
    assert vote(NUMBER.assertions, "#### 1,234.0") == vote(NUMBER.assertions, "so 1234") == "1234"
    assert vote(NUMBER.assertions, "none") is None is vote(NUMBER.assertions, None)
    assert vote(EXPRESSION.assertions, r"\boxed{\frac{1}{2}}") == vote(EXPRESSION.assertions, r"is $\frac{1}{2}$.")
    assert vote(TEXT.assertions, "any text") is None


def test_majority_is_the_mean_over_all_subsets() -> None:
    cast = [("5", True), ("5", True), ("7", False), ("7", False), ("8", False), (None, False)]

    def right(subset: tuple[tuple[str | None, bool], ...]) -> float:
        counts = {c: sum(v == c for v, _ in subset) for c, _ in subset if c is not None}
        best = [c for c, n in counts.items() if n == max(counts.values())]
        return fmean(c == "5" for c in best) if best else 0.0

    for k in (1, 2, 3, 6):
        expected = fmean(right(subset) for subset in combinations(cast, k))
        assert majority_at_k({"a": cast}, k) == pytest.approx(expected)
    assert majority_at_k({"a": cast}, 1) == pytest.approx(2 / 6)
    assert majority_at_k({"a": cast, "b": [("1", True)] * 6}, 6) == pytest.approx((0.5 + 1) / 2)
    assert majority_at_k({"a": cast}, 7) is None


def test_draws_stand_for_subsets_where_there_are_many() -> None:
    cast = [("1", True)] * 9 + [("2", False)] * 7
    exact = fmean(sum(v == "1" for v, _ in s) > 2 for s in combinations(cast, 5))
    assert majority_at_k({"a": cast}, 5) == majority_at_k({"a": cast}, 5) == pytest.approx(exact, abs=0.05)


def test_answers_of_an_evaluation() -> None:
    played = []
    for text, passed in (("#### {}", True), ("So {}", True), ("#### 9182736", False)):
        one = episode(NUMBER, random.Random(0), 1.0)
        one.passed, one.reward, one.notes = passed, 1.0, {"answers": [{"turn": 1, "text": text.format(gold(NUMBER))}]}
        played.append(one)
    lost = episode(NUMBER, random.Random(0), 1.0, broken=True)
    found = answers_of([NUMBER], [*played, lost], 3)
    assert found is not None and found.readings == Readings(3, strict=1, flexible=2, verifier=2, unmarked=1)
    assert found.majority == {"1": pytest.approx(2 / 3), "2": pytest.approx(2 / 3), "3": 1.0}
    assert answers_of([shell_task(0, "pool")], played, 3) is None
