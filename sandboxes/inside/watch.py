"""Watching one command: its output, its time, what it uses, and its end."""

from __future__ import annotations

import os
import select
import signal
import time

from sandboxes.inside.processes import Budget, Processes

TICK = 0.05
"""Seconds between two looks at memory and disk while a command runs."""
LINGER = 0.05
"""Seconds that output of processes which outlive their bash (`> >(sort)`) is still collected, before they end."""

MAX_FILES = 32_768
"""Files and directories that may stand in one place that commands write to."""


class HostGone(Exception):
    """The host closed its end: everything stops."""


class Capture:
    """The head and the tail of a stream, and how long it was."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail, self.total = bytearray(), bytearray(), 0

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def cut(self) -> int:
        """How many bytes are missing in the middle."""
        return max(0, self.total - 2 * self._half)

    def value(self) -> bytes:
        """Head, a marker where bytes are missing, tail."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        marker = b"\n[... %d bytes not shown ...]\n" % self.cut if self.cut else b""
        return bytes(self._head) + marker + tail


class Watch:
    """Collects the output of one command and ends it when it must end.

    Args:
        settings: The supervisor's.
        processes: How processes are counted and ended.
        captures: Where what is read from a descriptor goes.
        budget: Ends the command when it is spent, before the deadline does.

    Attributes:
        why: None, or what ended it before its time: `timeout`, `flood`, `processes`, `memory`, `disk`, `files`.
    """

    def __init__(self, settings: dict, processes: Processes, captures: dict, budget: Budget | None = None) -> None:
        self._settings, self._processes, self.captures, self._budget = settings, processes, captures, budget
        self.why: str | None = None
        self._before = [os.statvfs(root) for root in settings["wipe"]]
        self._next_look = time.monotonic() + TICK

    def note(self) -> bytes:
        """One line for stderr about a command that was ended for what it used."""
        s = self._settings
        return {
            "flood": b"\n[killed: more than %d bytes of output]\n" % s["flood_bytes"],
            "processes": b"\n[killed: more than %d processes]\n" % s["processes"],
            "memory": b"\n[killed: more than %d MB of memory]\n" % s["memory_mb"],
            "disk": b"\n[killed: more than %d MB of files]\n" % s["workspace_mb"],
            "files": b"\n[killed: more than %d files]\n" % MAX_FILES,
        }.get(self.why or "", b"")

    def until_over(self, pid: int, deadline: float, keep_background: bool) -> int:
        """Wait for the end of `pid`, and return the exit code as bash would report it.

        Everything else is ended too, unless `keep_background` and the command ended by itself.
        """
        poller = select.poll()
        poller.register(0, 0)  # only to learn that the host is gone
        open_fds = set(self.captures)
        for fd in open_fds:
            os.set_blocking(fd, False)
            poller.register(fd, select.POLLIN)
        ended = _end_of(pid)
        if ended is not None:
            poller.register(ended, select.POLLIN)
        status, statuses, over = None, {}, False
        try:
            while open_fds or status is None:
                now = time.monotonic()
                if now >= deadline:
                    self.why = "timeout" if status is None else None
                    break
                wait = min(deadline, self._next_look) - now if ended is not None else 0.005
                for fd, _ in poller.poll(max(0.0, wait) * 1000):
                    if fd == 0:
                        raise HostGone
                    if fd in open_fds and not self._collect(fd):
                        open_fds.discard(fd)
                        poller.unregister(fd)
                if status is None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    status = os.waitpid(pid, 0)[1]
                    if ended is not None:
                        poller.unregister(ended)
                    deadline = min(deadline, time.monotonic() + LINGER)
                if sum(capture.total for capture in self.captures.values()) > self._settings["flood_bytes"]:
                    self.why = "flood"
                    break
                self.why = self.look() if status is None else None  # one that has ended cannot be ended for it
                if self.why:
                    break
            over = True
        finally:
            if not (over and keep_background and self.why is None):
                statuses = self._processes.end_all()
            if ended is not None:
                os.close(ended)
        for fd in open_fds:
            while self._collect(fd):
                pass
        if status is None:
            status = statuses.get(pid, signal.SIGKILL)
        return exit_code(status)

    def _collect(self, fd: int) -> bool:
        """Read once; False at the end of the stream (or, after everything was killed, when it is dry)."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self.captures[fd].feed(data)
        return bool(data)

    def look(self) -> str | None:
        """What was used too much by now, or None. Looks every `TICK` seconds at most, seldom where it takes long."""
        begin = time.monotonic()
        if begin < self._next_look:
            return None
        why = self._used_too_much()
        end = time.monotonic()
        self._next_look = end + max(TICK, 4 * (end - begin))  # looking must not starve the deadline
        return why

    def _used_too_much(self) -> str | None:
        s = self._settings
        if self._budget is not None and self._budget.over():
            return "timeout"
        why = self._processes.excess(s["processes"], s["memory_mb"] << 20)
        if why is not None:
            return why
        most = s["workspace_mb"] + s["tmp_mb"] << 20
        for index, root in enumerate(s["wipe"]):
            then, now = self._before[index], os.statvfs(root)
            if root not in s["disk_roots"]:  # a file system of its own, with a size of its own
                if now.f_files - now.f_ffree > MAX_FILES and now.f_ffree < then.f_ffree:
                    return "files"
                continue  # one that removes what another made may take its time
            # Others use this disk, too: only when it fills up is it worth the time to count what is ours.
            grown = (then.f_bavail - now.f_bavail) * now.f_frsize
            if grown > most or then.f_ffree - now.f_ffree > MAX_FILES // 4:
                size, files = _used(root, most)
                if size > most or files > MAX_FILES:
                    return "disk" if size > most else "files"
        return None


def _used(root: str, most: int) -> tuple:
    """Bytes and entries below a directory; counts no further than to more than `most` bytes or MAX_FILES entries."""
    size = files = 0
    todo = [root]
    while todo and size <= most and files <= MAX_FILES:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if files > MAX_FILES:
                        break
                    files += 1
                    size += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # removed or closed while we look, or deeper than PATH_MAX
    return size, files


def exit_code(status: int) -> int:
    """A wait status as bash reports it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # older Python or kernel: the loop polls instead
