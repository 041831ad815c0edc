"""Sandboxes in a private folder on the host's disk, which landlock confines and the local backend does not."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sandboxes.boot import GRADER, WORKSPACE, PathAlias, Settings, bundle, check_workdir, command_line, system_python
from sandboxes.inside.files import wipe
from sandboxes.inside.processes import process_state
from sandboxes.inside.variables import environment
from sandboxes.owner import owner, owner_lives, processes, run_id
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxUnavailable, Terms
from sandboxes.starting import as_user, launch
from sandboxes.transport import PipeTransport, refuse_terms

# -- A private folder on the host's disk, for backends without a file system of their own (landlock, local) -----------
#     <tmp>/turngym-<n>/owner         who uses it: the token of `sandboxes.owner`, and the run it belongs to
#     <tmp>/turngym-<n>/workspace
#     <tmp>/turngym-<n>/tmp
#     <tmp>/turngym-<n>/grader        files of a grader, while it runs
#
# As root, `n` is a user id that nothing else on the machine uses (an abstract socket reserves it while its host
# lives), so that one sandbox cannot signal another or use up its processes. Otherwise `n` is `<uid>-<random>`.

FIRST_UID, LAST_UID = 64100, 64899
_SANDBOX_UIDS = range(FIRST_UID, LAST_UID + 1)
_next_user = 0
"""Where this process looks for a free one first."""
_PREFIX = "turngym-"
_UNFINISHED = 60
"""Seconds after which a folder without an owner is nobody's: its maker was killed between two calls."""
_QUIET_SECONDS = 5.0
"""What ending the processes of one sandbox may take."""
_swept = False


@dataclass(frozen=True, slots=True)
class PrivateFolder:
    """One folder and the user its commands run as.

    Attributes:
        path: The folder.
        uid: The user to run as, or None to stay who we are.
        reservation: Holds the user id; closed with the folder.
    """

    path: Path
    uid: int | None
    reservation: socket.socket | None = None

    @property
    def workspace(self) -> str:
        """Where commands work."""
        return str(self.path / "workspace")

    @property
    def tmp(self) -> str:
        """Where temporary files go."""
        return str(self.path / "tmp")

    @property
    def grader(self) -> str:
        """Where a grader's files go."""
        return str(self.path / "grader")

    def remove(self, *, strays: bool = True) -> None:
        """End the processes of its user, or those that still work in it, and remove everything.

        Args:
            strays: The supervisor may have left processes behind: look for them where no user of its own tells them.
        """
        if self.uid is not None:
            end_user(self.uid, wait=strays)
        elif strays:
            end_strays(self.path)
        for name in ("workspace", "tmp", "grader"):
            part = self.path / name
            if part.is_dir() and not part.is_symlink():
                wipe(str(part))
        with contextlib.suppress(FileNotFoundError):  # swept meanwhile
            shutil.rmtree(self.path)
        if self.reservation is not None:
            self.reservation.close()


def make_folder(*, own_user: bool) -> PrivateFolder:
    """Make a folder nobody uses. The first one of a process first removes those whose owner is gone.

    Args:
        own_user: As root, reserve a user id for it and hand it the folders.

    Raises:
        SandboxError: No free user id, or the disk refuses.
    """
    global _swept
    if not _swept:
        _swept = True
        sweep()
    base = Path(tempfile.gettempdir()).resolve()
    if own_user and os.geteuid() == 0:
        folder = _with_user(base)
        if folder is None and sweep():
            folder = _with_user(base)
        if folder is None:
            raise SandboxError(
                f"all {len(_SANDBOX_UIDS)} sandbox users are taken; close sandboxes, or remove stale {base}/{_PREFIX}*"
            )
        return folder
    path = base / f"{_PREFIX}{os.geteuid()}-{secrets.token_hex(6)}"
    os.mkdir(path, 0o700)
    return _furnish(PrivateFolder(path, None))


def _with_user(base: Path) -> PrivateFolder | None:
    """A folder with a user id of its own; None when every id is taken."""
    global _next_user
    begin = _next_user  # those before are mostly taken, by this very process
    for step in range(len(_SANDBOX_UIDS)):
        uid = _SANDBOX_UIDS[(begin + step) % len(_SANDBOX_UIDS)]
        reservation = _reserve(uid)
        if reservation is None:
            continue
        _next_user = begin + step + 1
        try:
            os.mkdir(base / f"{_PREFIX}{uid}", 0o700)
        except FileExistsError:
            reservation.close()
            continue
        end_user(uid)  # of a host that was killed a moment ago, something may still be dying
        return _furnish(PrivateFolder(base / f"{_PREFIX}{uid}", uid, reservation))
    return None


