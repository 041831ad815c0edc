"""Bytes to and from a container, over the connection that an engine gives for `attach`.

What the container writes comes in frames of the engine: one byte that names the stream, three of zero, four of length.
"""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from sandboxes.transport import DeadlinePassed, TransportClosed

_HEADER = struct.Struct(">BxxxL")
_STDOUT = 1
_READ = 1 << 18
_MOST_ERRORS = 1 << 14


class AttachTransport:
    """A supervisor in a container. See `sandboxes.transport.Transport`.

    Args:
        stream: What docker-py's `attach_socket` returned; kept, because its response object holds the connection.
        ask: Called after a failure: what the engine knows about the container.
        find_pid: Asks the engine for the process id of the supervisor.
        remove: Called once, with the seconds it may take: kills and removes the container.
    """

    _closed = True  # until the object is complete, for `__del__`

    def __init__(
        self, stream: Any, ask: Callable[[], str], find_pid: Callable[[], int], remove: Callable[[float], None]
    ) -> None:
        self._stream, self._ask, self._find_pid, self._remove = stream, ask, find_pid, remove
        self._socket: socket.socket = getattr(stream, "_sock", stream)
        self._socket.setblocking(False)
        self._reader, self._writer, self._sender = select.poll(), select.poll(), select.poll()
        self._reader.register(self._socket, select.POLLIN)
        self._writer.register(self._socket, select.POLLOUT)
        # An engine whose container died ends its own half, and may read no further: nothing else would end the wait.
        self._sender.register(self._socket, select.POLLOUT | select.POLLRDHUP)
        self._raw = bytearray()
        self._left = 0  # bytes of the current frame that have not come yet
        self._kind = _STDOUT
        self._errors = bytearray()
        self._lock = threading.Lock()
        self._closed = False

    @property
    def pid(self) -> int:
        """Process id of the supervisor, on the machine of the engine; 0 when it does not run. Raises SandboxError."""
        return self._find_pid()

    def send(self, data: bytes, deadline: float) -> None:
        """See `Transport`."""
        view = memoryview(data)
        while view:
            waiter = self._sender
            try:
                view = view[self._socket.send(view) :]
                continue
            except ssl.SSLWantReadError:
                waiter = self._reader
            except (BlockingIOError, ssl.SSLWantWriteError):
                pass
            except OSError as error:
                raise TransportClosed(f"the supervisor is gone ({error})") from error
            if not (events := _wait(waiter, deadline)):
                raise DeadlinePassed("the supervisor does not read")
            if events & select.POLLRDHUP:
                raise TransportClosed("the supervisor is gone (end of its output)")

    def receive(self, deadline: float) -> bytes:
        """See `Transport`."""
        while True:
            data = self._next()
            if data:
                return data
            more = self._read(deadline)
            if not self._raw:
                self._raw = bytearray(more)
            else:
                self._raw += more

    def _read(self, deadline: float) -> bytes:
        while True:
            waiter = self._reader
            try:  # read before waiting: TLS may hold bytes that the socket no longer shows
                data = self._socket.recv(_READ)
            except ssl.SSLWantWriteError:
                waiter = self._writer
            except (BlockingIOError, ssl.SSLWantReadError):
                pass
            except OSError as error:
                raise TransportClosed(f"the supervisor is gone ({error})") from error
            else:
                if not data:
                    raise TransportClosed("the supervisor is gone (end of its output)")
                return data
            if not _wait(waiter, deadline):
                raise DeadlinePassed("the supervisor does not answer")

    def _next(self) -> bytes:
        """What the supervisor wrote, out of the bytes that came; empty when more must come first."""
        out = bytearray()
        raw = memoryview(self._raw)
        position = 0
        while position < len(raw):
            if not self._left:
                if len(raw) - position < _HEADER.size:
                    break
                self._kind, self._left = _HEADER.unpack_from(raw, position)
                position += _HEADER.size
                continue
            part = raw[position : position + self._left]
            position += len(part)
            self._left -= len(part)
            if self._kind == _STDOUT:
                out += part
            else:
                self._errors += part[: max(0, _MOST_ERRORS - len(self._errors))]
            part.release()
        raw.release()
        del self._raw[:position]
        return bytes(out)

    def ready(self) -> None:
        """See `Transport`. The engine has put the container into its group already."""

    def diagnosis(self) -> str:
        """See `Transport`."""
        if self._closed:
            return ""
        with contextlib.suppress(TransportClosed, DeadlinePassed):  # what it wrote to stderr last, as far as it came
            while True:
                self._raw += self._read(time.monotonic())
        self._next()
        said = self._errors.decode("utf-8", "replace").strip()
        return "; ".join(part for part in (said, self._ask()) if part)

    def close(self, *, patience: float = 2.0) -> None:
        """See `Transport`. The container is killed at once: nothing in it is worth waiting for."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self._remove(max(patience, 10.0))
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """End the connection. Without a host, a container that still lives ends by itself."""
        with contextlib.suppress(OSError):  # the engine may have ended it before
            self._socket.shutdown(socket.SHUT_RDWR)
        self.disown()

    def disown(self) -> None:
        """Close our copy of the connection and leave the other copies be (in a forked child, those of the parent)."""
        self._closed = True
        response = getattr(self._stream, "_response", None)
        if response is not None:
            response.close()
        self._stream.close()
        self._socket.close()

    def __del__(self) -> None:
        self.close(patience=0.5)


def _wait(waiter: select.poll, deadline: float) -> int:
    """The events that came before the deadline; 0 for none."""
    left = deadline - time.monotonic()
    found = waiter.poll(left * 1000) if left > 0 else []
    return found[0][1] if found else 0
