from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents.policies.http import Flight, together
from agents.policy import PolicyError


def in_parallel(calls: Sequence[Callable[[], Any]], limit: int) -> list[Any]:
    return together(lambda call, flight: call(), calls, limit, caught=PolicyError)


def test_results_keep_the_order_of_the_calls_whoever_is_first() -> None:
    gates = [threading.Event() for _ in range(4)]

    def call(index: int) -> int:
        if index < 3:
            assert gates[index + 1].wait(20)  # ends after its successor
        gates[index].set()
        return index

    assert in_parallel([lambda i=i: call(i) for i in range(4)], 4) == [0, 1, 2, 3]
    assert in_parallel([], 4) == []


def test_never_more_at_a_time_than_the_limit() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def call() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        threading.Event().wait(0.01)
        with lock:
            now -= 1

    in_parallel([call] * 12, 3)
    assert 1 <= most <= 3


def test_a_failure_is_a_result_and_a_defect_is_raised() -> None:
    failure = PolicyError("no")

    def fail() -> str:
        raise failure

    assert in_parallel([fail, lambda: "yes"], 1) == [failure, "yes"]
    begun: list[int] = []

    def defect() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        in_parallel([defect, lambda: begun.append(1) or ""], 1)
    assert begun == []


def test_the_first_failure_ends_the_others_and_no_thread_stays() -> None:
    before = threading.active_count()
    never = threading.Event()

    def work(item: int, flight: Flight) -> None:
        if item == 1:
            raise PolicyError("one failed")
        if not flight.stopped.wait(60):
            never.set()

    with pytest.raises(PolicyError, match="one failed"):
        together(work, list(range(20)), 4)
    assert not never.is_set()
    assert threading.active_count() <= before


def test_an_interrupt_returns_at_once_and_begins_no_further_call() -> None:
    under_way, over = threading.Event(), threading.Event()
    begun: list[int] = []

    def call(index: int) -> None:
        begun.append(index)
        if index == 1:
            under_way.set()
            os.kill(os.getpid(), signal.SIGINT)
        over.wait(30)  # it does not notice that it was hung up

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        in_parallel([lambda i=i: call(i) for i in range(20)], 2)
    assert under_way.is_set() and len(begun) == 2
    left = set(threading.enumerate()) - before
    assert all(thread.daemon for thread in left), "the process could not end"
    over.set()
    for thread in left:
        thread.join(20)
    assert len(begun) == 2, "no call began after the interrupt"
