"""Connections that can be hung up: calls that go out together are given up together.

When a flight stops, at the end of its batch or at Ctrl-C, calls that wait for an answer are hung up, and none begins:
a long reply takes minutes, and may be paid for.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol
from weakref import WeakSet

import requests
from requests.adapters import HTTPAdapter
from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from tasks.endpoints import PolicyError


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


class Held(Protocol):
    """What a flight can end: a line, or a wait."""

    def hang_up(self) -> None:
        """Return at once, with an error or without."""


class GivenUp(PolicyError):
    """A call was hung up because its batch ended."""


class Flight:
    """The calls that one batch has out."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        self._lock = threading.Lock()
        self._held: set[Held] = set()

    @contextmanager
    def holding(self, held: Held) -> Iterator[None]:
        """While inside, `stop` hangs this up.

        Raises:
            GivenUp: The flight was stopped before.
        """
        with self._lock:
            if self.stopped.is_set():
                raise GivenUp("given up")
            self._held.add(held)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(held)

    def stop(self) -> None:
        """Give every call up: those that wait for an answer return at once, none starts."""
        with self._lock:
            self.stopped.set()
            for held in self._held:
                held.hang_up()
