"""A control group per sandbox: the kernel's bound on the memory and the processes of everything inside it together.

Groups are made where this process may make them, and only there: as root, or in a subtree that was delegated to us.
Both versions of the kernel's interface are used, also side by side. What is allowed is found out by doing; a refusal is
no error, it means that memory is watched by the supervisor alone.

    <our own group, or in version 2 the nearest above it that hands on its controllers>/turngym-<owner>+<n>[+<run>]

In version 2 a group with processes has no groups below it. So there the groups stand beside our own, in one above it,
but never outside of a group that has limits: sandboxes are not to escape them.

The name carries the owner (see `sandboxes.owner`), so that a group whose host was killed can be told and removed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sandboxes.inside.processes import descendants_of
from sandboxes.owner import is_owner, owner, owner_lives, run_id
from sandboxes.sandbox import Limits, SandboxError

SUPERVISOR_MB = 32
"""Room in the group for the supervisor, an idle bash, and what confines them."""
SUPERVISOR_PROCESSES = 8
_PREFIX = "turngym-"
PROC = Path("/proc/self")
_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Place:
    """A group of the kernel's tree in which we may make groups.

    Attributes:
        folder: Where it is mounted.
        version: Of the interface, 1 or 2.
        controllers: What is bounded there: `memory`, `pids` or both.
    """

    folder: Path
    version: int
    controllers: tuple[str, ...]


class Group:
    """The control group of one sandbox, one folder per place."""

    def __init__(self, folders: list[tuple[Place, Path]]) -> None:
        self._folders = folders

    @property
    def folders(self) -> list[Path]:
        """Where it stands in the kernel's trees."""
        return [folder for _, folder in self._folders]

    def enter(self, pid: int) -> None:
        """Move a process and everything below it into the group. They must be idle, so that none forks meanwhile.

        Where the kernel refuses the first move of this process, the group is removed and no other is made.

        Raises:
            SandboxError: The kernel refused although it allowed it before.
        """
        global _refusal, _proven
        moved = 0
        try:
            for _, folder in self._folders:
                seen: set[int] = set()
                while new := [one for one in (pid, *descendants_of(pid)) if one not in seen]:
                    for one in new:
                        seen.add(one)
                        with contextlib.suppress(ProcessLookupError):  # the next request finds out
                            _write(folder / "cgroup.procs", str(one))
                            moved += 1
            _proven = True
        except OSError as error:
            if not _proven:
                _refusal = f"the kernel lets us make a control group, but not move a process into it ({error})"
            self.remove()  # and what was moved into it dies with it: half a bound is none
            if _proven or moved:
                raise SandboxError(f"the sandbox could not be moved into its control group: {error}") from error

    def remove(self) -> None:
        """Kill what is still in the group and remove it. Idempotent. What the kernel holds back goes with `finish`."""
        for folder in self.folders:
            if not _remove(folder, patience=0.25):
                with _lock:
                    _left.add(folder)


def make_group(limits: Limits, *, files_mb: int = 0) -> Group | None:
    """Make a group for one sandbox; None where this process may not (see `explain`).

    A command is held to `Limits.memory_mb` by the supervisor, which ends it whole. The group is what holds where that
    does not see memory, or not in time: so it is wider, twice as much (or what the supervisor needs to read a full
    workspace, if that is more), plus the memory that files occupy.

    Args:
        limits: What commands may use.
        files_mb: Size of the file systems that live in memory.

    Raises:
        SandboxError: The kernel refused although it allowed it before.
    """
    for last in (False, True):
        places = _allowed_places()
        if _refusal or not places:
            return None
        run = run_id()
        name = f"{_PREFIX}{owner()}+{next(_serial)}" + (f"+{run}" if run != owner() else "")
        made: list[tuple[Place, Path]] = []
        try:
            for place in places:
                made.append((place, place.folder / name))
                _make(place, name, memory_bytes(limits, files_mb), limits.processes + SUPERVISOR_PROCESSES)
        except OSError as error:
            for _, folder in made:
                _remove(folder, patience=0.0)
            if last:
                raise SandboxError(f"no control group could be made: {error}") from error
            _forget()  # perhaps somebody moved this process to another group: look again
            continue
        return Group(made)
    raise AssertionError("unreachable")


