"""Means over seeds with their intervals, and curves with bands."""

from __future__ import annotations

import pytest

from trainers.curves import curve_over_seeds, mean_over_seeds


def test_a_mean_over_seeds_has_students_interval() -> None:
    found = mean_over_seeds([0.1, 0.2, 0.3])
    assert found is not None and found.interval is not None and found.n == 3
    # Student's t with 2 degrees of freedom is 4.303 at 97.5 %; the standard deviation is 0.1.
    half = 4.302653 * 0.1 / 3**0.5
    assert (found.mean, found.interval.low, found.interval.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    one = mean_over_seeds([0.5])
    assert one is not None and (one.mean, one.n, one.interval) == (0.5, 1, None)
    assert mean_over_seeds([]) is None


def test_a_curve_is_at_the_steps_that_all_runs_have() -> None:
    curve = curve_over_seeds(
        [("a", [(0, 0.1), (10, 0.4), (20, 0.9)]), ("b", [(0, 0.3), (10, 0.6)]), ("never measured", [])]
    )
    assert curve is not None
    assert (curve.steps, curve.runs, curve.short) == ((0, 10), 2, ("b",))
    assert curve.mean == pytest.approx((0.2, 0.5)) and curve.high[0] - curve.mean[0] == pytest.approx(
        12.7062 * 0.1, abs=1e-4
    )
    assert curve_over_seeds([("a", [(0, 0.1)]), ("b", [(1, 0.1)])]) is None, "no step in common"
    alone = curve_over_seeds([("a", [(0, 0.1)])])
    assert alone is not None and (alone.mean, alone.low, alone.high) == ((0.1,), (), ())
