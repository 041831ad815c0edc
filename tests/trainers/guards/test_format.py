"""The gap between the verifier's and the strict figure of question sets, planted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tasks.sources import load_tasks
from tasks.task import Task
from tests.trainers.fake_run import episode
from tests.trainers.guards.planted import facts, kinds, on, only
from trainers.guards import GuardName, Measured, Watch
from trainers.measure import measure

QUESTIONS = load_tasks("gsm8k:sample")[:40]
MARKED, BARE, WRONG = "#### {}", "It comes to {} in all.", "#### 9182736"


def measured(step: int, marked: int, bare: int) -> Measured:
    """The first `marked` questions are answered right and marked, the next `bare` right without a mark."""

    played = []
    for number, task in enumerate(QUESTIONS):
        right = number < marked + bare
        text = (MARKED if number < marked else BARE if right else WRONG).format(gold(task))
        one = episode(task, random.Random(0), 1.0)
        one.passed, one.reward, one.stop_reason = right, float(right), "submitted"
        one.notes = {"answers": [{"turn": 1, "text": text}]}
        played.append(one)
    arms = {"sampled": measure(played, "T=1")}
    return Measured(step, arms, "sampled", False, 1.0, 0, {"sampled": played})


def gold(task: Task) -> str:
    return str(getattr(task.assertions[0], "gold", ""))


def watch() -> Watch:
    return on(GuardName.FORMAT_DRIFT, replace(facts(), held_out=QUESTIONS))


def test_answers_that_lose_their_form_are_warned_of_once() -> None:
    guard = watch()
    for step, (marked, bare) in enumerate([(30, 0), (28, 2), (15, 15), (10, 20)]):
        guard.measured(measured(step, marked, bare))
    finding = only(guard)
    assert kinds(guard) == [(2, "warn", "drift")]
    assert "strict reading passes 15, the flexible one 30 and the verifier 30 of 40" in finding.message
    assert "right without the form are 15, +38 points since the first measurement" in finding.message


def test_a_strict_figure_that_only_the_form_raised_is_noted() -> None:
    guard = watch()
    guard.measured(measured(0, 5, 25))
    guard.measured(measured(1, 28, 2))
    assert kinds(guard) == [(1, "note", "format_only")]


@pytest.mark.parametrize("course", [[(10, 0), (35, 0)], [(30, 0), (27, 3)], [(5, 25), (38, 2)]])
def test_learning_the_task_and_small_moves_are_nothing(course: list[tuple[int, int]]) -> None:
    guard = watch()
    for step, (marked, bare) in enumerate(course):
        guard.measured(measured(step, marked, bare))
    assert guard.findings == []


def test_its_memory_is_part_of_a_checkpoint_and_other_tasks_are_none_of_its_business() -> None:
    first, second = watch(), watch()
    first.measured(measured(0, 30, 0))
    second.load_state_dict(first.state_dict())
    second.measured(measured(2, 10, 20))
    assert kinds(second) == [(2, "warn", "drift")]
    shell = on(GuardName.FORMAT_DRIFT)
    shell.measured(measured(0, 30, 0))
    shell.measured(measured(1, 0, 30))
    assert shell.findings == []
