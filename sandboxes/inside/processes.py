"""Processes of a command: what they use, what they print, their time, and their end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterable, Iterator

# -- Ending processes and watching what they use ----------------------------------------------------------------------

LOOK = 0.2
"""Seconds that one look at memory may take."""


SPARING = 2.0
"""Seconds in which processes are ended one by one, so that services live on; what forks faster is ended with them."""


class StillAlive(Exception):
    """Some process of the sandbox could not be ended: the sandbox cannot be trusted any more."""


class Processes:
    """All processes below the supervisor.

    Args:
        kill_everything: `kill(-1)` reaches the sandbox and nothing else (a PID namespace, or a Landlock domain with
            signal scope). Otherwise descendants are looked up and killed until none is left; the supervisor is their
            sub-reaper, so a daemon cannot leave the family.

    Attributes:
        services: Processes that live on when a command ends, with all that is below them: pid to exit code, None while
            it runs. What such a process leaves without a parent is no part of it any more, and ends with the command.
    """

    def __init__(self, kill_everything: bool) -> None:
        self._kill_everything = kill_everything
        self.services: dict = {}

    def end_all(self, seconds: float = 10.0, *, services: bool = False) -> dict:
        """Kill and reap every process but services. Returns their wait statuses by pid.

        Args:
            seconds: How long this may take. What is not ended after `SPARING` seconds takes services along.
            services: End services as well, and forget them.

        Raises:
            StillAlive: Something survived for `seconds`.
        """
        if services:
            self.services = {}
        statuses: dict = {}
        begin = time.monotonic()
        limit = begin + seconds
        pause, quiet = 0.0, 0
        while True:
            self._kill()
            ended, left = self._reaped()
            statuses.update(ended)
            if not left:
                return statuses
            if self.serving:
                quiet = 0 if self._strays() else quiet + 1
                if quiet == 2:  # once is not enough: a list of children that change may lack one
                    return statuses
                if time.monotonic() > begin + SPARING:
                    self.services = {pid: 128 + signal.SIGKILL for pid in self.services}
            if time.monotonic() > limit:
                raise StillAlive(f"processes survive SIGKILL: {self.descendants()[:5]}")
            time.sleep(pause)
            pause = min(0.02, pause + 0.0005)

    @property
    def serving(self) -> list:
        """Services that have not ended, as far as it is known."""
        return [pid for pid, code in self.services.items() if code is None]

    def reap(self) -> None:
        """Take note of processes that ended by themselves."""
        self._reaped()

    def _reaped(self) -> tuple:
        """Wait statuses of processes that have ended, by pid, and whether any other is left."""
        statuses: dict = {}
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return statuses, True
                statuses[pid] = status
                if pid in self.services:
                    self.services[pid] = exit_code(status)
        except ChildProcessError:
            return statuses, False

    def _kill(self) -> None:
        if not self.serving:
            self._signal(signal.SIGKILL)
        else:
            _send(signal.SIGKILL, self._strays())

    def _strays(self) -> list:
        """Descendants that are neither services nor below one."""
        serving = self.serving
        found = [pid for pid in _children(os.getpid()) if pid not in serving]
        for pid in found:  # grows while it is walked
            found += _children(pid)
        return found

    @contextlib.contextmanager
    def stopped(self, seconds: float = 10.0) -> Iterator:
        """Every process is stopped meanwhile, so that files do not change under a look at them.

        Raises:
            StillAlive: Something ran on for `seconds`.
        """
        limit = time.monotonic() + seconds
        waits = 0
        try:
            while True:
                self._signal(signal.SIGSTOP)
                states = {process_state(pid) for pid in self.descendants()}
                if states <= _AT_REST:
                    break
                # One that waits for a stopped child to leave vfork() does not stop, but cannot run either.
                waits = waits + 1 if states <= _AT_REST | {"D"} else 0
                if waits > 5:
                    break
                if time.monotonic() > limit:
                    raise StillAlive("processes do not stop on SIGSTOP")
                time.sleep(0.002 if waits else 0.0005)
            yield
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        _send(number, (-1,) if self._kill_everything else self.descendants())

    def descendants(self) -> list:
        """Process ids below this process, parents first."""
        return descendants_of(os.getpid())

    def excess(self, most: int, memory: int) -> str | None:
        """What the descendants have too much of: `processes`, `memory` or None.

        One look costs little however many processes there are: a fork bomb leaves the supervisor a small share of the
        machine, and it must still see the deadline. So it stops at the first process too many, and after `LOOK`
        seconds, with what it knows by then.
        """
        limit = time.monotonic() + LOOK
        pids = descendants_of(os.getpid(), most + 1, limit)
        if len(pids) > most:
            return "processes"
        if self._resident_bytes(pids, limit) <= memory:
            return None
        return "memory" if self._proportional_bytes(pids, limit + LOOK) > memory else None

    @staticmethod
    def _resident_bytes(pids: list, limit: float) -> int:
        """Memory of processes, what they share counted for each. Cheap, and never less than what they use."""
        total = 0
        for pid in pids:
            try:
                with open(f"/proc/{pid}/statm") as file:
                    total += int(file.read().split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            if time.monotonic() > limit:
                break
        return total * _PAGE

    @staticmethod
    def _proportional_bytes(pids: list, limit: float) -> int:
        """Memory that is not a file's, what processes share counted once. Slow, so asked only near the limit."""
        total = 0
        for pid in pids:
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    for line in file:
                        if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                            total += int(line.split()[1]) * 1024
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if time.monotonic() > limit:
                break
        return total


