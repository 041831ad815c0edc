"""Workers that compare answers, kept warm, each comparison ended where it takes more processor time than it may."""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tasks.answers.math.worker import HEADER, pack

# -- One worker process as its parent sees it: started, asked, and ended ----------------------------------------------

START_SECONDS = 60.0
"""How long a worker may take to start; importing sympy takes about a second on an idle machine."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tasks.answers.math.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class WorkerUnavailable(RuntimeError):
    """A worker could not be started; the message says why and what helps."""


class WorkerDied(RuntimeError):
    """A worker ended without an answer."""


class WorkerLate(RuntimeError):
    """A worker did not answer before the deadline, which may be the fault of a busy machine."""


class WorkerSpent(RuntimeError):
    """A request used up its processor time. The worker is as good as new."""


class WorkerBroke(RuntimeError):
    """The process that compared ended without an answer. The worker is as good as new."""


class Worker:
    """A process of its own program, not a fork: it holds no threads, locks or modules of the parent.

    Args:
        memory: Bytes of address space that it may take.
        nice: Whether it makes way for other processes.
        begun: Called with the worker once its process is there, before it can be asked.

    Raises:
        WorkerUnavailable: it did not start.
    """

    def __init__(self, memory: int, nice: bool = False, begun: Callable[[Worker], None] = lambda _: None) -> None:
        self.served = 0
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(memory), str(int(nice))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the parent
                # One order of sets for all workers, so that verdicts do not depend on which one answers.
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
        except (OSError, ValueError) as error:
            raise WorkerUnavailable(f"the math worker cannot be started: {error}") from error
        try:
            begun(self)
            reply = self._receive(time.monotonic() + START_SECONDS)
        except (WorkerDied, WorkerLate) as error:
            code = self.end()
            raise WorkerUnavailable(
                f"the math worker did not start ({error}; exit code {code}): is there memory for one more Python?"
            ) from error
        except BaseException:
            self.end()
            raise
        if "ready" not in reply:
            self.end()
            raise WorkerUnavailable(
                f"the math worker could not start: {reply.get('failed')}. It needs math-verify and sympy "
                f"(pip install 'math-verify[antlr4_13_2]'), and memory for them"
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float, deadline: float) -> dict[str, Any]:
        """Send a request and return the answer.

        Args:
            request: What `worker.main` takes.
            seconds: Processor time that it may take.
            deadline: Seconds from now, of the clock.

        Raises:
            WorkerSpent: it needed more processor time.
            WorkerBroke: the process that compared ended before answering.
            WorkerLate: no answer in time. The worker must be ended.
            WorkerDied: it ended before answering.
        """
        end = time.monotonic() + deadline
        self.served += 1
        self._send(pack({**request, "number": self.served, "seconds": seconds, "deadline": deadline}), end)
        reply = self._receive(end)
        while "status" in reply and reply["number"] != self.served:  # to a request whose process was thought lost
            reply = self._receive(end)
        if "spent" in reply:
            raise WorkerSpent(f"took more than {seconds:g} s of processor time")
        if "broke" in reply:
            raise WorkerBroke("it ended without an answer")
        return reply

    def end(self) -> int | None:
        """Kill it, take its exit code and close the pipes. May be called again."""
        self.kill()
        code = self._process.wait()
        self._close()
        return code

    def kill(self) -> None:
        """Kill it; whoever waits for it learns that it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the process that compares, too

    def forget(self) -> None:
        """Let go of it without touching it: in a child of the process that started it."""
        self._process.returncode = 0  # not ours to wait for
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _send(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None
        handle = self._process.stdin.fileno()
        view = memoryview(data)
        poll = select.poll()
        poll.register(handle, select.POLLOUT)
        try:
            while view:
                self._wait(poll, end)
                view = view[os.write(handle, view[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            raise WorkerDied("it had ended") from None

    def _receive(self, end: float) -> dict[str, Any]:
        (length,) = HEADER.unpack(self._read(HEADER.size, end))
        found: dict[str, Any] = json.loads(self._read(length, end))
        return found

    def _read(self, count: int, end: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        data = bytearray()
        while len(data) < count:
            self._wait(poll, end)
            chunk = os.read(handle, count - len(data))
            if not chunk:
                raise WorkerDied("it ended without an answer")
            data += chunk
        return bytes(data)

    @staticmethod
    def _wait(poll: select.poll, end: float) -> None:
        if not poll.poll(max(0.0, (end - time.monotonic()) * 1000)):
            raise WorkerLate("it did not answer in time")


# -- Workers that compare answers, kept warm, each comparison ended where it takes more processor time than it may ----
# math-verify's own time limit is a signal: it works in the main thread only, and does not stop what hangs in one long
# operation. A process can always be ended, from any thread. Its processor time is counted, not the time on the clock,
# so that a busy machine does not change verdicts.

SECONDS = 5.0
"""Processor time that one comparison may take."""
HEAD_START = 0.25
"""Processor time after which a comparison makes way for the others, and starts anew among those that do the like."""
SPARES = 1
"""Workers that stand by, started in the background, so that no comparison waits for a start where one is lost."""
SPARES_AFTER = 20
"""Comparisons after which a pool gets them; sooner where one hangs or a worker is lost. Few need none."""
PATIENCE = 12
"""Times as long on the clock, after which a worker counts as lost."""
MEMORY = 3 << 30
"""Bytes of address space of one worker; it uses about 100 MB."""
MOST_WORKERS = 8
"""Workers of the pool that a process gets by itself, at most one for each core."""
REQUESTS = 20_000
"""Requests after which a worker is replaced, since the caches of what it imports only grow."""


class Status(StrEnum):
    """How a comparison ended."""

    SAME = "same"
    """The answers are the same."""
    DIFFERENT = "different"
    """They are not."""
    UNREADABLE = "unreadable"
    """The answer is beyond the parser, and is not the gold one as a text."""
    GOLD_UNREADABLE = "gold_unreadable"
    """The gold answer is beyond the parser."""
    LATE = "late"
    """It used up its processor time, or two workers did not answer in a multiple of that."""
    MEMORY = "memory"
    """The worker's memory did not suffice."""
    DIED = "died"
    """Two workers died over it."""
    FAILED = "failed"
    """The comparison raised an exception."""
    UNAVAILABLE = "unavailable"
    """No worker could be started: no verdict."""


@dataclass(frozen=True, slots=True)
class Reply:
    """How a comparison ended, and why in a few words."""

    status: Status
    detail: str = ""


class _Lane:
    """Comparisons that have taken as long so far, with workers of their own: none waits for one of a later lane.

    Args:
        size: Workers at most.
        nice: Whether they make way for all others on the processors.
    """

    def __init__(self, size: int, nice: bool) -> None:
        self.nice = nice
        self.free = threading.BoundedSemaphore(size)
        self.idle: list[Worker] = []


class Pool:
    """Compares answers in worker processes. May be used by any number of threads, also after a fork.

    Workers start when they are needed: the first at the first comparison, more while all are busy. A pool that is used
    much, or under attack, keeps `SPARES` more that take the place of one that is lost.

    Args:
        size: Workers at most, besides as many for what takes long, and spares; the number of cores, at most
            `MOST_WORKERS`, where it is None.
        seconds: Processor time that one comparison may take.
        memory: Bytes of address space of one worker.

    Attributes:
        started: Workers put to use so far.
        killed: Comparisons ended because they took too long.
        died: Workers that ended by themselves, or that somebody else ended.
    """

    def __init__(self, size: int | None = None, seconds: float = SECONDS, memory: int = MEMORY) -> None:
        if size is not None and size < 1:
            raise ValueError(f"size={size}: a pool needs at least 1 worker")
        if not 0 < seconds < math.inf:
            raise ValueError(f"seconds={seconds}: must be above 0, and finite")
        self.size = size or min(len(os.sched_getaffinity(0)), MOST_WORKERS)
        self.seconds = seconds
        self.memory = memory
        self.started = self.killed = self.died = 0
        self._lanes: list[_Lane] = []
        self._busy: dict[Worker, int] = {}
        self._spares: list[Worker] = []
        self._starting: list[Worker] = []
        self._starter: threading.Thread | None = None
        self._golds: dict[str, Reply] = {}
        self._reset()
        _POOLS.add(self)

    def compare(self, gold: str, answer: str, how: str = "fixed") -> Reply:
        """Compare two answers as they stand in their boxes; `how` is `fixed` or `minerva`.

        Waits for a worker to be free first. Most answers take milliseconds, so one that takes longer than `HEAD_START`
        is begun again behind those that do the like, by other workers: answers made to hang wait for each other, and no
        other for them or for a worker that starts because of them.
        """
        request: dict[str, Any] = {"gold": gold, "answer": answer, "how": how}
        slices = (HEAD_START, self.seconds) if self.seconds > HEAD_START else (self.seconds,)
        for lane, seconds in zip(self._lanes, slices, strict=False):
            with lane.free:
                reply = self._ask(request, seconds, lane)
            if reply.status is not Status.LATE:
                break
            self._stand_by()
        self._asked += 1
        if self._asked == SPARES_AFTER:
            self._stand_by()
        return reply

    def _ask(self, request: dict[str, Any], seconds: float, lane: _Lane) -> Reply:
        """Ask a worker. One that is lost (ended from outside, or late on a busy machine) costs a second try.

        What loses two is no accident.
        """
        patience = PATIENCE * seconds
        for second_try in (False, True):
            try:
                worker = self._take(lane)
            except WorkerUnavailable as error:
                return Reply(Status.UNAVAILABLE, str(error))
            try:
                found = worker.ask(request, seconds, patience)
            except WorkerSpent as error:
                with self._lock:
                    self.killed += 1
                self._give_back(worker, lane)  # only the process in it that compared has ended
                return Reply(Status.LATE, str(error))
            except WorkerBroke:
                with self._lock:
                    self.died += 1
                self._give_back(worker, lane)  # likewise
                if second_try:
                    return Reply(Status.DIED, "two workers died over it")
                continue
            except WorkerLate:
                self._end(worker, late=True)
                if second_try:
                    return Reply(Status.LATE, f"two workers gave no answer in {patience:g} s")
                continue
            except WorkerDied:
                self._end(worker)
                if second_try:
                    return Reply(Status.DIED, "two workers died over it")
                continue
            except BaseException:  # such as Ctrl-C: its answer must not become that of the next request
                self._end(worker)
                raise
            self._give_back(worker, lane)
            reply = Reply(Status(found["status"]), found.get("detail", ""))
            return (
                Reply(reply.status, f"needs more than {self.memory >> 20} MB")
                if reply.status is Status.MEMORY
                else reply
            )
        raise AssertionError("unreachable: the second try returns")

    def gold_outcome(self, gold: str) -> Reply:
        """Compare a gold answer with itself by computing it: `SAME`, or what is wrong with it. Computed once each."""
        found = self._golds.get(gold)
        if found is None:
            found = self.compare(gold, gold, "gold")
            if found.status is not Status.UNAVAILABLE:
                self._golds[gold] = found
        return found

    def compare_many(self, pairs: Iterable[tuple[str, str]], how: str = "fixed") -> list[Reply]:
        """Compare pairs of gold and answer, as many at a time as there are workers; the replies in the same order."""
        waiting: Sequence[tuple[str, str]] = list(pairs)
        if len(waiting) < 2 or self.size == 1:
            return [self.compare(gold, answer, how) for gold, answer in waiting]
        with ThreadPoolExecutor(min(self.size, len(waiting))) as threads:
            return list(threads.map(lambda pair: self.compare(pair[0], pair[1], how), waiting))

    def warm(self) -> None:
        """Start the first worker now.

        Raises:
            WorkerUnavailable: it did not start.
        """
        first = self._lanes[0]
        with first.free:
            self._give_back(self._take(first), first)

    def close(self) -> None:
        """End the idle workers; busy ones end when they are given back. A later comparison starts new ones."""
        with self._lock:
            idle = [*self._spares, *(worker for lane in self._lanes for worker in lane.idle)]
            self._spares = []
            for lane in self._lanes:
                lane.idle = []
            self._generation += 1
            self._asked = 0
            starting, starter = list(self._starting), self._starter
        for worker in starting:
            worker.kill()  # whoever starts it notices, and ends it
        for worker in idle:
            worker.end()
        if starter is not None and starter is not threading.current_thread():
            starter.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, lane: _Lane) -> Worker:
        with self._lock:
            while lane.idle:
                worker = lane.idle.pop()
                if worker.served < REQUESTS:
                    self._busy[worker] = self._generation
                    return worker
                worker.end()
            self.started += 1
            generation = self._generation
            while not lane.nice and self._spares:
                worker = self._spares.pop()
                self._stand_by()
                if worker.alive:
                    self._busy[worker] = generation
                    return worker
                worker.end()
        # Outside the lock: several may start at once, and those that are there must not wait for them.
        worker = self._start(lane.nice)
        with self._lock:
            self._busy[worker] = generation
        return worker

    def _start(self, nice: bool, generation: int | None = None) -> Worker:
        """Start a worker, known from its first moment on: a fork, or the end of its generation, can deal with it."""
        starting: list[Worker] = []

        def begun(worker: Worker) -> None:
            with self._lock:
                starting.append(worker)
                self._starting.append(worker)
                if generation not in (None, self._generation):
                    worker.kill()

        try:
            return Worker(self.memory, nice, begun)
        finally:
            with self._lock:
                self._starting = [worker for worker in self._starting if worker not in starting]

    def _stand_by(self) -> None:
        """Have the spare workers started, in the background."""
        with self._lock:
            if self._starter is not None or len(self._spares) >= SPARES:
                return
            self._starter = threading.Thread(target=self._stock, args=(self._generation,), daemon=True)
            self._starter.start()

    def _stock(self, generation: int) -> None:
        try:
            worker = self._start(nice=False, generation=generation)
        except WorkerUnavailable:  # told where one is asked for
            worker = None
        with self._lock:
            self._starter = None
            if worker is not None and generation == self._generation:
                self._spares.append(worker)
                return
        if worker is not None:
            worker.end()

    def _give_back(self, worker: Worker, lane: _Lane) -> None:
        with self._lock:
            if self._busy.pop(worker, None) == self._generation:
                lane.idle.append(worker)
                return
        worker.end()

    def _end(self, worker: Worker, late: bool = False) -> None:
        with self._lock:
            self._busy.pop(worker, None)
            if late:
                self.killed += 1
            else:
                self.died += 1
        self._stand_by()
        worker.end()

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._lanes = [_Lane(self.size, nice=False), _Lane(self.size, nice=True)]
        self._busy, self._generation, self._asked = {}, 0, 0
        self._spares, self._starting, self._starter = [], [], None

    def _after_fork(self) -> None:
        """In the child: the workers are the parent's, and so may be whoever holds the locks."""
        idle = (worker for lane in self._lanes for worker in lane.idle)
        for worker in (*idle, *self._busy, *self._spares, *self._starting):
            worker.forget()
        self._reset()


_POOLS: weakref.WeakSet[Pool] = weakref.WeakSet()
_default: Pool | None = None
_default_lock = threading.Lock()


def default_pool() -> Pool:
    """Return the pool of this process, which is made when first asked for."""
    global _default
    with _default_lock:
        if _default is None:
            _default = Pool()
        return _default


def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close()


def _after_fork() -> None:
    global _default_lock
    _default_lock = threading.Lock()
    for pool in list(_POOLS):
        pool._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
