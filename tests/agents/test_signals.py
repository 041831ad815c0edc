from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy import Completion, FinishReason
from agents.signals import Signal, exactly, token_signals, turn_signal
from agents.uncertainty import Aggregate, Bounds, aggregate, confidence, entropy_bounds

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
    assert [value(nothing, signal) for signal in Signal] == [None] * 3
    no_top = completion(max_logprobs=None)
    assert [value(no_top, signal) is None for signal in Signal] == [False, True, True]
    no_entropy = completion(entropies=None)
    assert [value(no_entropy, signal) is None for signal in Signal] == [True, True, False]


def test_bounds_become_an_interval_and_confidence_turns_them_round() -> None:
    far = completion(entropies=None, entropy_bounds=[(0.1, 0.2), (0.0, 9.0), (0.3, 0.6)])
    assert value(far, Signal.ENTROPY) == Bounds(pytest.approx(0.2), pytest.approx(0.4))
    surest = (confidence(0.1, -0.5, 100) + confidence(0.3, -0.7, 100)) / 2
    least = (confidence(0.2, -0.5, 100) + confidence(0.6, -0.7, 100)) / 2
    assert value(far, Signal.CONFIDENCE) == Bounds(pytest.approx(least), pytest.approx(surest))
    assert value(far, Signal.TOP1) == exactly(pytest.approx(0.6))


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
    for signal in Signal:
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