class Budget:
    """The time of a judge, counted so that a busy machine costs it nothing.

    What counts is wall time less the time that its processes waited for a core, but never less than the time that they
    had one: a judge that waits for something spends its budget as one that computes does, one that others keep from
    computing does not, and a hundred processes that wait for each other do.

    Args:
        seconds: The budget.

    Attributes:
        wall: Seconds of wall time after which it is over whatever was counted.
    """

    def __init__(self, seconds: float) -> None:
        self.wall = 10 * seconds + 60
        self._left = seconds
        self._then = time.monotonic()
        self._used = 0.0
        self._waited: dict = {}

    def over(self) -> bool:
        """Count what passed since the last look; whether the budget is spent."""
        now = time.monotonic()
        limit = now + LOOK
        used = 0.0
        waited: dict = {}
        for pid in descendants_of(os.getpid(), 1000, limit):
            try:
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                used += sum(int(field) for field in fields[11:15]) / _TICKS  # of it and of children it waited for
                for task in os.listdir(f"/proc/{pid}/task"):
                    with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                        waited[task] = int(file.read().split()[1]) / 1e9
            except (OSError, IndexError):
                continue  # it ended meanwhile, or this kernel does not count
            if time.monotonic() > limit:
                break
        ran = max(0.0, used - self._used)
        delayed = sum(max(0.0, seconds - self._waited.get(task, 0.0)) for task, seconds in waited.items())
        passed = now - self._then
        self._left -= max(ran, passed - min(passed, delayed))
        self._then, self._used, self._waited = now, max(used, self._used), waited
        return self._left < 0


def _send(number: int, targets: Iterable) -> None:
    # What is refused is gone since the look-up, or nothing is left but processes of others.
    for target in targets:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(target, number)


def descendants_of(root: int, most: int = 1 << 30, limit: float = float("inf")) -> list:
    """Process ids below `root`, parents first; stops at `most` of them or at the monotonic time `limit`."""
    found = _children(root)
    for pid in found:  # grows while it is walked
        if len(found) >= most or time.monotonic() > limit:
            break
        found += _children(pid)
    return found[:most]


def _children(pid: int) -> list:
    try:
        found = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += [int(word) for word in file.read().split()]
        return found
    except (FileNotFoundError, ProcessLookupError):
        return []


def process_state(pid: int) -> str:
    """The letter of a process's state, as in `ps`; X when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return chr(file.read().rpartition(b")")[2].split()[0][0])
    except (FileNotFoundError, ProcessLookupError):
        return "X"


_AT_REST = frozenset("TtZX")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


# -- Watching one command: its output, its time, what it uses, and its end --------------------------------------------

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

        Everything but services is ended too, unless `keep_background` and the command ended by itself.
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
