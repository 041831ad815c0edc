"""Calls to a server that go out together, and are given up together.

When a flight stops, at the end of its batch or at Ctrl-C, calls that wait for an answer are hung up, and none begins: a
long reply takes minutes, and may be paid for.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, overload
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from agents.policy import PolicyError

T = TypeVar("T")
R = TypeVar("R")
E = TypeVar("E", bound=Exception)

STRAGGLER_SECONDS = 2.0
"""How long the end of a batch waits for threads that were hung up."""


class Line:
    """A session of `requests`, for one thread at a time, whose sockets are at hand.

    Attributes:
        session: Sends requests.
        cut: Whether it was hung up; it is of no use then.
    """

    def __init__(self, trust_env: bool) -> None:
        self.cut = False
        self._lock = threading.Lock()
        self._sockets: WeakSet[socket.socket] = WeakSet()
        self.session = requests.Session()
        self.session.trust_env = trust_env
        for scheme in ("http://", "https://"):
            self.session.mount(scheme, _Adapter(self))

    def opened(self, made: socket.socket | None) -> None:
        """Note a socket.

        Raises:
            OSError: The line was hung up before.
        """
        if made is None:
            return
        with self._lock:
            if self.cut:
                made.close()
                raise OSError("given up")
            self._sockets.add(made)

    def hang_up(self) -> None:
        """End what is under way: whoever waits for an answer gets an error at once."""
        with self._lock:
            self.cut = True
            for made in self._sockets:
                with suppress(OSError):  # the other side was faster
                    made.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections."""
        self.session.close()


class _Adapter(HTTPAdapter):
    """Makes connections, with or without a proxy, that tell the line of their sockets."""

    def __init__(self, line: Line) -> None:
        self._classes = _pools(line)
        super().__init__()

    def init_poolmanager(self, *args: Any, **settings: Any) -> None:
        super().init_poolmanager(*args, **settings)
        self.poolmanager.pool_classes_by_scheme = self._classes

    def proxy_manager_for(self, *args: Any, **settings: Any) -> PoolManager:
        manager = super().proxy_manager_for(*args, **settings)
        manager.pool_classes_by_scheme = self._classes
        return manager


def _pools(line: Line) -> dict[str, type[HTTPConnectionPool]]:
    class Plain(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            line.opened(made)
            return made

    class Secure(HTTPSConnection):
        _early: socket.socket | None = None

        def _new_conn(self) -> socket.socket:
            made = super()._new_conn()
            self._early = made.dup()  # TLS takes the first one away before it shakes hands
            line.opened(self._early)
            return made

        def connect(self) -> None:
            try:
                super().connect()
            finally:
                if self._early is not None:
                    self._early.close()
            line.opened(self.sock)

    class PlainPool(HTTPConnectionPool):
        ConnectionCls = Plain

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = Secure

    return {"http": PlainPool, "https": SecurePool}


class GivenUp(PolicyError):
    """A call was hung up because its batch ended."""


class Flight:
    """The calls that one batch has out."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._lines: set[Line] = set()

    @contextmanager
    def holding(self, line: Line) -> Iterator[None]:
        """While inside, `stop` hangs this line up.

        Raises:
            GivenUp: The flight was stopped before.
        """
        with self._lock:
            if self.stopped.is_set():
                raise GivenUp("given up")
            self._lines.add(line)
        try:
            yield
        finally:
            with self._lock:
                self._lines.discard(line)

    def stop(self) -> None:
        """Give every call up: those that wait for an answer return at once, none starts."""
        with self._lock:
            self.stopped.set()
            for line in self._lines:
                line.hang_up()


@overload
def together(work: Callable[[T, Flight], R], items: Sequence[T], workers: int) -> list[R]: ...


@overload
def together(work: Callable[[T, Flight], R], items: Sequence[T], workers: int, *, caught: type[E]) -> list[R | E]: ...


def together(
    work: Callable[[T, Flight], R], items: Sequence[T], workers: int, *, caught: type[E] | None = None
) -> list[R | E] | list[R]:
    """`work(item, flight)` for every item, in up to `workers` threads; results in the order of the items.

    An exception of type `caught` is a result. Any other one, and Ctrl-C, is raised at once: the calls under way are
    hung up and no further one begins. Threads that do not notice in time are daemons, so that the process can end.
    """
    flight, over = Flight(), threading.Event()
    results: dict[int, R | E] = {}
    waiting = deque(enumerate(items))
    defects: list[BaseException] = []

    def run() -> None:
        while not over.is_set():
            try:
                index, item = waiting.popleft()
            except IndexError:
                return
            try:
                results[index] = work(item, flight)
            except BaseException as error:  # raised again below, in the caller's thread
                if caught is not None and isinstance(error, caught):
                    results[index] = error
                else:
                    defects.append(error)
                    over.set()
            if len(results) == len(items):
                over.set()

    count = min(max(1, workers), len(items))
    threads = [threading.Thread(target=run, daemon=True, name=f"turngym-call-{n}") for n in range(count)]
    try:
        for thread in threads:
            thread.start()
        if threads:
            over.wait()
    finally:
        over.set()
        flight.stop()
        deadline = time.monotonic() + STRAGGLER_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))
    if defects:
        raise defects[0]
    return [results[index] for index in range(len(items))]
