r"""Warm sandboxes, kept and reused: a new one costs 30 ms and more, a reset less than one.

Example:
    with SandboxPool("auto", size=4) as pool, pool.lease() as sandbox:
        sandbox.open({"a.txt": "hello\n"})
        sandbox.run("cat a.txt")
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Self

from sandboxes.client import SupervisedSandbox
from sandboxes.opening import open_sandbox
from sandboxes.sandbox import Backend, Limits, SandboxError

EPISODES = 200
"""Episodes after which a sandbox is replaced by a fresh one."""


class SandboxPool:
    """A fixed number of sandboxes for any number of threads.

    The sandboxes start in parallel in the background. One that was lost, or served `episodes` episodes, is replaced.

    Args:
        backend: As in `open_sandbox`.
        size: How many.
        limits: What commands may use.
        episodes: When a sandbox is replaced.
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
        if size < 1:
            raise ValueError(f"a pool needs at least one sandbox, not {size}")
        self._make = lambda: open_sandbox(backend, limits=limits, **options)
        self._episodes = episodes
        self._condition = threading.Condition()
        self._idle: list[SupervisedSandbox] = []
        self._served: dict[int, int] = {}
        self._failure: SandboxError | None = None
        self._closed = False
        self._all: list[SupervisedSandbox] = [self._make() for _ in range(size)]
        self.backend = self._all[0].backend
        self.size = size
        self.replaced = 0
        """How many sandboxes were lost or worn out and replaced."""
        self._workers = ThreadPoolExecutor(max_workers=min(size, 8), thread_name_prefix="sandbox-pool")
        self._finalizer = weakref.finalize(self, _close_each, self._all, self._workers)
        for sandbox in self._all:
            self._workers.submit(self._warm, sandbox)

    def _warm(self, sandbox: SupervisedSandbox) -> None:
        """Start or clean a sandbox and make it available. Runs on a worker thread."""
        try:
            if sandbox.alive:
                sandbox.reset()
            else:
                sandbox.warm()
        except SandboxError as error:
            with self._condition:
                self._failure = None if self._closed else error
        with self._condition:
            if not self._closed:
                self._idle.append(sandbox)
            self._condition.notify()

    def acquire(self, timeout: float | None = None) -> SupervisedSandbox:
        """An idle sandbox, the caller's until `release`. Waits for one.

        Args:
            timeout: Seconds to wait; None waits for ever.

        Raises:
            SandboxError: The pool is closed, none became free in time, or none can be started any more.
        """
        with self._condition:
            if not self._condition.wait_for(lambda: self._idle or self._closed, timeout):
                raise SandboxError(f"none of {self.size} sandboxes became free in {timeout} seconds")
            if self._closed:
                raise SandboxError("this pool was closed")
            sandbox = self._idle.pop()
            self._served[id(sandbox)] = self._served.get(id(sandbox), 0) + 1
        if not sandbox.alive:
            try:
                sandbox.warm()
            except BaseException:
                with self._condition:
                    self._idle.append(sandbox)
                    self._condition.notify()
                raise
        return sandbox

    def release(self, sandbox: SupervisedSandbox) -> None:
        """Give a sandbox back. It is cleaned (or replaced) before anybody else gets it."""
        with self._condition:
            if sandbox not in self._all:
                raise ValueError("this sandbox does not belong to the pool")
            if sandbox in self._idle:
                raise ValueError("this sandbox was released already")
            if self._closed:
                sandbox.close()
                return
            worn = not sandbox.alive or self._served[id(sandbox)] >= self._episodes
            if worn:
                sandbox.close()
                self.replaced += 1
                self._served.pop(id(sandbox), None)
                fresh = self._make()
                self._all[self._all.index(sandbox)] = fresh
                sandbox = fresh
            self._workers.submit(self._warm, sandbox)

    @contextmanager
    def lease(self, timeout: float | None = None) -> Iterator[SupervisedSandbox]:
        """`acquire`, and `release` at the end, whatever happens."""
        sandbox = self.acquire(timeout)
        try:
            yield sandbox
        finally:
            self.release(sandbox)

    def close(self) -> None:
        """End every sandbox, also those in use. Idempotent; happens by itself when the process ends."""
        with self._condition:
            self._closed = True
            self._idle.clear()
            self._condition.notify_all()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _close_each(sandboxes: list[SupervisedSandbox], workers: ThreadPoolExecutor) -> None:
    workers.shutdown(wait=True, cancel_futures=True)
    for sandbox in sandboxes:
        sandbox.close()
