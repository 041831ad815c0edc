"""The local backend: no confinement at all, only its own folder, time-outs and resource limits.

For commands you would run yourself, on machines where nothing better works. Never chosen by `auto`. Commands can read
and write whatever you can, reach the network, and end the supervisor.
"""

from __future__ import annotations

import os
import warnings

from sandboxes.boot import system_python
from sandboxes.landlock import launch_in_folder
from sandboxes.paths import PathAlias
from sandboxes.sandbox import Backend, Limits, SandboxUnavailable
from sandboxes.transport import PipeTransport

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
