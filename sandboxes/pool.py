r"""Warm sandboxes, kept and reused: a new one costs 30 ms (a container 300 ms) and more, a reset less than one.

Example:
    with SandboxPool("auto", size=4) as pool, pool.lease() as sandbox:
        sandbox.open({"a.txt": "hello\n"})
        sandbox.run("cat a.txt")
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from sandboxes.client import SupervisedSandbox
from sandboxes.opening import open_sandbox
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxOutage, SandboxUnavailable
from sandboxes.starting import make_room
from sandboxes.transport import uninterrupted

EPISODES = 200
"""Episodes after which a sandbox is replaced by a fresh one."""
TRIES = 3
"""Starts that may fail in a row; then those who wait get the error. Each start is itself tried a few times."""
PAUSE = 0.5
"""Seconds before a failed start is repeated; more with each failure."""
OUTAGE_SECONDS = 60.0
"""How long a pool waits for an engine that no longer answers, since it may be restarting; then those who wait get the
error. Only the episodes that were open are lost."""
LONGEST_PAUSE = 5.0
"""Seconds between two looks for such an engine, at most."""
THREADS = max(8, 2 * (os.cpu_count() or 1))
"""Sandboxes started or cleaned at the same time, at most. Starting is bound by the CPU: more would only queue there."""
_WORKER = "sandbox-pool"


class Wait:
    """An `acquire` that another thread may call off: see `SandboxPool.cancel`."""

    __slots__ = ("cancelled", "held")

    def __init__(self) -> None:
        self.cancelled = False
        self.held: list[SupervisedSandbox] = []
        """What was taken, until `acquire` returns it."""


class SandboxPool:
    """A number of warm sandboxes for any number of threads.

    The sandboxes start in parallel in the background. One that comes back is cleaned before the next user gets it; one
    that was lost, or served `recycle` episodes, is replaced by a fresh one.

    A sandbox that cannot be started is tried a few times. Then whoever waits for it gets the error, and the next
    `acquire` that finds no idle sandbox tries again: nobody waits for ever, and nothing is tried in an endless loop.
    For an engine that no longer answers the pool waits up to `OUTAGE_SECONDS`.

    A pool belongs to the process that made it. Make it after forking.

    Attributes:
        backend: The backend that all sandboxes have.
        size: How many sandboxes there are.
        starts: Sandboxes started so far.
        episodes: Sandboxes lent so far.
        lost: Sandboxes that died or stopped answering, and were replaced.
        worn: Sandboxes replaced because they had served enough.

    Args:
        backend: As in `open_sandbox`.
        size: How many: as many as there are episodes at a time.
        limits: What commands may use.
        episodes: After how many episodes a sandbox is replaced.
        options: Options of the backend.

    Raises:
        SandboxUnavailable: The backend cannot work here.
    """

    def __init__(
        self,
        backend: Backend | str = "auto",
        size: int = 1,
        limits: Limits | None = None,
        *,
        episodes: int = EPISODES,
        **options: Any,
    ) -> None:
        if size < 1 or episodes < 1:
            raise ValueError(f"a pool needs at least one sandbox and one episode, not {size} and {episodes}")
        first = open_sandbox(backend, limits=limits, **options)  # not started; raises here, not on a thread
        self._make = lambda: open_sandbox(first.name, limits=limits, **options)
        self._recycle = episodes
        self.backend = first.backend
        self.size = 0
        self.starts = self.episodes = self.lost = self.worn = 0
        self._condition = threading.Condition()
        self._served: dict[SupervisedSandbox, int] = {}
        """Every sandbox there is, with its episodes: idle, lent, or with a worker."""
        self._idle: list[SupervisedSandbox] = []
        self._lent: set[SupervisedSandbox] = set()
        self._cleaning: set[SupervisedSandbox] = set()
        self._coming = 0
        """Sandboxes that a worker starts or cleans."""
        self._missing = 0
        """Sandboxes that could not be started."""
        self._waiting = 0
        self._refusals: list[Exception] = []
        """Errors for those who wait and for whom no sandbox is coming; never more than wait."""
        self._failures = 0
        self._gone_since: float | None = None
        """When the engine was first found not to answer; None while it answers."""
        self._process = os.getpid()
        self._state = _State()
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix=_WORKER)
        self._finalizer = weakref.finalize(
            self, _end_all, self._process, self._state, self._condition, self._served, self._workers
        )
        self.grow(size)

    @property
    def replaced(self) -> int:
        """How many sandboxes were lost or worn out and replaced."""
        return self.lost + self.worn

    def grow(self, size: int) -> None:
        """Have at least `size` sandboxes. Those that are added start in the background.

        Raises:
            SandboxError: The pool is closed, or belongs to another process.
        """
        self._check_process()
        with self._condition:
            self._check()
            more, self.size = max(0, size - self.size), max(size, self.size)
            make_room(more)
            for _ in range(more):
                self._submit(self._start)

    # --- lending ----------------------------------------------------------------------------------------------------

    def acquire(
        self, timeout: float | None = None, *, prefer: SupervisedSandbox | None = None, wait: Wait | None = None
    ) -> SupervisedSandbox:
        """An idle sandbox, the caller's until `release`. Waits for one.

        The one that served least is lent first, so that all wear evenly.

        Args:
            timeout: Seconds to wait; None waits until one comes back.
            prefer: The one to have again if it is free or being cleaned. An environment that always has the same one
                sees process numbers that do not depend on which thread was faster.
            wait: Lets another thread call this off.

        Raises:
            SandboxError: The pool is closed, none became free in time, none could be started, or it was called off.
        """
        wait = wait or Wait()
        try:
            return self._acquire(timeout, prefer, wait)
        finally:
            wait.held = []

    def cancel(self, wait: Wait) -> None:
        """Call off the `acquire` that has this `wait`, now or in future: it raises SandboxError. From any thread."""
        if os.getpid() != self._process:
            return  # a copy made by fork: nobody waits here
        with self._condition:
            wait.cancelled = True
            held = list(wait.held)
            self._condition.notify_all()
        for sandbox in held:  # it is being looked at, and may never answer
            sandbox.close()

    @contextmanager
    def lease(
        self, timeout: float | None = None, *, prefer: SupervisedSandbox | None = None
    ) -> Iterator[SupervisedSandbox]:
        """`acquire`, and `release` at the end, whatever happens."""
        wait = Wait()  # filled inside: Ctrl-C between two instructions leaves none behind
        try:
            yield self._acquire(timeout, prefer, wait)
        finally:
            for sandbox in wait.held:
                self.release(sandbox)

    def release(self, sandbox: SupervisedSandbox) -> None:
        """Give a sandbox back. It is cleaned, or replaced, in the background.

        Raises:
            ValueError: It is not lent by this pool.
        """
        if os.getpid() != self._process:
            return  # a copy made by fork: the sandbox is the parent's
        with self._condition:
            if not self._state.closed:
                if sandbox not in self._served:
                    raise ValueError("this sandbox does not belong to the pool, or was lost and given back before")
                if sandbox not in self._lent:
                    raise ValueError("this sandbox was released already")
                self._lent.remove(sandbox)
                lost, worn = not sandbox.alive, self._served[sandbox] >= self._recycle
                self.lost += lost
                self.worn += worn and not lost
                if lost or worn:
                    self._submit(self._replace, sandbox)
                else:
                    self._cleaning.add(sandbox)
                    self._submit(self._clean, sandbox)
                return
        sandbox.close()

    def _acquire(self, timeout: float | None, prefer: SupervisedSandbox | None, wait: Wait) -> SupervisedSandbox:
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        # Every idle one may have died with its engine; each is replaced once, and then it is the machinery that fails.
        for left in reversed(range(self.size + TRIES)):
            sandbox = self._take(timeout, deadline, prefer, wait)
            try:
                sandbox.listing()  # one round trip: it may have died while nobody looked
                return sandbox
            except BaseException as error:
                wait.held.clear()
                self.release(sandbox)
                if not isinstance(error, SandboxError) or not left:
                    raise
        raise AssertionError("the last try returns or raises")

    def _take(
        self,
        timeout: float | None,
        deadline: float | None,
        prefer: SupervisedSandbox | None,
        wait: Wait,
    ) -> SupervisedSandbox:
        with self._condition:
            self._check()
            if not self._idle:
                self._revive()
            self._waiting += 1
            try:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                self._condition.wait_for(lambda: wait.cancelled or self._settled(prefer), left)
                self._check()
                if wait.cancelled:
                    raise SandboxError("waiting for a sandbox was called off: whoever wanted it is being closed")
                if prefer is not None and prefer in self._idle:
                    sandbox = prefer
                elif self._idle:
                    sandbox = min(self._idle, key=self._served.__getitem__)
                elif self._refusals:
                    raise _again(self._refusals.pop())
                else:
                    raise SandboxError(
                        f"none of {self.size} sandboxes became free in {timeout} seconds ({len(self._lent)} in use, "
                        f"{self._coming} being started or cleaned); make the pool as large as the number of episodes "
                        "at a time, and release what you acquire"
                    )
                wait.held.append(sandbox)
                self._lent.add(sandbox)
                self._idle.remove(sandbox)
                self._served[sandbox] += 1
                self.episodes += 1
                return sandbox
            finally:
                self._waiting -= 1
                del self._refusals[self._waiting :]

    def _settled(self, prefer: SupervisedSandbox | None) -> bool:
        """Whether one who waits has what it waits for, or will not get it."""
        if prefer is not None and prefer in self._cleaning and not self._state.closed:
            return False
        return bool(self._state.closed or self._idle or self._refusals)

    def _check_process(self) -> None:
        """Before the lock is taken: in a copy made by fork somebody may hold it who does not live there."""
        if os.getpid() != self._process:
            raise SandboxError(f"this pool belongs to process {self._process}; make a pool after forking, not before")

    def _check(self) -> None:
        if self._state.closed:
            raise SandboxError("this pool was closed")

    # --- workers ----------------------------------------------------------------------------------------------------

    def _submit(self, job: Callable[..., None], *sandbox: SupervisedSandbox) -> None:
        """Have a worker do a job that ends in `_ready` or `_failed`. The lock is held."""
        self._coming += 1
        try:
            self._workers.submit(self._work, job, *sandbox)
        except RuntimeError as error:  # no threads any more: the interpreter is on its way out
            self._failed(error)

    def _revive(self) -> None:
        """Try again what could not be started. The lock is held."""
        missing, self._missing, self._failures = self._missing, 0, 0
        for _ in range(missing):
            self._submit(self._start)

    def _work(self, job: Callable[..., None], *sandbox: SupervisedSandbox) -> None:
        try:
            job(*sandbox)
        except Exception as error:  # whatever it is, those who wait must hear of it
            self._failed(error)

    def _clean(self, sandbox: SupervisedSandbox) -> None:
        try:
            sandbox.reset()
        except BaseException as error:
            with self._condition:
                self.lost += not self._state.closed
            self._discard(sandbox)
            if not isinstance(error, SandboxError):
                raise
            self._start()
        else:
            self._ready(sandbox)

    def _replace(self, sandbox: SupervisedSandbox) -> None:
        self._discard(sandbox)
        self._start()

    def _discard(self, sandbox: SupervisedSandbox) -> None:
        try:
            sandbox.close()
        finally:
            with self._condition:
                self._cleaning.discard(sandbox)
                self._served.pop(sandbox, None)

    def _start(self) -> None:
        """Start a sandbox, in a bounded number of tries. Raises the last error."""
        while True:
            sandbox: SupervisedSandbox | None = None
            try:
                sandbox = self._make()
                with self._condition:
                    self._check()
                    self._served[sandbox] = 0  # from here on `close` reaches it
                sandbox.warm()
            except BaseException as error:
                if sandbox is not None:
                    self._discard(sandbox)
                with self._condition:
                    pause = self._pause(error)
                    if pause is None or self._state.closed:
                        raise
                    self._condition.wait_for(lambda: self._state.closed, pause)
            else:
                with self._condition:
                    self._failures, self._gone_since = 0, None
                    self.starts += 1
                return self._ready(sandbox)

    def _pause(self, error: BaseException) -> float | None:
        """Seconds after which a start is tried again; None when its error is the last word. The lock is held."""
        if isinstance(error, SandboxOutage):  # the pool could be made, so the engine answered before
            now = time.monotonic()
            self._gone_since = self._gone_since or now
            waited = now - self._gone_since
            return min(LONGEST_PAUSE, max(PAUSE, waited / 2)) if waited < OUTAGE_SECONDS else None
        self._failures += 1
        if self._failures >= TRIES or not isinstance(error, SandboxError) or isinstance(error, SandboxUnavailable):
            return None
        return PAUSE * self._failures

    def _ready(self, sandbox: SupervisedSandbox) -> None:
        with self._condition:
            self._coming -= 1
            self._cleaning.discard(sandbox)
            closed = self._state.closed
            if not closed:
                self._idle.append(sandbox)
            self._condition.notify_all()  # all: one alone may be leaving, and would take the news with it
        if closed:
            sandbox.close()  # it was started while `close` went round

    def _failed(self, error: Exception) -> None:
        with self._condition:
            self._coming -= 1
            self._missing += 1
            while len(self._refusals) < self._waiting - self._coming - len(self._idle):
                self._refusals.append(error)
            self._condition.notify_all()

    # --- the end ----------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every sandbox, also those in use. Idempotent; happens by itself when the process ends.

        Ctrl-C meanwhile is raised at the end.
        """
        uninterrupted(self._finalizer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _State:
    """Whether a pool is closed: apart from the pool, so that the pool can be collected."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        self.closed = False


def _end_all(
    process: int,
    state: _State,
    condition: threading.Condition,
    served: dict[SupervisedSandbox, int],
    workers: ThreadPoolExecutor,
) -> None:
    if os.getpid() != process:  # a copy made by fork: no thread of the pool lives here, and its lock may be held
        return
    with condition:
        state.closed = True
        sandboxes = list(served)
        condition.notify_all()
    workers.shutdown(wait=False, cancel_futures=True)
    try:  # not the pool's own threads: they may all wait for a start that only its end will end
        with ThreadPoolExecutor(THREADS, thread_name_prefix=_WORKER) as closers:
            list(closers.map(SupervisedSandbox.close, sandboxes))
    except RuntimeError:  # no threads any more: the interpreter is on its way out
        for sandbox in sandboxes:
            sandbox.close()
    workers.shutdown(wait=not threading.current_thread().name.startswith(_WORKER))


def _again(error: Exception) -> SandboxError:
    """The error of a worker, for one of those who waited."""
    kind = SandboxUnavailable if isinstance(error, SandboxUnavailable) else SandboxError
    words = str(error) if isinstance(error, SandboxError) else f"{type(error).__name__}: {error}"
    copy = kind(f"no sandbox could be started: {words}")
    copy.__cause__ = error
    return copy
