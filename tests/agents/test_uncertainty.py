from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.uncertainty import (
    Aggregate,
    aggregate,
    confidence,
    entropy_bounds,
    normalised_entropy,
    uncertainty,
)
from tests.shared_data import shared


def fixture(key: str) -> list[dict]:
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[key]


def entropy_of(probabilities: list[float]) -> float:
    return -math.fsum(p * math.log(p) for p in probabilities if p > 0)


def test_scores_of_the_authors_code() -> None:
    cases = fixture("off_score")
    assert len(cases) >= 6
    for case in cases:
        entropy, top, size = case["entropy"], case["max_logprob"], len(case["logits"])
        assert normalised_entropy(entropy, size) == pytest.approx(case["H_norm"], abs=2e-6)
        assert confidence(entropy, top, size) == pytest.approx(case["code_score"], abs=2e-6)
        assert confidence(entropy, top, size, 0.9) == pytest.approx(case["score_alpha_0p9"], abs=2e-6)
        assert uncertainty(entropy, top, size) == pytest.approx(case["uncertainty_form"], abs=2e-6)


@given(st.lists(st.floats(0.01, 1.0), min_size=2, max_size=12), st.floats(0.05, 0.95))
def test_the_two_forms_change_by_the_same(weights: list[float], weight: float) -> None:
    probabilities = [w / sum(weights) for w in weights]
    h, top, size = entropy_of(probabilities), math.log(max(probabilities)), len(probabilities)
    assert uncertainty(h, top, size, weight) == pytest.approx(1 - weight - confidence(h, top, size, weight))


def test_aggregates() -> None:
    assert aggregate([1.0, 2.0, 6.0]) == 3.0
    assert aggregate([1.0, 4.0], Aggregate.GEOMETRIC) == pytest.approx(2.0)
    assert aggregate([0.0, 1.0], Aggregate.GEOMETRIC, floor=1e-4) == pytest.approx(1e-2)


def test_geometric_form_of_the_paper() -> None:
    for case in fixture("paper_signal"):
        got = aggregate(case["M"], Aggregate.GEOMETRIC, floor=case["log_floor"])
        assert got == pytest.approx(case["phi_geometric"], abs=1e-5)


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


def test_where_renormalising_is_wrong_the_bounds_are_not() -> None:
    spike = [math.log(0.9)] + [math.log(1e-5)] * 19
    bounds = entropy_bounds(spike, 10_001)
    case = next(case for case in fixture("fn_topk_entropy") if case["name"].startswith("spike"))
    assert bounds is not None
    assert bounds.lower - 1e-6 <= case["full_vocab_entropy"] <= bounds.upper + 1e-6
    assert case["out"] < bounds.lower  # the renormalised estimate lies outside
