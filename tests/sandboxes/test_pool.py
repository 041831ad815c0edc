from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from sandboxes import Backend, Limits, SandboxError, SandboxPool, SandboxUnavailable, SupervisedSandbox
from sandboxes import pool as module
from sandboxes.opening import launcher
from sandboxes.sandbox import SandboxOutage
from sandboxes.transport import TransportClosed


class Engine:
    """Starts real sandboxes, or fails as told: an engine that goes down and comes back."""

    backend = Backend.LANDLOCK
    limits = Limits()

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self.error: SandboxError | None = None
        self.starts = 0
        self.failing = 0
        """How many of the next starts fail."""
        self.gate: threading.Event | None = None

    def __call__(self, backend: object = "auto", **options: Any) -> SupervisedSandbox:
        return SupervisedSandbox(self)

    def start(self, workdir: str | None) -> Any:
        self.starts += 1
        if self.gate is not None:
            assert self.gate.wait(60)
        if self.error is not None:
            raise self.error
        if self.failing > 0:
            self.failing -= 1
            raise SandboxError("the engine hiccups")
        return launcher(self.backend, self.limits).start(workdir)


@pytest.fixture
def engine(safe_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    found = Engine(safe_backend)
    monkeypatch.setattr(module, "open_sandbox", found)
    monkeypatch.setattr(module, "PAUSE", 0.01)
    monkeypatch.setattr("sandboxes.client.STARTS", 1)
    yield found
    if found.gate is not None:
        found.gate.set()


def process_of(sandbox: SupervisedSandbox) -> int:
    pid: int = sandbox._transport.pid  # type: ignore[union-attr]
    return pid


def kill(sandbox: SupervisedSandbox) -> None:
    """Kill a supervisor, and return when it is dead: with bubblewrap the kernel kills it a moment after its parent."""
    transport: Any = sandbox._transport
    os.kill(transport.pid, signal.SIGKILL)
    with pytest.raises(TransportClosed):  # the end of its output, and nothing before it
        transport.receive(time.monotonic() + 60)


def gone(pid: int) -> bool:
    """Whether a process ended, given a moment; one of ours that nobody waited for has not."""
    for _ in range(200):
        if not os.path.exists(f"/proc/{pid}"):
            return True
        time.sleep(0.05)
    return False


def eventually(what: Callable[[], bool]) -> bool:
    return any(what() or time.sleep(0.02) for _ in range(1500))


def test_many_threads_share_few_sandboxes(safe_backend: Backend) -> None:
    failures: list[BaseException] = []
    with SandboxPool(safe_backend, size=2) as pool:

        def work(number: int) -> None:
            try:
                for turn in range(3):
                    with pool.lease(timeout=60) as sandbox:
                        sandbox.open({"n": str(number)})
                        assert sandbox.run("cat n; echo ${LEFT-}; LEFT=1; touch left").stdout_text == f"{number}\n", (
                            turn
                        )
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert (pool.lost, pool.worn, pool.episodes) == (0, 0, 15)
        assert pool.starts in (1, 2)  # on a busy machine one may do all before the other has started


def test_worn_and_lost_sandboxes_are_replaced(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1, episodes=2) as pool:
        with pool.lease() as first:
            first.open({})
        with pool.lease() as second:
            assert second is first
        with pool.lease() as third:
            assert third is not first
            third.open({})
            os.kill(process_of(third), signal.SIGKILL)
            with pytest.raises(SandboxError):
                third.run("sleep 20", timeout=30)
        with pool.lease() as fourth:
            assert fourth is not third
            fourth.open({})
            assert fourth.run("echo x").stdout == b"x\n"
        assert (pool.lost, pool.worn, pool.replaced, pool.starts, pool.episodes) == (1, 1, 2, 3, 4)


def test_close_ends_all_and_refuses_more(safe_backend: Backend) -> None:
    pool = SandboxPool(safe_backend, size=2)
    sandbox = pool.acquire()
    with pytest.raises(SandboxError, match="free in"):
        pool.acquire(timeout=20), pool.acquire(timeout=0.05)
    pool.close()
    pool.close()
    with pytest.raises(SandboxError, match="closed"):
        sandbox.run("echo x")
    with pytest.raises(SandboxError, match="closed"):
        pool.acquire()
    pool.release(sandbox)


def test_mistakes(safe_backend: Backend) -> None:
    with pytest.raises(ValueError, match="at least one"):
        SandboxPool(safe_backend, size=0)
    with SandboxPool(safe_backend, size=1) as pool:
        sandbox = pool.acquire()
        pool.release(sandbox)
        with pytest.raises(ValueError, match="released already"):
            pool.release(sandbox)
        again = pool.acquire()
        assert again is sandbox
        pool.release(again)
        with SandboxPool(safe_backend, size=1) as other, pytest.raises(ValueError, match="not belong"):
            other.release(sandbox)


def test_an_error_in_a_lease_gives_the_sandbox_back(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1) as pool:
        with pytest.raises(ZeroDivisionError), pool.lease() as sandbox:
            sandbox.open({"left": "x"})
            raise ZeroDivisionError
        with pool.lease(timeout=60) as sandbox:
            assert sandbox.listing() == []


def test_one_that_died_while_idle_is_replaced_before_anybody_gets_it(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1) as pool:
        with pool.lease() as first:
            pass
        assert eventually(lambda: bool(pool._idle))
        kill(first)
        with pool.lease(timeout=60) as second:
            assert second is not first
            second.open({})
            assert second.run("echo x").stdout == b"x\n"
        assert (pool.lost, pool.starts) == (1, 2)


def test_one_that_died_in_use_is_replaced_without_a_new_call(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1) as pool:
        with pool.lease() as sandbox:
            kill(sandbox)  # nobody notices before the cleaning
        assert eventually(lambda: pool.lost == 1 and len(pool._idle) == 1)
        assert pool._idle[0] is not sandbox and not pool._cleaning and len(pool._served) == 1


def test_each_has_the_same_one_again_and_all_wear_evenly(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=3) as pool:
        mine = pool.acquire()
        pool.release(mine)
        for _ in range(3):
            with pool.lease(prefer=mine) as again:
                assert again is mine
        others = set()
        assert eventually(lambda: len(pool._idle) == 3)
        for _ in range(4):
            with pool.lease() as sandbox:
                others.add(sandbox)
            assert eventually(lambda: len(pool._idle) == 3)
        assert mine not in others and len(others) == 2
        held = [pool.acquire(), pool.acquire(), pool.acquire()]
        with pytest.raises(SandboxError, match="none of 3 sandboxes became free in 0.05 seconds .3 in use, 0 being"):
            pool.acquire(0.05, prefer=mine)
        for sandbox in held:
            pool.release(sandbox)


def test_a_pool_grows(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1) as pool:
        held = pool.acquire()
        waiter = ThreadPoolExecutor(1).submit(pool.acquire, 60)
        pool.grow(3)
        pool.grow(2)
        assert len({held, waiter.result(), pool.acquire(60)}) == 3 == pool.size
        with pytest.raises(SandboxError, match="none of 3"):
            pool.acquire(0.05)


def test_those_who_wait_get_the_error_of_the_start(engine: Engine) -> None:
    engine.error = SandboxError("the engine is down")
    with SandboxPool(size=4) as pool, ThreadPoolExecutor(6) as threads:
        for _ in range(2):  # the first round, and one more try when somebody asks again
            waiting = [threads.submit(pool.acquire) for _ in range(6)]
            for future in waiting:
                error = future.exception()
                assert isinstance(error, SandboxError) and "the engine is down" in str(error), error
        assert eventually(lambda: pool._coming == 0)
        before = engine.starts
        assert before <= 6 * (4 + 3), "each tries once, and a few tries more for all together"
        time.sleep(0.3)
        assert engine.starts == before, "nobody asks, so nobody tries"
        engine.error = None
        with pool.lease(60) as sandbox:
            sandbox.open({})
            assert sandbox.run("echo x").stdout == b"x\n"
        assert eventually(lambda: len(pool._idle) == 4), "the pool is whole again"
        assert (pool.starts, pool._missing, pool._refusals) == (4, 0, [])


def test_a_hiccup_is_not_seen(engine: Engine) -> None:
    engine.failing = 2
    with SandboxPool(size=1) as pool, pool.lease(60) as sandbox:
        assert sandbox.alive and engine.starts == 3


def test_what_cannot_work_is_not_tried_again(engine: Engine) -> None:
    engine.error = SandboxUnavailable("no kernel for this; remedy: another")
    with SandboxPool(size=1) as pool:
        with pytest.raises(SandboxUnavailable, match="remedy: another"):
            pool.acquire()
        assert engine.starts <= 2, "the first start, and one when somebody asked"


def test_an_engine_that_is_gone_is_waited_for_within_a_bound(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OUTAGE_SECONDS", 1e9)
    engine.error = SandboxOutage("nobody is here")
    with SandboxPool(size=2) as pool, ThreadPoolExecutor(4) as threads:
        waiting = [threads.submit(pool.acquire) for _ in range(2)]
        assert eventually(lambda: engine.starts > 10), "more often than a start that fails is tried"
        assert not any(future.done() for future in waiting)
        engine.error = None
        for future in waiting:
            pool.release(future.result(60))
        assert pool._gone_since is None
        monkeypatch.setattr(module, "OUTAGE_SECONDS", 0.0)
        engine.error = SandboxOutage("nobody is here")
        for _ in range(2):
            assert eventually(lambda: len(pool._idle) == 2 or pool._missing > 0)
            for sandbox in pool._idle:
                kill(sandbox)
            with pytest.raises(SandboxUnavailable, match="nobody is here"):
                pool.acquire()


def test_a_defect_in_a_start_reaches_who_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(self: SupervisedSandbox) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(SupervisedSandbox, "warm", defect)
    with SandboxPool(size=1) as pool:
        for _ in range(2):
            with pytest.raises(SandboxError, match="ZeroDivisionError: a defect") as error:
                pool.acquire()
            assert isinstance(error.value.__cause__, ZeroDivisionError)


def test_a_lost_start_refuses_only_one_who_waits(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TRIES", 1)
    engine.gate = threading.Event()
    with SandboxPool(size=2) as pool, ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(pool.acquire) for _ in range(2)]
        assert eventually(lambda: pool._waiting == 2 and engine.starts == 2)
        engine.failing = 1
        engine.gate.set()
        assert sum(future.exception() is not None for future in waiting) == 1
        assert (pool.starts, pool._missing, pool._refusals) == (1, 1, [])


def test_close_ends_those_who_wait_and_those_that_start(engine: Engine) -> None:
    engine.gate = threading.Event()
    others = children()  # of fixtures that tests of another file share
    pool = SandboxPool(size=2)
    threads = ThreadPoolExecutor(4)
    waiting = [threads.submit(pool.acquire) for _ in range(3)]
    assert eventually(lambda: pool._waiting == 3 and engine.starts == 2)
    closing = threads.submit(pool.close)
    for future in waiting:
        assert "closed" in str(future.exception(timeout=60))
    engine.gate.set()  # the starts come through only now
    closing.result(timeout=60)
    threads.shutdown()
    assert set(children()) <= set(others)


def children() -> list[str]:
    """Command lines of supervisors that this process started and that still run."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as stat, open(f"/proc/{entry.name}/cmdline") as line:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) == os.getpid():
                        found.append(line.read().replace("\0", " "))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return [line for line in found if "bwrap" in line or "-I -S -B" in line]


def test_ctrl_c_leaves_nothing_lent(safe_backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    with SandboxPool(safe_backend, size=1) as pool:
        listing = SupervisedSandbox.listing

        def interrupted(self: SupervisedSandbox) -> list[str]:
            raise KeyboardInterrupt

        monkeypatch.setattr(SupervisedSandbox, "listing", interrupted)
        for call in (pool.acquire, lambda: pool.lease().__enter__()):
            with pytest.raises(KeyboardInterrupt):
                call()
        monkeypatch.setattr(SupervisedSandbox, "listing", listing)
        with pytest.raises(KeyboardInterrupt), pool.lease(60):
            raise KeyboardInterrupt
        with pool.lease(60) as sandbox:
            sandbox.open({})
        assert eventually(lambda: not pool._lent and len(pool._idle) == 1)


def test_a_pool_that_is_forgotten_ends_its_sandboxes(safe_backend: Backend) -> None:
    pool = SandboxPool(safe_backend, size=2)
    pids = [process_of(pool.acquire()), process_of(pool.acquire())]
    del pool
    gc.collect()
    assert all(gone(pid) for pid in pids)


def test_a_forked_copy_refuses_and_does_no_harm(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=2) as pool:
        held = pool.acquire()
        held.open({})
        with pool._condition:  # as if another thread held the lock at the moment of the fork
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    pool.release(held)
                    pool.close()
                    pool.acquire()
                except SandboxError as error:
                    code = 0 if "after forking" in str(error) else 2
                finally:
                    os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert held.run("echo x").stdout == b"x\n"
        pool.release(held)
        with pool.lease(60) as sandbox:
            assert sandbox.listing() == []


@pytest.mark.timeout(60)
def test_another_thread_calls_off_an_acquire_that_waits(engine: Engine) -> None:
    engine.gate = threading.Event()  # no start ever ends
    pool = SandboxPool(engine.backend)
    wait, raised = module.Wait(), []

    def ask() -> None:
        try:
            pool.acquire(wait=wait)
        except SandboxError as error:
            raised.append(str(error))

    asking = threading.Thread(target=ask)
    asking.start()
    while not pool._waiting:
        time.sleep(0.001)
    pool.cancel(wait)
    asking.join()
    assert "called off" in raised[0]
    ask()  # one that comes afterwards does not begin to wait
    assert len(raised) == 2
    engine.gate.set()
    pool.release(pool.acquire())  # others get theirs
    pool.close()
