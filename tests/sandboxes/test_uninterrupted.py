from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from sandboxes.transport import uninterrupted


class Signalled(Exception):
    pass


def test_work_goes_on_through_signals_and_they_are_raised_afterwards() -> None:
    done: list[int] = []

    def raising(number: int, frame: object) -> None:
        raise Signalled

    def work() -> None:
        for step in range(5):  # the first one while the thread is being started
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.05)
            done.append(step)

    before = signal.signal(signal.SIGUSR1, raising)
    try:
        with pytest.raises(Signalled):
            uninterrupted(work)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert done == [0, 1, 2, 3, 4]


def test_what_the_work_raises_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        uninterrupted(lambda: print(1 // 0))


def test_no_thread_is_left_when_it_returns() -> None:
    for _ in range(2000):
        uninterrupted(lambda: None)
        assert not any(thread.name == "turngym-close" for thread in threading.enumerate())
