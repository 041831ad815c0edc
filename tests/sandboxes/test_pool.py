from __future__ import annotations

import threading

import pytest

from sandboxes import Backend, SandboxError, SandboxPool


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
        assert pool.replaced == 0


def test_worn_and_lost_sandboxes_are_replaced(safe_backend: Backend) -> None:
    with SandboxPool(safe_backend, size=1, episodes=2) as pool:
        with pool.lease() as first:
            first.open({})
        with pool.lease() as second:
            assert second is first
        with pool.lease() as third:
            assert third is not first
            third.open({})
            third._transport._process.kill()  # type: ignore[union-attr]
            with pytest.raises(SandboxError):
                third.run("sleep 20", timeout=30)
        with pool.lease() as fourth:
            assert fourth is not third
            fourth.open({})
            assert fourth.run("echo x").stdout == b"x\n"
        assert pool.replaced == 2


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
