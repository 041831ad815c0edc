"""The landlock backend: Landlock, seccomp and resource limits. No package, no root, no namespaces.

Works inside default containers, where bubblewrap cannot. It does not hide the host's processes (`/proc`), has no
process table or IPC of its own, and gives the workspace a real path that is rewritten to look like `/workspace`.
docs/sandboxes.md lists what it does not hold.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sandboxes.boot import GRADER, Settings, bundle, command_line, environment, system_python
from sandboxes.folder import make_folder
from sandboxes.inside.kernel import landlock_abi
from sandboxes.paths import WORKSPACE, PathAlias, check_workdir
from sandboxes.sandbox import Backend, Limits, SandboxUnavailable
from sandboxes.transport import PipeTransport, launch

_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc"),
    *(f"/etc/{name}" for name in ("passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache", "ld.so.conf")),
    *(f"/etc/{name}" for name in ("ld.so.conf.d", "alternatives", "localtime", "os-release", "mime.types", "magic")),
)
_SLACK = 256
"""Processes that the rest of a shared user may start while the sandbox lives."""
_DEVICES = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty"))


class LandlockLauncher:
    """Starts supervisors whose commands enter a Landlock domain."""

    backend = Backend.LANDLOCK

    def __init__(self, limits: Limits) -> None:
        self.limits = limits

    def start(self, workdir: str | None) -> tuple[PipeTransport, bytes, PathAlias]:
        """See `sandboxes.transport.Launcher`."""
        if not sys.platform.startswith("linux") or not landlock_abi():
            raise SandboxUnavailable(
                "this kernel has no Landlock; remedy: Linux 5.13 or newer with `landlock` in the lsm= boot parameter"
            )
        python = system_python()
        readable = _READABLE if python.startswith(("/usr", "/bin")) else (*_READABLE, sys.base_prefix)
        return launch_in_folder(
            self.limits,
            workdir,
            python,
            own_user=True,
            landlock=True,
            readable=readable,
            devices=_DEVICES,
            filter="sockets",
        )


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