def memory_bytes(limits: Limits, files_mb: int = 0) -> int:
    """The bound on the memory of one sandbox, in bytes."""
    reading = 4 * limits.workspace_mb  # contents, their body, the frame, and one copy on the way
    return max(2 * limits.memory_mb, reading) + SUPERVISOR_MB + files_mb << 20


def explain() -> str:
    """One line for people: what control groups bound here, or why they bound nothing."""
    places = _allowed_places()
    if _refusal or not places:
        return f"no control group: {_refusal or 'not allowed'}"
    return "; ".join(f"{' and '.join(p.controllers)} bounded in {p.folder} (version {p.version})" for p in places)


def sweep(run: str | None = None) -> int:
    """Remove groups whose owner is gone, wherever this machine's trees are mounted, with the processes in them.

    Args:
        run: Remove all groups of this run instead, also of living owners.

    Returns:
        How many sandboxes' groups went.
    """
    gone: set[str] = set()
    for top in {mount.point for mount in _mounts()}:
        for folder, names, _ in os.walk(top):
            gone |= _sweep_folder(Path(folder), run, names)
            names[:] = [name for name in names if not name.startswith(_PREFIX)]
    return len(gone)


def finish() -> None:
    """Remove groups that the kernel held back when their sandbox was closed. Called when the host ends."""
    with _lock:
        _left.difference_update([folder for folder in _left if _remove(folder, patience=2.0)])


# --- where -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mount:
    version: int
    controllers: tuple[str, ...]
    root: str
    point: str


_lock = threading.Lock()
_serial = itertools.count(1)
_places: list[Place] | None = None
_refusal = ""
_proven = False
_left: set[Path] = set()


def _allowed_places() -> list[Place]:
    global _places, _refusal
    with _lock:
        if _places is None:
            _places, reasons = [], []
            wanted = set(_CONTROLLERS)
            for place in _candidates():
                if not wanted & set(place.controllers):
                    continue
                place = Place(place.folder, place.version, tuple(c for c in place.controllers if c in wanted))
                reason = _try(place)
                if reason:
                    reasons.append(reason)
                    continue
                wanted -= set(place.controllers)
                _places.append(place)
                _sweep_folder(place.folder, None, os.listdir(place.folder))
            if not _places:
                _refusal = "; ".join(reasons) or "neither version of the interface is mounted with `memory` and `pids`"
        return _places


def _forget() -> None:
    global _places
    with _lock:
        _places = None


def _candidates() -> list[Place]:
    """Where groups could be made, best first: our own; in version 2 also those above it, up to the first limit."""
    found: list[Place] = []
    own = _own_groups()
    for mount in _mounts():
        path = own.get("" if mount.version == 2 else mount.controllers[0])
        if path is None:
            continue
        inside = os.path.relpath(path, mount.root)
        if inside.startswith(".."):
            continue  # the part of the tree that is mounted here does not hold us
        folder = Path(os.path.normpath(os.path.join(mount.point, inside)))
        above = [one for one in folder.parents if one.is_relative_to(mount.point)] if mount.version == 2 else []
        for one in (folder, *above):
            found.append(Place(one, mount.version, _offered(one, mount)))
            if _is_limited(one):
                break
    return found


def _is_limited(folder: Path) -> bool:
    """Whether a group of version 2 bounds what is in it: sandboxes outside of it would escape that.

    Its number of processes does not count: systemd bounds that everywhere, and each sandbox has a bound of its own.
    """
    for name in ("memory.max", "memory.high", "memory.swap.max", "cpu.max", "cpuset.cpus"):
        with contextlib.suppress(OSError):  # the root, or a controller that is not used here
            words = (folder / name).read_text().split()
            if words and words[0] != "max":
                return True
    return False


