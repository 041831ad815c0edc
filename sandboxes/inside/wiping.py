"""Emptying a directory, whatever stands in it: any depth, any number of entries, any mode, and a bound on the time."""

from __future__ import annotations

import os
import time
from itertools import islice

DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
WIPE_SECONDS = 20.0
"""What a reset may take. The host waits longer."""
_BATCH = 1 << 16


class Unfinished(Exception):
    """A directory could not be emptied in its time."""


def wipe(root: str, mode: int = 0o755, seconds: float = float("inf")) -> None:
    """Empty a directory, whatever stands in it, and give it back its mode.

    Raises:
        Unfinished: It took more than `seconds`.
    """
    if os.stat(root).st_uid == os.geteuid():  # else it is the system's, and no command can have changed it
        os.chmod(root, mode)
    top = os.open(root, DIR_FLAGS)
    try:
        empty(top, time.monotonic() + seconds)
    finally:
        os.close(top)


def empty(top: int, limit: float = float("inf")) -> None:
    """Remove everything below an open directory, by the monotonic time `limit`.

    Depth costs neither recursion, PATH_MAX nor open files: one directory is open at a time, and `..` leads back up,
    which is checked. To move deep directories up first would do, too, but costs a disk more than emptying them.

    Raises:
        Unfinished: The time is over.
        OSError: Something cannot be removed, or directories move meanwhile.
    """
    fd = os.dup(top)
    above: list = []  # for each directory on the way: who it is, what of it remains, the name of the next
    try:
        remaining, whole = _strip(fd, limit)
        while True:
            if remaining:
                name = remaining.pop()
                above.append((_identity(fd), remaining, whole, name))
                os.chmod(name, 0o700, dir_fd=fd)
                child = os.open(name, DIR_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = child
            elif not whole:
                pass  # too many entries for one look
            elif above:
                identity, remaining, whole, name = above.pop()
                parent = os.open("..", DIR_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = parent
                if _identity(fd) != identity:
                    raise OSError("a directory was moved while it was emptied")
                os.rmdir(name, dir_fd=fd)
                continue
            else:
                return
            remaining, whole = _strip(fd, limit)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _strip(fd: int, limit: float) -> tuple:
    """Remove files and empty directories; the names of the others, and whether that was all there was."""
    with os.scandir(fd) as entries:
        batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _BATCH)]
    remaining = []
    for name, is_directory in batch:
        if time.monotonic() > limit:
            raise Unfinished("what the commands left behind is too much to be removed in time")
        if not is_directory:
            os.unlink(name, dir_fd=fd)
            continue
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:  # not empty; what else may be wrong with it, the caller meets again
            remaining.append(name)
    return remaining, len(batch) < _BATCH
