"""Ending processes and watching what they use."""

from __future__ import annotations

import os
import signal
import time

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
            for target in (-1,) if self._kill_everything else self.descendants():
                try:
                    os.kill(target, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    continue  # gone between the look-up and the kill, or only processes of others are left
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
        if self._private_bytes(pids, limit) <= memory:
            return None
        return "memory" if self._proportional_bytes(pids, limit + LOOK) > memory else None

    @staticmethod
    def _private_bytes(pids: list, limit: float) -> int:
        """Memory that processes do not share with files. Cheap; pages shared by forks count more than once."""
        total = 0
        for pid in pids:
            try:
                with open(f"/proc/{pid}/statm") as file:
                    _, resident, shared = file.read().split()[:3]
            except (FileNotFoundError, ProcessLookupError):
                continue
            total += max(0, int(resident) - int(shared))
            if time.monotonic() > limit:
                break
        return total * _PAGE

    @staticmethod
    def _proportional_bytes(pids: list, limit: float) -> int:
        """The same, with pages that forked processes share counted once. Slow, so asked only near the limit."""
        total = 0
        for pid in pids:
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    for line in file:
                        if line.startswith("Pss_Anon:"):
                            total += int(line.split()[1]) * 1024
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if time.monotonic() > limit:
                break
        return total


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


_PAGE = os.sysconf("SC_PAGE_SIZE")
