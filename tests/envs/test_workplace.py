from __future__ import annotations

import threading
import time

import pytest

from envs.workplace import Workplace
from sandboxes import SandboxError, SandboxPool, SandboxUnavailable
from tests.envs.fakes import FakeSandbox


def one_sandbox() -> SandboxPool:
    try:
        return SandboxPool("auto", 1)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.timeout(60)
def test_abort_ends_waiting_for_the_pool_and_the_place_can_be_used_again() -> None:
    with one_sandbox() as pool:
        place, raised = Workplace(pool), []

        def take() -> None:
            try:
                place.take()
            except SandboxError as error:
                raised.append(error)

        with pool.lease():
            taking = threading.Thread(target=take)
            taking.start()
            while not pool._waiting:
                time.sleep(0.001)
            place.abort()
            taking.join()
            assert len(raised) == 1
        with pytest.raises(SandboxError, match="being closed"):
            place.take()  # a call that was under way comes to it only now
        place.release()
        assert place.take() is not None
        place.release()


def test_abort_ends_what_a_judge_runs_in() -> None:
    place = Workplace(FakeSandbox())
    with place.beside() as twin:
        place.abort()
        assert twin.closed
    with pytest.raises(SandboxError, match="being closed"), place.beside():
        pass
    place.release()
    with place.beside() as twin:
        assert not twin.closed
