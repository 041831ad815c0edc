from __future__ import annotations

import pytest

from tasks.comparable import base_rates
from tasks.sources import load_tasks
from tasks.splits import split_by_outcome, split_tasks

TASKS = load_tasks("generated:quickstart?n=60")


def test_equal_sides_raise_no_warning() -> None:
    split = split_tasks(TASKS, held_out_fraction=0.3, seed=0, unseen_families=2)
    rates = base_rates(split, lambda task: int(task.content_hash, 16) % 2)
    assert [side.side for side in rates.sides] == ["pool", "held_out", "unseen"]
    assert rates.warnings == ()
    assert str(rates).splitlines()[0].startswith("pool: ")


def test_a_gap_before_training_is_said() -> None:
    hard = {task.id for task in TASKS[:20]}
    split = split_by_outcome(TASKS, lambda task: task.id in hard, allow_outcome=True)
    rates = base_rates(split, lambda task: 0.02 if task.id in hard else 0.4)
    assert "pool: 40.0 % of 40 tasks" in str(rates)
    assert "chosen by outcome" in rates.warnings[0]
    assert "differ by 38 points before any training" in rates.warnings[1]


def test_what_was_not_decided_is_in_no_mean() -> None:
    split = split_tasks(TASKS, held_out_fraction=0.5, seed=0)
    lost = split.pool[0]
    rates = base_rates(split, lambda task: None if task is lost else 1.0)
    assert (rates.sides[0].rate, rates.sides[0].undecided, rates.sides[0].tasks) == (1.0, 1, 29)
    assert "(1 undecided)" in str(rates)
    empty = base_rates(split, lambda task: None)
    assert empty.sides[0].rate is None
    assert "nothing measured" in str(empty)


@pytest.mark.parametrize("rate", [1.5, -0.1, float("nan")])
def test_rates_that_are_none(rate: float) -> None:
    with pytest.raises(ValueError, match="must lie between 0 and 1"):
        base_rates(split_tasks(TASKS), lambda task: rate)