def _furnish(folder: PrivateFolder) -> PrivateFolder:
    (folder.path / "owner").write_text(f"{owner()} {run_id()}\n")
    for part in (folder.workspace, folder.tmp, folder.grader):
        os.mkdir(part, 0o755)
        if folder.uid is not None:
            os.chown(part, folder.uid, folder.uid)
    folder.path.chmod(0o711 if folder.uid is not None else 0o700)
    return folder


def sweep(run: str | None = None) -> int:
    """Remove folders whose owner is gone.

    Only our user's folders with a name as `make_folder` gives it are looked at: anything else that begins with the
    prefix may be somebody's work.

    Args:
        run: Remove all folders of this run instead, also of living owners.

    Returns:
        How many went.
    """
    removed = 0
    for path in Path(tempfile.gettempdir()).resolve().glob(_PREFIX + "*"):
        try:
            status = path.lstat()
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or not _wanted(path, status, run):
            continue
        name = path.name.removeprefix(_PREFIX)
        uid = next((uid for uid in _SANDBOX_UIDS if name == str(uid)), None) if os.geteuid() == 0 else None
        if uid is None and not re.fullmatch(rf"{os.geteuid()}-[0-9a-f]{{12}}", name):
            continue
        reservation = None if uid is None else _reserve(uid)
        if uid is not None and reservation is None and (run is None or _lives(path) is False):
            continue  # somebody uses this user id by now: with another temporary folder, or in this very place
        try:
            PrivateFolder(path, uid, reservation).remove()
            removed += 1
        except FileNotFoundError:
            continue  # another process sweeps at the same time
        finally:
            if reservation is not None:
                reservation.close()
    return removed


def _reserve(uid: int) -> socket.socket | None:
    """Take a user id for as long as the socket is open; None when another process has it."""
    taken = socket.socket(socket.AF_UNIX)
    try:
        taken.bind(f"\0turngym-sandbox-user-{uid}")
    except OSError:
        taken.close()
        return None
    return taken


def _wanted(path: Path, status: os.stat_result, run: str | None) -> bool:
    """Whether `sweep` shall remove a folder."""
    words = _owner_words(path)
    if not words:
        return run is None and time.time() - status.st_mtime >= _UNFINISHED
    # A container that shares our /tmp has process ids of its own: we cannot tell, so it counts as living.
    return run in words if run is not None else _lives(path) is False


def _lives(path: Path) -> bool | None:
    """Whether the owner of a folder lives; None when it cannot be told. A folder without an owner has none."""
    words = _owner_words(path)
    return owner_lives(words[0], here=True) if words else False


def _owner_words(path: Path) -> list[str]:
    """Token and run; empty when there is no owner, or not yet."""
    try:
        words = (path / "owner").read_text().split()
    except FileNotFoundError:
        return []
    return words


def end_strays(folder: Path) -> int:
    """Kill our processes whose directory or environment lies in a folder. Best effort. Returns how many."""
    needle = str(folder).encode() + b"/"
    marks = {b"PWD=" + needle + b"workspace", b"TMPDIR=" + needle + b"tmp"}

    def is_stray(path: Path) -> bool:
        try:
            inside = os.fsencode(os.readlink(path / "cwd")).startswith(needle)
        except FileNotFoundError:
            raise
        except OSError:  # a directory with a name too long to be told, or another user's process
            inside = False
        return inside or not marks.isdisjoint((path / "environ").read_bytes().split(b"\0"))

    killed: set[int] = set()
    _until_quiet(lambda: _processes_of(os.geteuid(), is_stray), lambda found: killed.update(map(_kill, found)))
    return len(killed)


def end_user(uid: int, *, wait: bool = False) -> None:
    """Kill every process of a user that only one sandbox uses. Needs root.

    Args:
        uid: The user.
        wait: Return only when none is left.
    """
    if uid not in _SANDBOX_UIDS:
        raise ValueError(f"user {uid} is no sandbox user")

    def end(found: object = None) -> None:
        prefix, identity = as_user(uid)
        subprocess.run([*prefix, "/bin/sh", "-c", "kill -9 -1"], check=False, stderr=subprocess.DEVNULL, **identity)

    end()
    if wait:
        _until_quiet(lambda: _processes_of(uid), end)


