"""The local backend: no confinement at all, only its own folder, time-outs and resource limits.

For commands you would run yourself, on machines where nothing better works. Never chosen by `auto`. Commands can read
and write whatever you can, reach the network, and end the supervisor.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from sandboxes.boot import GRADER, Settings, bundle, command_line, environment, system_python
from sandboxes.folder import make_folder
from sandboxes.paths import WORKSPACE, PathAlias, check_workdir
from sandboxes.sandbox import Backend, Limits, SandboxUnavailable
from sandboxes.transport import PipeTransport, launch

_SLACK = 256
"""Processes that the rest of a shared user may start while the sandbox lives."""
ROOT_VARIABLE = "TURNGYM_LOCAL_AS_ROOT"
_warned = False


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
        global _warned
        if os.geteuid() == 0 and not self._allow_root:
            raise SandboxUnavailable(
                "the local backend has no confinement and refuses to run as root; remedy: another user, another "
                f"backend, or allow_root=True ({ROOT_VARIABLE}=1) on a machine that may be lost"
            )
        if not _warned:
            _warned = True
            warnings.warn(
                "the local sandbox backend has NO confinement: commands can read and change everything you can",
                stacklevel=2,
            )
        return launch_in_folder(self.limits, workdir, system_python(), own_user=False)


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
