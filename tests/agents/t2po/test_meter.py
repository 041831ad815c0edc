from __future__ import annotations

import json
from typing import Any

import pytest

from agents.policy import Sampling
from agents.t2po import T2PO, T2POConfig
from agents.t2po.resample import ENOUGH, RECENT, Meter
from tests.agents.scripted import SAMPLING, Script, resampler, turns


def warning(values: list[Any], sampling: Sampling = SAMPLING, count: int = 60, **changes: Any) -> str:
    wrapper, _ = resampler({"a": values}, **changes)
    turns(wrapper, "a", count, sampling)
    return wrapper.warning() or ""


def test_a_band_that_holds_everything() -> None:
    said = warning([0.2, *[0.25 + 0.001 * i for i in range(300)]], turn_resample_max_try=1)
    assert "59 of the last 59 turns" in said and "Lower eta" in said


def test_a_band_that_holds_nothing() -> None:
    said = warning([float(i) for i in range(80)])
    assert "0 of 59 turns" in said and "does nothing. Raise eta" in said


def test_signals_that_never_move() -> None:
    said = warning([0.5] * 80)
    assert "59 of 59 turns are exactly as uncertain" in said and "dead" in said
    assert "dead" in warning([0.0] * 80, turn_resample_eta=None)  # calibration waits for ever: that, too, is said


def test_signals_that_are_missing() -> None:
    said = warning([None] * 80)
    assert "59 of 59 turns have no signal" in said and "top1" in said
    assert "temperature 1 only" in said and "top_logprobs above 0" in said
    assert "min_tokens" in warning([0.1 * i for i in range(80)], turn_resample_min_tokens=3)


def test_greedy_sampling() -> None:
    said = warning([0.1 * i for i in range(80)], Sampling(0.0, 5))
    assert said == "turn_resample does nothing: 59 of 59 turns were sampled greedily. Use a temperature."


def test_bounds_that_are_too_wide() -> None:
    said = warning([(0.1, 2.0)] * 80)
    assert "cannot decide 59 of 59 turns" in said and "more top_logprobs" in said and "top1" in said


def test_too_few_turns_say_nothing_and_neither_does_a_switch_that_is_off() -> None:
    assert warning([0.5] * 80, count=ENOUGH) == ""
    assert T2PO(Script({}), T2POConfig()).warning() is None


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.45])
def test_a_selective_band_says_nothing(rate: float) -> None:
    meter = Meter()
    for turn in range(200):
        meter.later += 1
        meter.decided(turn % 100 < 100 * rate)
    assert meter.rate() == pytest.approx(rate) and meter.warning(0.1) is None


def test_a_band_that_closes_late_is_noticed() -> None:
    meter = Meter()
    for turn in range(5000):
        meter.decided(turn % 10 == 0)
    assert meter.warning(0.1) is None
    for _ in range(RECENT):
        meter.decided(True)
    assert (meter.rate() or 0) < 0.5 and f"{RECENT} of the last {RECENT} turns" in (meter.warning(0.1) or "")


def test_state_survives_a_restart() -> None:
    meter = Meter(later=9, missing=1, equal=2)
    meter.decided(True)
    again = Meter.from_state(json.loads(json.dumps(meter.state_dict())))
    assert again == meter and again.recent.maxlen == RECENT


def test_episodes_of_one_turn_are_said() -> None:
    wrapper, _ = resampler({str(n): [0.5] for n in range(ENOUGH)}, turn_resample_eta=None)
    for n in range(ENOUGH):
        assert wrapper.warning() is None
        turns(wrapper, str(n), 1)
    assert f"all of {ENOUGH} turns were the only ones of their episodes" in (wrapper.warning() or "")


def test_the_remedy_fits_an_eta_that_was_calibrated() -> None:
    meter = Meter(later=60, eligible=60)
    given, calibrated = meter.warning(0.1) or "", meter.warning(0.1, calibrated=True) or ""
    assert "leave it out" in given and "leave it out" not in calibrated and "give it, larger" in calibrated
    for _ in range(60):
        meter.decided(True)
    assert "give it, smaller" in (meter.warning(0.1, calibrated=True) or "")
