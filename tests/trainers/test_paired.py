from __future__ import annotations

import random
from itertools import product

import pytest

from trainers.paired import POWER, difference_interval, mcnemar_power, smallest_difference
from trainers.stats import mcnemar


def passes(values: list[bool]) -> dict[str, list[bool]]:
    return {str(i): [value] for i, value in enumerate(values)}


def test_interval_is_that_of_the_paper() -> None:
    """Newcombe 1998, Statistics in Medicine 17:2635: counts 36, 12, 2, 0 and method 10."""
    first, second = [True] * 36 + [False] * 12 + [True] * 2, [True] * 48 + [False] * 2
    found = difference_interval(passes(first), passes(second))
    assert found is not None and (found.low, found.high) == (
        pytest.approx(0.0569, abs=5e-5),
        pytest.approx(0.3404, abs=5e-5),
    )


@pytest.mark.parametrize("attempts", [1, 4])
def test_interval_covers(attempts: int) -> None:
    rng, missed, runs = random.Random(0), 0, 400
    for _ in range(runs):
        rates = [rng.random() for _ in range(40)]
        arms = [
            {str(i): [rng.random() < s * r for _ in range(attempts)] for i, r in enumerate(rates)} for s in (1, 0.8)
        ]
        interval = difference_interval(*arms)
        assert interval is not None
        missed += not interval.low <= -0.1 <= interval.high
    assert missed / runs <= 0.08


def test_interval_needs_a_common_task_and_has_a_width_where_all_agree() -> None:
    assert difference_interval({"a": [True]}, {"b": [True]}) is None
    found = difference_interval(passes([False] * 6), passes([True] * 6))
    assert found is not None and 0.3 < found.low < 0.7 and found.high == pytest.approx(1.0)


def test_power_is_the_sum_over_all_outcomes() -> None:
    n, better, worse = 7, 0.1, 0.7
    total = 0.0
    for kinds in product((1, -1, 0), repeat=n):
        b, w = kinds.count(1), kinds.count(-1)
        if w > b and mcnemar(b, w) < 0.05:
            total += better**b * worse**w * (1 - better - worse) ** kinds.count(0)
    assert mcnemar_power(n, better, worse) == pytest.approx(total)
    with pytest.raises(ValueError, match="probabilities"):
        mcnemar_power(5, 0.7, 0.7)


def test_smallest_difference_has_its_power_and_needs_six_tasks() -> None:
    assert smallest_difference(passes([True] * 5), passes([False] * 5)) is None
    first, second = [True] * 50 + [False] * 50, [True] * 40 + [False] * 50 + [True] * 10
    found = smallest_difference(passes(first), passes(second))
    assert found is not None
    assert mcnemar_power(100, (0.2 + found) / 2, (0.2 - found) / 2) == pytest.approx(POWER, abs=0.01)
    several = smallest_difference(
        {k: v * 2 for k, v in passes(first).items()}, {k: v * 2 for k, v in passes(second).items()}
    )
    assert several == pytest.approx(2.8016 * (0.2 / 100) ** 0.5, abs=1e-3)
