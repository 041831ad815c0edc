"""Ending processes and watching what they use."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

LOOK = 0.2
"""Seconds that one look at memory may take."""


class StillAlive(Exception):
    """Some process of the sandbox could not be ended: the sandbox cannot be trusted any more."""


class Processes:
    """All processes below the supervisor.

    Args:
        kill_everything: `kill(-1)` reaches the sandbox and nothing else (a PID namespace, or a Landlock domain with
            signal scope). Otherwise descendants are looked up and killed until none is left; the supervisor is their
            sub-reaper, so a daemon cannot leave the family.
    """

    def __init__(self, kill_everything: bool) -> None:
        self._kill_everything = kill_everything

    def end_all(self, seconds: float = 10.0) -> dict:
        """Kill and reap every process. Returns their wait statuses by pid.

        Raises:
            StillAlive: Something survived for `seconds`.
        """
        statuses: dict = {}
        limit = time.monotonic() + seconds
        pause = 0.0
        while True:
            self._signal(signal.SIGKILL)
            try:
                while True:
                    pid, status = os.waitpid(-1, os.WNOHANG)
                    if pid == 0:
                        break
                    statuses[pid] = status
            except ChildProcessError:
                return statuses
            if time.monotonic() > limit:
                raise StillAlive(f"processes survive SIGKILL: {self.descendants()[:5]}")
            time.sleep(pause)
            pause = min(0.02, pause + 0.0005)

    def reap(self) -> None:
        """Take note of processes that ended by themselves."""
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

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
        # What is refused is gone since the look-up, or nothing is left but processes of others.
        for target in (-1,) if self._kill_everything else self.descendants():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(target, number)

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
