"""The landlock backend: Landlock, seccomp and resource limits. No package, no root, no namespaces.

Works inside default containers, where bubblewrap cannot. It does not hide the host's processes (`/proc`), has no
process table or IPC of its own, and gives the workspace a real path that is rewritten to look like `/workspace`.
docs/sandboxes.md lists what it does not hold.
"""

from __future__ import annotations

import sys

from sandboxes.boot import PathAlias, system_python
from sandboxes.inside.kernel import landlock_abi
from sandboxes.local import launch_in_folder
from sandboxes.sandbox import Backend, Limits, SandboxUnavailable, Terms
from sandboxes.transport import PipeTransport, refuse_terms

_READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc"),
    *(f"/etc/{name}" for name in ("passwd", "group", "nsswitch.conf", "hosts", "ld.so.cache", "ld.so.conf")),
    *(f"/etc/{name}" for name in ("ld.so.conf.d", "alternatives", "localtime", "os-release", "mime.types", "magic")),
)
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

    def varied(self, limits: Limits, terms: Terms) -> LandlockLauncher:
        """See `sandboxes.transport.Launcher`."""
        refuse_terms(self.backend, terms)
        return LandlockLauncher(limits)