def _until_quiet(look: Callable[[], list[int]], end: Callable[[list[int]], None]) -> None:
    """Look and end what is found until two looks in a row find nothing: between two, something may be forked."""
    limit = time.monotonic() + _QUIET_SECONDS
    quiet = 0
    while quiet < 2 and time.monotonic() < limit:
        found = look()
        quiet = 0 if found else quiet + 1
        if found:
            end(found)
            time.sleep(0.002)


def _processes_of(uid: int, wanted: Callable[[Path], bool] | None = None) -> list[int]:
    """Processes of a user that have not ended, this one left out."""

    def is_meant(path: Path) -> bool:
        if int(path.name) == os.getpid() or path.stat().st_uid != uid or (wanted is not None and not wanted(path)):
            return False
        return process_state(int(path.name)) not in "ZX"

    return processes(is_meant)


def _kill(pid: int) -> int:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)
    return pid


# -- The local backend: no confinement at all, only its own folder, time-outs and resource limits ---------------------
# For commands you would run yourself, on machines where nothing better works. Never chosen by `auto`. Commands can
# read and write whatever you can, reach the network, and end the supervisor.

_SLACK = 256
"""Processes that the rest of a shared user may start while the sandbox lives."""
ROOT_VARIABLE = "TURNGYM_LOCAL_AS_ROOT"
_warned = False


def warn_of_no_confinement() -> None:
    """Once in a process: where it was asked for, and where it runs."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "the local sandbox backend has NO confinement: commands can read and change everything you can",
            stacklevel=3,
        )


class LocalLauncher:
    """Starts supervisors without confinement.

    Args:
        limits: What commands may use.
        allow_root: Run even as root (the same as setting the variable TURNGYM_LOCAL_AS_ROOT=1).
    """

    backend = Backend.LOCAL

    def __init__(self, limits: Limits, *, allow_root: bool = False) -> None:
        self.limits = limits
        self._allow_root = allow_root or os.environ.get(ROOT_VARIABLE) == "1"

    def start(self, workdir: str | None) -> tuple[PipeTransport, bytes, PathAlias]:
        """See `sandboxes.transport.Launcher`."""
        if os.geteuid() == 0 and not self._allow_root:
            raise SandboxUnavailable(
                "the local backend has no confinement and refuses to run as root; remedy: another user, another "
                f"backend, or allow_root=True ({ROOT_VARIABLE}=1) on a machine that may be lost"
            )
        warn_of_no_confinement()
        return launch_in_folder(self.limits, workdir, system_python(), own_user=False)

    def varied(self, limits: Limits, terms: Terms) -> LocalLauncher:
        """See `sandboxes.transport.Launcher`."""
        refuse_terms(self.backend, terms)
        return LocalLauncher(limits, allow_root=self._allow_root)


def launch_in_folder(
    limits: Limits,
    workdir: str | None,
    python: str,
    *,
    own_user: bool,
    landlock: bool = False,
    readable: tuple[str, ...] = (),
    devices: tuple[str, ...] = (),
    filter: str = "none",
) -> tuple[PipeTransport, bytes, PathAlias]:
    """Start a supervisor in a private folder; the folder goes when the transport is closed."""
    shown = check_workdir(workdir or WORKSPACE)
    folder = make_folder(own_user=own_user)
    transport = launch(
        command_line(python), limits, user=folder.uid, remove=lambda clean: folder.remove(strays=not clean)
    )
    settings = Settings(
        workspace=folder.workspace,
        tmp=folder.tmp,
        grader=folder.grader,
        wipe=(folder.workspace, folder.tmp, folder.grader),
        limits=limits,
        env=environment(folder.workspace, folder.tmp),
        user_processes=limits.processes + (0 if folder.uid is not None else _running_tasks() + _SLACK),
        disk_roots=(folder.workspace, folder.tmp, folder.grader),
        die_with_parent=True,
        landlock=landlock,
        guardian=landlock and folder.uid is None,
        readable=readable,
        devices=devices,
        filter=filter,
    )
    alias = PathAlias(shown, folder.workspace, (("/tmp", folder.tmp), (GRADER, folder.grader)))
    return transport, bundle() + settings.frame(), alias


def _running_tasks() -> int:
    """Threads of our own user right now: RLIMIT_NPROC counts them too, so the limit starts above them."""
    total = 0
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        try:
            if path.stat().st_uid == os.geteuid():
                total += sum(1 for _ in (path / "task").iterdir())
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile
    return total
