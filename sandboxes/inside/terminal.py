"""Interactive programs: a pseudo-terminal inside the sandbox, its bytes in frames."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import termios

from sandboxes.inside.processes import Processes, exit_code
from sandboxes.inside.shell import Shell


class Terminal:
    """Runs one program on a pseudo-terminal until it ends or the host ends it.

    Frames to the host: `{"event": "started"}`, `{"event": "output"}` with bytes. Frames from the host:
    `{"op": "input"}` with bytes, `{"op": "resize", "rows": r, "columns": c}`, `{"op": "end"}`.
    """

    def __init__(self, shell: Shell, processes: Processes, send: object, receive: object, pending: object) -> None:
        self._shell, self._processes = shell, processes
        self._send, self._receive, self._pending = send, receive, pending

    def run(self, program: bytes, rows: int, columns: int) -> dict:
        """Run it to its end; returns the facts of the final reply. The shell's state is used, not changed.

        Raises:
            HostGone: The host closed its end.
        """
        self._shell.stand_down()
        master, slave = os.openpty()
        fds = [master, slave]
        waiting = None
        try:
            _resize(slave, rows, columns)
            waiting = self._shell.start(self._shell.state, slave)
            pid = waiting.pid
            waiting.wake(program)
            os.close(fds.pop(1))
            os.set_blocking(master, False)
            self._send({"event": "started"})  # type: ignore[operator]
            status = self._relay(pid, master)
        finally:
            statuses = self._processes.end_all()
            for fd in fds:
                os.close(fd)
            if waiting is not None:
                waiting.close()
        return {"exit_code": exit_code(statuses.get(pid, 9) if status is None else status)}

    def _relay(self, pid: int, master: int) -> int | None:
        """Pass bytes both ways; the wait status, or None when the host asked for the end."""
        poller = select.poll()
        poller.register(0, select.POLLIN)
        to_program = bytearray()
        total, open_master = 0, True
        watch = self._shell.watch({})
        while True:
            if open_master:
                poller.register(master, select.POLLIN | (select.POLLOUT if to_program else 0))
            ready = dict(poller.poll(20))
            if ready.get(0) or self._pending():  # type: ignore[operator]
                head, body = self._receive()  # type: ignore[operator]
                if head.get("op") == "end":
                    return None
                if head.get("op") == "resize" and open_master:
                    _resize(master, head["rows"], head["columns"])
                to_program += body
            if open_master and ready.get(master):
                if to_program and ready[master] & select.POLLOUT:
                    del to_program[: _write(master, to_program)]
                data = _read(master)
                if data:
                    total += len(data)
                    self._send({"event": "output"}, data)  # type: ignore[operator]
                elif data is not None:
                    open_master = False
                    poller.unregister(master)
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                while open_master and (data := _read(master)):
                    self._send({"event": "output"}, data)  # type: ignore[operator]
                return status
            watch.why = "flood" if total > self._shell.flood_bytes else watch.look()
            if watch.why:
                self._send({"event": "output"}, watch.note().replace(b"\n", b"\r\n"))  # type: ignore[operator]
                return None


def _read(master: int) -> bytes | None:
    """Bytes of the program, None when there are none now, empty when every writer is gone."""
    try:
        return os.read(master, 1 << 16)
    except BlockingIOError:
        return None
    except OSError as error:
        if error.errno == errno.EIO:
            return b""
        raise


def _write(master: int, data: bytearray) -> int:
    try:
        return os.write(master, data)
    except BlockingIOError:
        return 0
    except OSError as error:
        if error.errno == errno.EIO:
            return len(data)  # nobody reads any more
        raise


def _resize(fd: int, rows: int, columns: int) -> None:
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
