from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.uncertainty import (
    Aggregate,
    Bounds,
    aggregate,
    confidence,
    entropy_bounds,
    uncertainty,
)


def entropy_of(probabilities: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12), st.floats(0.05, 0.95))
def test_the_two_forms_change_by_the_same(weights: list[float], weight: float) -> None:
    probabilities = [w / sum(weights) for w in weights]
    h, top, size = entropy_of(probabilities), math.log(max(probabilities)), len(probabilities)
    assert uncertainty(h, top, size, weight) == pytest.approx(1 - weight - confidence(h, top, size, weight))


def test_aggregates() -> None:
    assert aggregate([1.0, 2.0, 6.0]) == 3.0
    assert aggregate([1.0, 4.0], Aggregate.GEOMETRIC) == pytest.approx(2.0)
    assert aggregate([0.0, 1.0], Aggregate.GEOMETRIC, floor=1e-4) == pytest.approx(1e-2)


def test_missing_is_none_and_never_zero() -> None:
    assert aggregate([]) is None
    assert aggregate([0.5] * 31, min_tokens=32) is None
    assert aggregate([0.5] * 32, min_tokens=32) == 0.5
    assert aggregate([0.0]) == 0.0
    assert entropy_bounds([], 10) is None


@given(st.lists(st.floats(1e-6, 1.0), min_size=3, max_size=40), st.integers(1, 40))
def test_bounds_hold_the_entropy(weights: list[float], k: int) -> None:
    probabilities = sorted((w / math.fsum(weights) for w in weights), reverse=True)
    bounds = entropy_bounds([math.log(p) for p in probabilities[:k]], len(probabilities))
    assert bounds is not None
    assert bounds.lower - 1e-9 <= entropy_of(probabilities) <= bounds.upper + 1e-9
    if k >= len(probabilities):
        assert bounds.lower == pytest.approx(bounds.upper)


def test_distance_of_intervals() -> None:
    assert Bounds(0.2, 0.2).distance(Bounds(0.5, 0.5)) == Bounds(pytest.approx(0.3), pytest.approx(0.3))
    assert Bounds(0.2, 0.3).distance(Bounds(0.5, 0.9)) == Bounds(pytest.approx(0.2), pytest.approx(0.7))
    assert Bounds(0.2, 0.6).distance(Bounds(0.5, 0.9)) == Bounds(0.0, pytest.approx(0.7))
    assert Bounds(0.2, 0.2).known and not Bounds(0.2, 0.3).known


@given(*[st.floats(-3, 3)] * 4, st.floats(0, 1), st.floats(0, 1))
def test_distance_holds_every_pair(a: float, b: float, c: float, d: float, s: float, t: float) -> None:
    first, second = Bounds(min(a, b), max(a, b)), Bounds(min(c, d), max(c, d))
    x = first.lower + s * (first.upper - first.lower)
    y = second.lower + t * (second.upper - second.lower)
    bounds = first.distance(second)
    assert bounds.lower - 1e-9 <= abs(x - y) <= bounds.upper + 1e-9
