from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy import Completion, FinishReason
from agents.uncertainty import (
    OFFICIAL_SKIP,
    Aggregate,
    Bounds,
    Signal,
    aggregate,
    confidence,
    entropy_bounds,
    exactly,
    mean_of,
    token_signals,
    turn_signal,
)

STOP = FinishReason.STOP


def completion(**changes: object) -> Completion:
    made = Completion([1, 2, 3], None, [0.1, 9.0, 0.3], [-0.5, -9.0, -0.7], [False, True, False], STOP)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def value(made: Completion, signal: Signal, how: Aggregate = Aggregate.ARITHMETIC) -> Bounds | None:
    return turn_signal(token_signals(made, signal, 100), how)


def test_forced_ids_do_not_enter_any_signal() -> None:
    assert value(completion(), Signal.ENTROPY) == exactly(pytest.approx(0.2))
    assert value(completion(), Signal.TOP1) == exactly(pytest.approx(0.6))
    expected = (confidence(0.1, -0.5, 100) + confidence(0.3, -0.7, 100)) / 2
    assert value(completion(), Signal.CONFIDENCE) == exactly(pytest.approx(expected))
    assert value(completion(forced=[True] * 3), Signal.ENTROPY) is None


def test_what_an_engine_does_not_report_is_missing_and_never_0() -> None:
    nothing = completion(entropies=None, max_logprobs=None)
    assert [value(nothing, signal) for signal in Signal] == [None] * 5
    no_top = completion(max_logprobs=None)
    assert [value(no_top, signal) is None for signal in Signal] == [False, True, True, True, True]
    no_entropy = completion(entropies=None, top_means=[-1.0] * 3)
    assert [value(no_entropy, signal) is None for signal in Signal] == [True, True, False, True, True]
    assert value(completion(), Signal.PUBLISHED) is None  # nobody asked for the likeliest ids


def test_bounds_become_an_interval_and_confidence_turns_them_round() -> None:
    far = completion(entropies=None, entropy_bounds=[(0.1, 0.2), (0.0, 9.0), (0.3, 0.6)])
    assert value(far, Signal.ENTROPY) == Bounds(pytest.approx(0.2), pytest.approx(0.4))
    surest = (confidence(0.1, -0.5, 100) + confidence(0.3, -0.7, 100)) / 2
    least = (confidence(0.2, -0.5, 100) + confidence(0.6, -0.7, 100)) / 2
    assert value(far, Signal.CONFIDENCE) == Bounds(pytest.approx(least), pytest.approx(surest))
    assert value(far, Signal.TOP1) == exactly(pytest.approx(0.6))


def test_the_published_score_is_scaled_within_the_reply_and_its_mean_is_geometric() -> None:
    """By hand: H~ = 0, 1, 1/2 and C~ = 1, 0, 1/4 of the ids that were sampled; M = 0.4 H~ + 0.6 (1 - C~)."""
    means = [-5.0, -99.0, -1.0, -2.0]
    made = Completion([1] * 4, None, [0.1, 9.0, 0.5, 0.3], None, [False, True, False, False], STOP, top_means=means)
    values = token_signals(made, Signal.PUBLISHED, 100)
    assert values is not None and [v.lower for v in values] == pytest.approx([0.0, 1.0, 0.65])
    got = turn_signal(values, mean_of(Signal.PUBLISHED, Aggregate.ARITHMETIC))
    assert got == exactly(pytest.approx((1e-6 * 1.0 * 0.65) ** (1 / 3)))  # with the floor of a geometric mean
    sure = completion(entropies=[0.2, 9.0, 0.2 + 1e-12], top_means=[-3.0, -9.0, -3.0 - 1e-12])
    assert value(sure, Signal.PUBLISHED) == exactly(pytest.approx(0.6))  # equal values: scaled to 0, not to noise


def test_the_official_signal_leaves_the_first_ids_out() -> None:
    tops = [-9.0] * OFFICIAL_SKIP + [-0.5, -0.7]
    made = Completion([1] * 34, None, [0.0] * 34, tops, [False] * 34, STOP)
    for how in Aggregate:
        got = turn_signal(token_signals(made, Signal.OFFICIAL, 100), mean_of(Signal.OFFICIAL, how))
        assert got == exactly(pytest.approx(0.4 + 0.6 * -0.6))
    made.forced[33] = True
    assert value(made, Signal.OFFICIAL) == exactly(pytest.approx(0.4 + 0.6 * -0.5))
    short = Completion([1] * 32, None, [0.0] * 32, [-1.0] * 32, [False] * 32, STOP)
    assert value(short, Signal.OFFICIAL) is None  # the authors' code says 0 there


def test_short_turns_have_no_signal() -> None:
    assert turn_signal([exactly(1.0)] * 31, Aggregate.ARITHMETIC, 32) is None
    assert turn_signal([exactly(1.0)] * 32, Aggregate.ARITHMETIC, 32) == exactly(1.0)


@given(st.lists(st.lists(st.floats(1e-4, 1.0), min_size=3, max_size=12), min_size=1, max_size=6), st.integers(1, 12))
def test_a_turn_s_interval_holds_its_true_value(rows: list[list[float]], k: int) -> None:
    entropies, bounds, tops = [], [], []
    for weights in rows:
        logprobs = sorted((math.log(w / math.fsum(weights)) for w in weights), reverse=True)
        known = entropy_bounds(logprobs[:k], len(logprobs))
        assert known is not None
        entropies.append(-math.fsum(math.exp(x) * x for x in logprobs))
        bounds.append((known.lower, known.upper))
        tops.append(logprobs[0])
    n = len(rows)
    near = Completion([1] * n, None, entropies, tops, [False] * n, STOP)
    far = Completion([1] * n, None, None, tops, [False] * n, STOP, entropy_bounds=bounds)
    for signal in (Signal.ENTROPY, Signal.CONFIDENCE, Signal.TOP1):
        for how in Aggregate:
            if signal is Signal.CONFIDENCE and how is Aggregate.GEOMETRIC:
                continue
            truth, interval = value(near, signal, how), value(far, signal, how)
            assert truth is not None and truth.known and interval is not None
            assert interval.lower - 1e-9 <= truth.lower <= interval.upper + 1e-9


def test_exact_values_stay_exact_through_both_means() -> None:
    values = [0.1, 0.7, 0.2]
    for how in Aggregate:
        assert turn_signal([exactly(v) for v in values], how) == exactly(aggregate(values, how) or -1)
