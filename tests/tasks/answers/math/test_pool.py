from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tasks.answers.math.pool import (
    HEAD_START,
    SPARES,
    SPARES_AFTER,
    Pool,
    Status,
    Worker,
    WorkerLate,
    WorkerSpent,
    WorkerUnavailable,
)
from tasks.answers.math.worker import pack, read_frame

HANG = r"9^{9^{9^{9}}}"
ORDINARY = [
    ("x^2-1", "(x-1)(x+1)", Status.SAME),
    ("x+1", "x+2", Status.DIFFERENT),
    (r"\sqrt{8}", r"2\sqrt2", Status.SAME),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> float:
    """A head start that is long enough for an ordinary answer on a slow machine, too, seconds."""
    monkeypatch.setattr("tasks.answers.math.pool.HEAD_START", 3.0)
    return 3.0


@pytest.fixture
def pool(patient: float) -> Iterator[Pool]:
    with Pool(size=1, seconds=20) as made:
        yield made


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def ask(pool: Pool) -> None:
    for gold, answer, status in ORDINARY:
        assert pool.compare(gold, answer).status is status


def alive(pid: int) -> bool:
    """Whether there is such a process, a dead one that nobody has waited for included."""
    return Path(f"/proc/{pid}").exists()


def pids(pool: Pool) -> list[int]:
    return [worker.pid for worker in pool._lanes[0].idle]


def test_one_worker_serves_many_calls(pool: Pool) -> None:
    for _ in range(60):
        ask(pool)
    assert (pool.started, pool.killed, pool.died) == (1, 0, 0)
    assert len(pids(pool)) == 1


def test_what_hangs_is_killed_and_the_next_call_is_right(patient: float) -> None:
    with Pool(size=1, seconds=patient + 1) as pool:
        ask(pool)
        (first,) = pids(pool)
        child = children(first)
        reply = pool.compare("5", HANG)
        assert (reply.status, reply.detail) == (Status.LATE, "took more than 4 s of processor time")
        assert alive(first) and not set(child) & set(children(first))  # the one that compared has ended
        pool.seconds = 20
        ask(pool)
        assert (pool.started, pool.killed, pool.died) == (2, 2, 0)  # once early, so that others come first


def test_answers_that_hang_wait_for_each_other_and_no_other_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    others = threading.Event()

    class Hanging:
        """Stands for a worker: what hangs does so until all others have their verdicts."""

        pid, served, alive = 0, 0, True

        def __init__(self, memory: int, nice: bool, begun: object) -> None:
            self.nice = nice

        def ask(self, request: dict[str, Any], seconds: float, deadline: float) -> dict[str, str]:
            assert self.nice == (seconds > HEAD_START)
            if request["answer"] != HANG:
                return {"status": "same"}
            assert not self.nice or others.wait(60)
            raise WorkerSpent(f"took more than {seconds:g} s of processor time")

        def end(self) -> None: ...

    monkeypatch.setattr("tasks.answers.math.pool.Worker", Hanging)
    with Pool(size=1, seconds=2) as pool, ThreadPoolExecutor(8) as threads:
        hangs = [threads.submit(pool.compare, "x+5", HANG) for _ in range(8)]
        assert [pool.compare("x+5", "5+x").status for _ in range(8)] == [Status.SAME] * 8
        others.set()
        assert {hang.result().detail for hang in hangs} == {"took more than 2 s of processor time"}
        assert (pool.started, pool.killed, pool.died) == (2, 16, 0)


def test_two_hangs_in_a_batch_cost_nobody_else_a_verdict() -> None:
    with Pool(size=2, seconds=1) as pool:
        right = [(f"x+{number}", f"{number}+x") for number in range(6)]
        replies = pool.compare_many([("5", HANG), *right[:3], ("5", HANG), *right[3:]])
        expected = [Status.LATE, *[Status.SAME] * 3, Status.LATE, *[Status.SAME] * 3]
        assert [reply.status for reply in replies] == expected
        assert pool.killed == 4


def test_a_worker_ended_from_outside_costs_no_verdict(pool: Pool) -> None:
    ask(pool)
    (pid,) = pids(pool)
    os.killpg(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)  # until it has ended, its child may still answer
    ask(pool)
    assert (pool.started, pool.killed, pool.died) == (2, 0, 1)


def test_a_comparison_ended_from_outside_costs_neither_a_worker_nor_a_verdict(pool: Pool) -> None:
    """The reply to the request that was thought lost must not become that of the next one."""
    ask(pool)
    (worker,) = pids(pool)
    for number in range(3):
        (child,) = children(worker)
        os.kill(int(child), signal.SIGKILL)  # nothing is being compared: the worker tells it before the next reply
        while children(worker) in ([child], []):
            time.sleep(0.01)
        ask(pool)
        assert (pool.started, pool.killed, pool.died) == (1, 0, number + 1)


def test_a_worker_ended_while_it_works_is_replaced_once() -> None:
    with Pool(size=1, seconds=60) as pool:
        ask(pool)
        ended: list[int] = []

        def end_twice() -> None:
            while len(ended) < 2:
                busy = [worker.pid for worker in list(pool._busy)]
                for pid in busy:
                    if pid not in ended:
                        os.killpg(pid, signal.SIGKILL)
                        ended.append(pid)
                done.wait(0.05)

        done = threading.Event()
        thread = threading.Thread(target=end_twice)
        thread.start()
        reply = pool.compare("5", HANG)
        thread.join()
        assert (reply.status, reply.detail) == (Status.DIED, "two workers died over it")
        ask(pool)


def test_a_worker_late_on_the_clock_is_replaced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a busy machine must not decide: only processor time does, so a late worker gets a second try."""
    asked: list[float] = []
    plain = Worker.ask

    def ask_late(self: Worker, request: dict[str, str], seconds: float, deadline: float) -> dict[str, str]:
        asked.append(deadline)
        if len(asked) <= late:
            raise WorkerLate("it did not answer in time")
        return plain(self, request, seconds, deadline)

    monkeypatch.setattr(Worker, "ask", ask_late)
    with Pool(size=1, seconds=20) as pool:
        late = 1
        assert pool.compare("x+1", "1+x").status is Status.SAME
        assert asked == [12 * HEAD_START] * 2 and (pool.started, pool.killed) == (2, 1)
        late = 6
        reply = pool.compare("x+1", "1+x")
        assert (reply.status, reply.detail) == (Status.LATE, "two workers gave no answer in 240 s")


def test_a_gold_answer_is_compared_with_itself_by_computing_it_once(pool: Pool) -> None:
    for gold in (r"\frac{n(n+1)}{2}", "(-\\infty,3)", "f(2)<f(1)", r"\text{even}", "506_7", r"\mathbb{R}", "x=5"):
        assert pool.gold_outcome(gold).status is Status.SAME
    assert pool.gold_outcome(r"\frac{}{}+?").status is Status.GOLD_UNREADABLE
    assert pool.gold_outcome(r"\lim_{x\to 0} \frac{1}{0}").status is Status.SAME
    pool.close()
    assert pool.gold_outcome("506_7").status is Status.SAME and pool.started == 1


def test_closing_leaves_no_process_and_no_open_file(pool: Pool) -> None:
    before = len(os.listdir("/proc/self/fd"))
    ask(pool)
    (pid,) = pids(pool)
    pool.close()
    pool.close()
    assert not alive(pid)
    assert len(os.listdir("/proc/self/fd")) <= before
    ask(pool)  # and starts again
    assert pool.started == 2


class Exhausted:
    """Stands for a worker whose memory does not suffice."""

    pid, served, alive = 0, 0, True

    def __init__(self, memory: int, nice: bool, begun: object) -> None:
        self.ended = 0

    def ask(self, request: dict[str, object], seconds: float, deadline: float) -> dict[str, str]:
        return {"status": "memory"}

    def end(self) -> None:
        self.ended += 1


def test_a_comparison_without_memory_gives_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.answers.math.pool.Worker", Exhausted)
    with Pool(size=1, memory=100 << 20) as pool:
        for _ in range(2):
            reply = pool.compare("5", "x")
            assert (reply.status, reply.detail) == (Status.MEMORY, "needs more than 100 MB")
        assert (pool.started, pids(pool)) == (1, [0])


def test_the_memory_of_a_worker_is_limited_and_running_out_of_it_is_told() -> None:
    program = (
        "import resource, sys\n"
        "from tasks.answers.math import equivalence, worker\n"
        "equivalence.equivalent = lambda gold, answer: len(bytes(int(answer))) if answer.isdigit() else True\n"
        "worker.main(int(sys.argv[1]))\n"
    )
    requests = [
        {"how": "fixed", "gold": "5", "answer": size, "number": number, "seconds": 60, "deadline": 60}
        for number, size in enumerate(("10", str(3 << 30)))
    ]
    done = subprocess.run(
        [sys.executable, "-c", program, str(2 << 30)],
        input=b"".join(pack(request) for request in requests),
        capture_output=True,
        timeout=120,
        check=True,
    )
    stream = io.BytesIO(done.stdout)
    replies = [read_frame(stream) for _ in range(4)]
    assert "ready" in (replies[0] or {})
    statuses = [reply and (reply["status"], reply["number"]) for reply in replies[1:]]
    assert statuses == [("same", 0), ("memory", 1), None]


def test_a_worker_that_cannot_start_says_why() -> None:
    with Pool(size=1, memory=60 << 20) as pool:
        reply = pool.compare("x+1", "1+x")
        assert reply.status is Status.UNAVAILABLE
        assert "math worker" in reply.detail and "memory" in reply.detail
    with pytest.raises(WorkerUnavailable):
        Worker(60 << 20)


def test_a_missing_program_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with Pool(size=1) as pool:
        reply = pool.compare("x+1", "1+x")
    assert reply.status is Status.UNAVAILABLE
    assert "cannot be started" in reply.detail


def test_large_texts_and_odd_characters_go_through(pool: Pool) -> None:
    assert pool.compare("x", rf"\text{{{'y' * 1_000_000}}}").status is Status.DIFFERENT
    assert pool.compare("x", "\ud800\0\u2028").status in (Status.UNREADABLE, Status.DIFFERENT)
    broken = pool.compare("x", r"\frac{" + "y" * 2000)
    assert broken.status is Status.UNREADABLE
    assert len(broken.detail) == 300
    ask(pool)


@pytest.mark.usefixtures("patient")
def test_eight_threads_get_the_verdicts_of_one() -> None:
    with Pool(size=2, seconds=60) as pool, ThreadPoolExecutor(8) as threads:
        rows = ORDINARY * 16
        replies = list(threads.map(lambda row: pool.compare(row[0], row[1]).status, rows))
        assert replies == [row[2] for row in rows]
        assert pool.started <= 2


def test_a_forked_process_gets_workers_of_its_own(pool: Pool) -> None:
    ask(pool)
    (pid,) = pids(pool)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            fresh = not pids(pool)
            ask(pool)
            code = 0 if fresh and pids(pool) != [pid] else 2
            pool.close()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    ask(pool)
    assert pids(pool) == [pid]
    assert pool.started == 1


def stocked(pool: Pool) -> list[int]:
    """The spare workers, once they are there."""
    end = time.monotonic() + 60
    while len(pool._spares) < SPARES and time.monotonic() < end:
        time.sleep(0.01)
    return [worker.pid for worker in pool._spares]


def test_a_lost_worker_is_replaced_by_one_that_stands_by(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(pool)
    assert not pool._spares and pool._starter is None  # a few comparisons need none
    for _ in range(SPARES_AFTER):
        ask(pool)
    (spare,) = stocked(pool)
    (pid,) = pids(pool)
    os.killpg(pid, signal.SIGKILL)  # its child, too, which may answer until it hears of its end
    monkeypatch.setattr(pool, "_stand_by", lambda: None)
    monkeypatch.setattr("tasks.answers.math.pool.Worker", None)  # none can be started now
    ask(pool)
    assert pids(pool) == [spare] and (pool.started, pool.died) == (2, 1)


def test_a_spare_worker_that_was_lost_itself_is_not_asked(pool: Pool) -> None:
    for _ in range(SPARES_AFTER):
        ask(pool)
    (spare,), (pid,) = stocked(pool), pids(pool)
    for lost in (spare, pid):
        os.killpg(lost, signal.SIGKILL)
        while Path(f"/proc/{lost}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
    ask(pool)
    assert pool.died == 1 and not alive(spare)


@pytest.mark.parametrize("ready", [True, False])
def test_spare_workers_end_with_their_pool(pool: Pool, ready: bool) -> None:
    before, others = len(os.listdir("/proc/self/fd")), set(children(os.getpid()))
    ask(pool)
    pool._stand_by()
    if ready:
        stocked(pool)
    pool.close()
    assert not pool._spares and not pool._starting and pool._starter is None
    assert len(os.listdir("/proc/self/fd")) <= before
    assert set(children(os.getpid())) <= others


def test_a_killed_program_leaves_no_worker_behind() -> None:
    code = (
        "import os, signal\nfrom tasks.answers.math import default_pool\npool = default_pool()\npool.warm()\n"
        "pool._stand_by()\nwhile not pool._spares: pass\n"
        "print(pool._lanes[0].idle[0].pid, pool._spares[0].pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    left = [int(pid) for pid in done.stdout.split()]
    assert len(left) == 2
    end = time.monotonic() + 30
    while any(map(alive, left)) and time.monotonic() < end:
        time.sleep(0.01)
    assert not any(map(alive, left))


def test_a_program_leaves_no_worker_behind() -> None:
    code = (
        "from tasks.answers.math import default_pool\npool = default_pool()\npool.warm()\n"
        "print(pool._lanes[0].idle[0].pid)\n"
    )
    # No `if __name__ == '__main__'`: a worker never runs the program of its parent again.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert len(done.stdout.split()) == 1, done.stdout
    assert not alive(int(done.stdout))
    assert done.stderr == ""


def test_a_worker_is_replaced_when_it_has_served_enough(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.answers.math.pool.REQUESTS", 3)
    ask(pool)
    ask(pool)
    assert (pool.started, pool.killed, pool.died) == (2, 0, 0)


@pytest.mark.parametrize("wrong", [{"size": 0}, {"seconds": 0}, {"seconds": float("nan")}, {"seconds": float("inf")}])
def test_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="="):
        Pool(**wrong)  # type: ignore[arg-type]
