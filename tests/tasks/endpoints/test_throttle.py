"""The gate, with a clock that only moves when everybody waits."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import pytest

from tasks.endpoints import throttle
from tasks.endpoints.throttle import Gate, Place, Verdict

NEVER = threading.Event()


class Clock:
    """Waiting moves it on; a wait without an end is refused, since nobody else would end it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, moved: threading.Event, seconds: float | None) -> None:
        if moved.is_set():
            return
        if seconds is None:
            raise Stuck
        self.waits.append(seconds)
        self.now += seconds


class Stuck(Exception):
    """A call waits for another one to move."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    made = Clock()
    monkeypatch.setattr(throttle, "_now", lambda: made.now)
    monkeypatch.setattr(throttle, "_wait", made.wait)
    yield made


def doubling(refusals: int) -> float:
    return 2.0 ** (refusals - 1)


def sent(gate: Gate, count: int) -> list[Place]:
    places = [Place() for _ in range(count)]
    for place in places:
        assert gate.enter(place, NEVER)
    return places


def refused(gate: Gate, place: Place, named: float | None = None) -> bool:
    return gate.leave(place, Verdict.REFUSED, named)


def test_without_a_refusal_nobody_waits(clock: Clock) -> None:
    gate = Gate(doubling, 3)
    for place in sent(gate, 100):
        gate.leave(place, Verdict.TAKEN)
    assert clock.waits == []


def test_a_named_time_stops_everyone(clock: Clock) -> None:
    gate = Gate(doubling, 3)
    (first,) = sent(gate, 1)
    assert refused(gate, first, named=30.0)
    gate.enter(Place(), NEVER)  # another call, which was never refused
    assert clock.waits == [30.0]


def test_refusals_of_calls_that_were_out_together_count_once(clock: Clock) -> None:
    gate = Gate(doubling, 3)
    for place in sent(gate, 8):
        assert refused(gate, place)
        clock.now += 0.001
    gate.enter(Place(), NEVER)
    assert sum(clock.waits) == pytest.approx(1.0, abs=0.01)


def test_the_pause_doubles_and_one_call_looks_for_all(clock: Clock) -> None:
    gate = Gate(doubling, 5)
    (place,) = sent(gate, 1)
    for pause in (1.0, 2.0, 4.0):
        assert refused(gate, place)
        clock.waits.clear()
        assert gate.enter(place, NEVER)
        assert clock.waits == [pause]
        with pytest.raises(Stuck):
            gate.enter(Place(), NEVER)
    gate.leave(place, Verdict.TAKEN)
    for taken, pause in ((1, 2.0), (10, 1.0)):  # with three refusals before, one taken or more in between
        clock.waits.clear()
        for _ in range(taken):
            (place,) = sent(gate, 1)
            gate.leave(place, Verdict.TAKEN)
        (place,) = sent(gate, 1)
        assert clock.waits == [] and refused(gate, place)
        assert gate.enter(place, NEVER)
        assert clock.waits == [pause], "the pauses get shorter with each call that is taken"
        gate.leave(place, Verdict.TAKEN)


def test_after_a_refusal_half_as_many_go_and_one_more_with_each_answer(clock: Clock) -> None:
    gate = Gate(doubling, 5)
    places = sent(gate, 8)
    assert refused(gate, places[0])
    for place in places[1:]:
        gate.leave(place, Verdict.TAKEN)  # sent before: says nothing about now
    clock.now += 1.0
    looks = Place()
    assert gate.enter(looks, NEVER)
    with pytest.raises(Stuck):
        gate.enter(Place(), NEVER)
    gate.leave(looks, Verdict.TAKEN)
    under_way = 0
    with pytest.raises(Stuck):
        while True:
            gate.enter(Place(), NEVER)
            under_way += 1
    assert under_way == 8 // 2 + 1


def test_a_long_reply_keeps_nobody_waiting(clock: Clock) -> None:
    gate = Gate(doubling, 5)
    _, _, place = sent(gate, 3)  # two stay under way
    refused(gate, place)
    for _ in range(3):
        assert gate.enter(place, NEVER)
        gate.leave(place, Verdict.TAKEN)


def test_one_that_looks_and_gets_no_answer_leaves_the_look_to_the_next(clock: Clock) -> None:
    gate = Gate(doubling, 5)
    (first,) = sent(gate, 1)
    refused(gate, first)
    assert gate.enter(first, NEVER)
    gate.leave(first, Verdict.UNKNOWN)
    assert gate.enter(Place(), NEVER), "otherwise nobody would ever look again"


def test_a_call_refused_beside_others_keeps_its_place_and_one_that_looked_goes_behind(clock: Clock) -> None:
    gate = Gate(doubling, 5)
    first, second = sent(gate, 2)
    refused(gate, first)
    refused(gate, second)
    assert first < second
    assert gate.enter(first, NEVER)
    refused(gate, first)
    assert second < first


def test_all_give_up_when_nobody_is_taken_for_long(clock: Clock) -> None:
    gate = Gate(doubling, 2)
    (place,) = sent(gate, 1)
    for _ in range(2):
        assert refused(gate, place)
        assert gate.enter(place, NEVER)
    waiting = Place()
    gate._line.append(waiting)
    assert not refused(gate, place), "the third refusal in a row, with a patience of two"
    gate._line.clear()
    assert waiting.moved.is_set() and not gate.enter(waiting, NEVER)
    newcomer = Place()
    assert gate.enter(newcomer, NEVER), "whoever comes later looks once"
    assert not refused(gate, newcomer)
    (other,) = sent(gate, 1)
    gate.leave(other, Verdict.TAKEN)
    (again,) = sent(gate, 1)
    assert refused(gate, again), "patience begins anew once one was taken"


def test_a_stopped_call_leaves_the_line(clock: Clock) -> None:
    gate = Gate(lambda refusals: math.inf, 5)
    (place,) = sent(gate, 1)
    refused(gate, place)
    stopped = threading.Event()
    stopped.set()
    assert not gate.enter(place, stopped)
    assert gate._line == []


def test_a_server_of_forty_a_minute_serves_everyone_who_keeps_coming() -> None:
    """Eight threads, a window of 0.3 s instead of a minute: nobody runs out of patience, few calls are wasted."""
    gate = Gate(lambda refusals: 0.005 * 2 ** (refusals - 1), 10)
    lock, window, taken = threading.Lock(), [0.0, 0], [0, 0]
    lost: list[Place] = []

    def admitted() -> bool:
        with lock:
            now = throttle._now()
            if now - window[0] > 0.3:
                window[:] = [now, 0]
            window[1] += 1
            taken[window[1] <= 40] += 1
            return window[1] <= 40

    def work() -> None:
        for _ in range(20):
            place = Place()
            while True:
                assert gate.enter(place, NEVER)
                if admitted():
                    gate.leave(place, Verdict.TAKEN)
                    break
                if not gate.leave(place, Verdict.REFUSED) or place.refusals > 30:
                    lost.append(place)
                    break

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert lost == [] and taken[True] == 160
    assert taken[False] < 160, "most of what is sent is taken"
