"""Who a folder, a cgroup or a container belongs to, so that what a killed host left behind can be told and removed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

RUN_VARIABLE = "TURNGYM_RUN_ID"
_RUN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOKEN = re.compile(r"([0-9]{1,10})-([0-9]{1,20})-([0-9a-f]{8})-([0-9]{1,20})")
_mine = ""


def owner() -> str:
    """The token of this process: `<pid>-<start in clock ticks>-<boot id, 8 hex digits>-<pid namespace>`.

    Holds only `0-9`, `a-f` and `-`. A forked copy of a process has a token of its own.
    """
    global _mine
    if not _mine:
        _mine = f"{os.getpid()}-{_started(os.getpid())}-{_boot()}-{_namespace()}"
    return _mine


def is_owner(token: str) -> bool:
    """Whether a text has the form of a token."""
    return _TOKEN.fullmatch(token) is not None


def owner_lives(token: str, *, here: bool = False) -> bool | None:
    """Whether the process behind a token still lives.

    Args:
        token: What `owner()` answered there.
        here: It was found in something that only this machine can have made (a folder of its own disk, a cgroup of its
            own kernel). A token of another boot is then one of the past. Leave it False for what other machines
            reach too, such as the containers of an engine.

    Returns:
        True: it lives. False: it is gone for sure. None: it cannot be told from here (another machine, another pid
        namespace, a process that `/proc` hides from us, or no token at all).
    """
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    pid, started, boot, namespace = match.groups()
    if boot != _boot():
        return False if here else None
    if namespace != _namespace():
        return None
    found = _started(int(pid))
    if found:
        return found == started
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return None  # /proc is mounted with hidepid: it is somebody's, but perhaps another process by now
    return _started(int(pid)) == started  # a zombie, or one that came into being between the two looks


def run_id() -> str:
    """The name under which everything of this run can be removed: the variable TURNGYM_RUN_ID, else `owner()`.

    Raises:
        ValueError: The variable holds something else than 1 to 64 letters, digits, `_`, `.` and `-`.
    """
    run = os.environ.get(RUN_VARIABLE)
    if not run:
        return owner()
    if not _RUN.fullmatch(run):
        raise ValueError(f"{RUN_VARIABLE}={run!r} is no run id; use 1 to 64 letters, digits, '_', '.' and '-'")
    return run


def processes(wanted: Callable[[Path], bool]) -> list[int]:
    """Processes that are wanted, by their folders in `/proc`; one that ends meanwhile, or is none of ours, is not."""
    found = []
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if wanted(path):
                found.append(int(path.name))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended, or is none of ours
    return found


@cache
def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text()[:8]


def _namespace() -> str:
    return str(os.stat("/proc/self/ns/pid").st_ino)


def _started(pid: int) -> str:
    """When a process started, in clock ticks since boot; empty when it is gone or hidden.

    Guards against reused process ids. A zombie whose threads are all gone has ended, though nobody has waited for it.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if words[0] in "ZX" and len(os.listdir(f"/proc/{pid}/task")) <= 1:
            return ""
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return words[19]


def _forget() -> None:
    global _mine
    _mine = ""


os.register_at_fork(after_in_child=_forget)