def _offered(folder: Path, mount: _Mount) -> tuple[str, ...]:
    """Which controllers a group has."""
    if mount.version == 1:
        return mount.controllers
    try:
        offered = (folder / "cgroup.controllers").read_text().split()
    except OSError:
        return ()  # hidden from us
    return tuple(c for c in _CONTROLLERS if c in offered)


def _try(place: Place) -> str:
    """Why groups cannot be made in a place; empty when they can."""
    try:
        if place.version == 2:
            handed_on = (place.folder / "cgroup.subtree_control").read_text().split()
            if missing := [c for c in place.controllers if c not in handed_on]:
                # Refused while processes live in the group itself, unless it is the root of the tree.
                _write(place.folder / "cgroup.subtree_control", " ".join(f"+{c}" for c in missing))
        name = f"{_PREFIX}{owner()}+0"
        try:
            _make(place, name, 1 << 30, 1 << 10)
        finally:
            _remove(place.folder / name, patience=0.0)
    except OSError as error:
        return f"{place.folder}: {error.strerror}"
    return ""


def _mounts() -> list[_Mount]:
    """Every mounted tree of version 2, and those of version 1 that have a controller of ours."""
    found = []
    for line in (PROC / "mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            _, _, _, root, point, *_ = (re.sub(r"\\(\d{3})", _octal, word) for word in left.split())
            controllers = (
                _CONTROLLERS if kind == "cgroup2" else tuple(c for c in _CONTROLLERS if c in options.split(","))
            )
            if controllers:
                found.append(_Mount(2 if kind == "cgroup2" else 1, controllers, root, point))
    return found


def _octal(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def _own_groups() -> dict[str, str]:
    """Path of our own group by controller; that of version 2 under the empty name."""
    found = {}
    for line in (PROC / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


# --- making and removing ---------------------------------------------------------------------------------------------


def _make(place: Place, name: str, memory: int, processes: int) -> None:
    """Make one folder of a group and set its limits. Raises OSError."""
    folder = place.folder / name
    os.mkdir(folder)
    if "memory" in place.controllers:
        _write(folder / ("memory.limit_in_bytes" if place.version == 1 else "memory.max"), str(memory))
        swap, value = ("memory.memsw.limit_in_bytes", str(memory)) if place.version == 1 else ("memory.swap.max", "0")
        if (folder / swap).exists():  # absent where the kernel does not account for swap
            _write(folder / swap, value)
    if "pids" in place.controllers:
        _write(folder / "pids.max", str(processes))


def _write(path: Path, text: str) -> None:
    """Write to a file of the kernel in one call. Raises OSError that names the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(fd)


def _remove(folder: Path, patience: float) -> bool:
    """Kill the processes of a group and remove it; False when the kernel still holds it after `patience` seconds."""
    limit = time.monotonic() + patience
    pause = 0.0005
    while True:
        try:
            os.rmdir(folder)
            return True
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > limit:  # busy: processes are in it, or still dying
                return False
        for pid in _members(folder):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(0.02, 2 * pause)


def _members(folder: Path) -> list[int]:
    try:
        words = (folder / "cgroup.procs").read_text().split()
    except OSError:
        return []  # it went meanwhile
    return [pid for pid in map(int, words) if pid not in (0, os.getpid())]  # 0: of another pid namespace


def _sweep_folder(parent: Path, run: str | None, names: list[str]) -> set[str]:
    gone = set()
    for name in names:
        if not name.startswith(_PREFIX):
            continue
        token, *rest = name.removeprefix(_PREFIX).split("+")
        if not is_owner(token) or not rest:
            continue
        wanted = run in (token, *rest[1:]) if run is not None else owner_lives(token, here=True) is False
        if wanted and _remove(parent / name, patience=2.0):
            gone.add(name)
    return gone


def _forget_groups() -> None:
    """In a forked copy of a process: its groups belong to the original."""
    global _lock
    _lock = threading.Lock()
    _left.clear()


os.register_at_fork(after_in_child=_forget_groups)
