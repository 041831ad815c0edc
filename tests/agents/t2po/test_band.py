from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.t2po.resample import Calibration, Place, place
from agents.uncertainty import Bounds, exactly


def inside(change: float, eta: float) -> bool:
    return place(exactly(change), eta) is Place.IN


def test_band_edges_allow_for_rounding() -> None:
    assert not inside(0.1 + 0.2 - 0.3, 0.3)
    assert not inside((0.1 + 0.7) - 0.5, 0.3)
    assert inside(0.2999999, 0.3)


@pytest.mark.parametrize(
    ("lower", "upper", "where"),
    [
        (0.1, 0.2, Place.IN),
        (0.0, 0.2, Place.IN),
        (0.1, 0.4, Place.UNDECIDED),
        (0.0, 0.3, Place.UNDECIDED),
        (0.3, 0.4, Place.OUT),
        (0.0, 0.0, Place.OUT),
        (0.2, 0.2, Place.IN),
        (0.3, 0.3, Place.OUT),
    ],
)
def test_both_ends_must_agree(lower: float, upper: float, where: Place) -> None:
    assert place(Bounds(lower, upper), 0.3) is where


@given(st.floats(0, 2), st.floats(0.01, 1))
def test_a_known_change_is_never_undecided(change: float, eta: float) -> None:
    assert place(exactly(change), eta) is not Place.UNDECIDED


def test_eta_hits_the_rate_on_what_it_saw() -> None:
    changes = [0.01 * (i + 1) for i in range(100)]
    calibration = Calibration(0.2, 100)
    etas = [calibration.see(exactly(change)) for change in changes]
    assert etas[:-1] == [None] * 99 and etas[-1] is not None
    assert sum(inside(change, etas[-1]) for change in changes) == 20


def test_eta_holds_on_changes_it_did_not_see() -> None:
    rng = random.Random(0)
    for _ in range(5):
        calibration = Calibration(0.15, 400)
        eta = None
        while eta is None:
            eta = calibration.see(exactly(abs(rng.gauss(0, 0.1))))
        rate = sum(inside(abs(rng.gauss(0, 0.1)), eta) for _ in range(4000)) / 4000
        assert rate == pytest.approx(0.15, abs=0.05)


def test_intervals_are_calibrated_so_that_the_rate_is_certain() -> None:
    calibration = Calibration(0.25, 100)
    changes = [Bounds(0.01 * i, 0.01 * i + 0.1) for i in range(1, 101)]
    etas = [calibration.see(change) for change in changes]
    assert etas[-1] is not None
    assert sum(place(change, etas[-1]) is Place.IN for change in changes) == 25


def test_turns_that_never_move_calibrate_nothing_and_cost_nothing() -> None:
    calibration = Calibration(0.15, 4)
    assert [calibration.see(exactly(0.0)) for _ in range(1000)] == [None] * 1000
    assert calibration.state_dict() == {"equal": 1000, "moved": []}
    assert calibration.see(exactly(0.2)) == pytest.approx(0.2)  # all that has moved lies in the band


def test_calibration_survives_a_restart() -> None:
    one, two = Calibration(0.5, 4), Calibration(0.5, 4)
    for change in (0.0, 0.2, 0.3):
        one.see(exactly(change))
    two.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert two.see(exactly(0.4)) == one.see(exactly(0.4)) is not None


@pytest.mark.parametrize(
    ("changes", "rate", "share"),
    [
        ([0.1] * 100, 0.15, 0.0),
        ([0.05] * 10 + [0.1] * 80 + [0.2] * 10, 0.15, 0.1),
        ([0.1] * 20 + [0.2] * 80, 0.15, 0.2),
    ],
)
def test_equal_changes_give_the_nearest_share_there_is(changes: list[float], rate: float, share: float) -> None:
    calibration = Calibration(rate, 100)
    eta = [calibration.see(exactly(change)) for change in changes][-1]
    assert eta is not None
    assert sum(inside(change, eta) for change in changes) / 100 == share
    assert (calibration.warning(eta) is None) == (share > 0)


@pytest.mark.parametrize("zeros", [0.6, 1.0])
def test_where_repeats_count_they_are_calibrated_upon(zeros: float) -> None:
    calibration = Calibration(0.15, 100, repeats=True)
    changes = [0.0] * round(100 * zeros) + [0.2] * round(100 * (1 - zeros))
    eta = [calibration.see(exactly(change)) for change in changes][-1]
    assert eta is not None and 0 < eta < 0.01
