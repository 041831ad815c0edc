from __future__ import annotations

import math

import pytest

from agents.policy import Sampling


@pytest.mark.parametrize("temperature", [-1.0, math.nan, math.inf])
def test_a_temperature_that_nothing_is_drawn_at_is_refused(temperature: float) -> None:
    with pytest.raises(ValueError, match=f"temperature is {temperature}: use a number above 0, or 0 for greedy"):
        Sampling(temperature)


@pytest.mark.parametrize("cap", [0, -3])
def test_a_cap_without_room_is_refused(cap: int) -> None:
    with pytest.raises(ValueError, match=f"max_tokens is {cap}: a reply needs room"):
        Sampling(max_tokens=cap)


def test_zero_is_greedy() -> None:
    assert Sampling(0.0, 1).greedy and Sampling(0).greedy and not Sampling(0.01).greedy
