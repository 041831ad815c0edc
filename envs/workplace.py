"""Where an environment's commands run: a sandbox of its own, one that was given to it, or one that a pool lends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandboxes import SandboxPool, open_sandbox
from sandboxes.client import SupervisedSandbox
from sandboxes.opening import choose
from sandboxes.pool import Wait
from sandboxes.sandbox import NAMES, Backend, Sandbox, SandboxError, backend_of
from tasks.place import particular, refuse_unplaceable
from tasks.task import Task

POOL_SECONDS = 300.0
"""How long an environment waits for a sandbox of its pool. Longer means that the pool is too small, and a deadlock."""


class Workplace:
    """At most one sandbox, held from `take` until `release`. Used by one episode at a time.

    * A backend by name: one sandbox is opened at the first `take` and serves every episode.
    * An open sandbox: used as it is, and never closed here.
    * A pool: `take` borrows a sandbox, `give_back` at the end of an episode returns it.

    Args:
        sandbox: `auto`, a backend by name, an open sandbox, or a pool.

    Raises:
        ValueError: There is no backend of that name.
    """

    def __init__(self, sandbox: str | Backend | Sandbox | SandboxPool = "auto") -> None:
        self._pool = sandbox if isinstance(sandbox, SandboxPool) else None
        self._given = None if isinstance(sandbox, str | SandboxPool) else sandbox
        self._backend = sandbox if isinstance(sandbox, str) else "auto"
        if self._backend not in NAMES:
            raise ValueError(f"unknown sandbox '{self._backend}': choose one of {', '.join(NAMES)}")
        self._leased: SupervisedSandbox | None = None
        """What the pool lent last; it is asked for again, so that equal runs see equal process numbers."""
        self.sandbox: Sandbox | None = None
        """What is held now."""
        self._wait = Wait()
        """Cancelled by `abort`; `release` makes another."""
        self._beside: list[Sandbox] = []
        """What is open beside it: a canary, or what a judge runs in."""

    @property
    def wait(self) -> Wait:
        """Cancelled by `abort` and `release`: who does several things in a row looks at it in between."""
        return self._wait

    def refuse(self, tasks: Sequence[Task], network: str | None = None) -> None:
        """Refuse tasks that ask for what the sandbox cannot give; which one `auto` is, is found out if one asks.

        Args:
            tasks: What may be played.
            network: The engine's network that verifiers may have.

        Raises:
            TaskError: Each of them with the reason.
            SandboxUnavailable: No safe backend works here.
        """
        if any(map(particular, tasks)):
            held = self._pool or self._given
            refuse_unplaceable(tasks, backend_of(choose(self._backend)) if held is None else held.backend, network)

    def take(self, seconds: float = POOL_SECONDS) -> Sandbox:
        """The sandbox that is held; without one it is opened, or borrowed.

        Args:
            seconds: How long to wait for one of the pool.

        Raises:
            SandboxError: None can be had, or this was aborted.
        """
        if self.sandbox is None:
            wait = self._wait
            if not wait.cancelled:
                self.sandbox = (
                    self._borrow(self._pool, seconds) if self._pool else self._given or open_sandbox(self._backend)
                )
            if wait.cancelled:
                self.abort()  # it may have come just before the sandbox did
            refuse_closed(wait)
        assert self.sandbox is not None
        return self.sandbox

    def renew(self, seconds: float) -> Sandbox:
        """A fresh sandbox in place of one that was lost, not opened yet; `abort` reaches it, too.

        Args:
            seconds: How long to wait for one of the pool.

        Raises:
            SandboxError: As in `take`.
        """
        lost, self.sandbox = self.sandbox, None
        self._drop(lost)
        return self.take(seconds)

    @contextmanager
    def canary(self) -> Iterator[Sandbox]:
        """A second sandbox of the same kind, open and empty: what befalls the machine befalls it as well.

        Raises:
            SandboxError: It cannot be opened, or this was aborted.
        """
        with self.beside() as canary:
            canary.open({})
            yield canary

    @contextmanager
    def beside(self) -> Iterator[Sandbox]:
        """Another sandbox of the same kind, not opened yet; `abort` reaches it, too.

        Raises:
            SandboxError: This was aborted.
        """
        wait, twin = self._wait, self.take().twin()
        self._beside.append(twin)
        try:
            refuse_closed(wait)  # `abort` may have come just before it could see the twin
            yield twin
        finally:
            self._beside.remove(twin)
            twin.close()

    def give_back(self) -> None:
        """The episode is over: a pool gets its sandbox back. Whatever else is held stays for the next episode."""
        if self._pool is not None:
            self.release()

    def release(self) -> None:
        """Hold nothing any more: close what is ours, return what is borrowed. Idempotent."""
        self._wait.cancelled = True
        sandbox, self.sandbox, self._wait = self.sandbox, None, Wait()
        self._drop(sandbox)

    def _drop(self, sandbox: Sandbox | None) -> None:
        if sandbox is None or sandbox is self._given:
            return
        if self._pool is None:
            sandbox.close()
        else:
            assert self._leased is not None
            self._pool.release(self._leased)

    def abort(self) -> None:
        """End what is held, unless it was given, and waiting for it: from any thread. `release` follows.

        A request under way fails, and so does a `take` that waits, or comes before `release`.
        """
        self._wait.cancelled = True
        if self._pool is not None:
            self._pool.cancel(self._wait)
        for held in (self.sandbox, *self._beside):
            if held is not None and held is not self._given:
                held.close()

    def _borrow(self, pool: SandboxPool, seconds: float) -> Sandbox:
        self._leased = pool.acquire(seconds, prefer=self._leased, wait=self._wait)
        return self._leased


def refuse_closed(wait: Wait) -> None:
    """Go no further in an environment that is being closed.

    Args:
        wait: The `Workplace.wait` from when the work began.

    Raises:
        SandboxError: It is.
    """
    if wait.cancelled:
        raise SandboxError("this environment is being closed")
