"""A relay of bytes in front of an engine: another address for it, and a line that can be cut or fall silent."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from typing import Self

_BYTES = 1 << 16


class Relay:
    """Listens on a TCP port of this machine and passes everything on to a unix socket.

    Args:
        engine: `unix:///path` of the engine.
        tls: Speak TLS to who connects.
    """

    def __init__(self, engine: str, tls: ssl.SSLContext | None = None) -> None:
        self._target = engine.removeprefix("unix://")
        self._tls = tls
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._flows = threading.Event()
        self._flows.set()
        self.connections = 0
        self._listen(0)
        self.port = self._server.getsockname()[1]
        self.url = f"tcp://127.0.0.1:{self.port}"

    def _listen(self, port: int) -> None:
        self._server = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return  # cut
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
        except (OSError, ssl.SSLError):  # somebody only knocked
            client.close()
            return
        target = socket.socket(socket.AF_UNIX)
        target.connect(self._target)
        with self._lock:
            self._open += [client, target]
            self.connections += 1
        for one, other in ((client, target), (target, client)):
            threading.Thread(target=self._pass, args=(one, other), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_BYTES):
                self._flows.wait()
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def silence(self) -> None:
        """Pass nothing on any more, and keep every connection."""
        self._flows.clear()

    def resume(self) -> None:
        """Pass on what waits and what comes."""
        self._flows.set()

    def cut(self) -> None:
        """End every connection and listen no more."""
        self._flows.set()
        with contextlib.suppress(OSError):  # wakes the thread in accept
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """After `cut`, listen again at the same address."""
        self._listen(self.port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.cut()
