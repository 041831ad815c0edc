"""The bubblewrap backend: Linux namespaces through the `bwrap` program, without root.

Inside: own user, PID, network, IPC, mount, UTS and cgroup namespaces; `/usr` of the host read-only, an `/etc` of our
own, sized memory file systems for the workspace, `/tmp` and `/dev/shm`; everything else is read-only or absent.
When the host runs as root, bwrap itself runs as the unprivileged user 65534: "root inside" is never root outside.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from pathlib import Path

from sandboxes.boot import (
    BOOTSTRAP,
    GRADER,
    GRADER_MB,
    SHM_MB,
    UID,
    WORKSPACE,
    PathAlias,
    Settings,
    bundle,
    check_workdir,
    command_line,
    system_python,
)
from sandboxes.inside.variables import environment
from sandboxes.owner import processes
from sandboxes.sandbox import Backend, Limits, SandboxUnavailable, Terms
from sandboxes.starting import launch
from sandboxes.transport import PipeTransport, refuse_terms

NOBODY = 65534
_HIDDEN = tuple(f"/proc/{name}" for name in ("cmdline", "keys", "key-users", "timer_list", "kallsyms", "config.gz"))
"""Facts about the host that no namespace hides: empty inside."""
_ETC = {
    "passwd": f"root:x:0:0:root:/root:/bin/bash\nuser:x:{UID}:{UID}:user:{{home}}:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "group": f"root:x:0:\nuser:x:{UID}:\nnogroup:x:65534:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "resolv.conf": "",
}


class BubblewrapLauncher:
    """Starts supervisors under bwrap."""

    backend = Backend.BUBBLEWRAP

    def __init__(self, limits: Limits, *, folders: tuple[str, ...] = (), background: bool = False) -> None:
        self.limits, self._folders, self._background = limits, folders, background

    def start(self, workdir: str | None) -> tuple[PipeTransport, bytes, PathAlias]:
        """See `sandboxes.transport.Launcher`."""
        bwrap = shutil.which("bwrap")
        if bwrap is None:
            raise SandboxUnavailable("the program bwrap is not installed; remedy: apt-get install bubblewrap")
        workspace = check_workdir(workdir or WORKSPACE)
        files = {name: text.replace("{home}", workspace).encode() for name, text in _ETC.items()}
        fds = {name: _memory_file(content) for name, content in files.items()}
        limits = self.limits
        try:
            transport = launch(
                [bwrap, *self._arguments(workspace, fds), "--", *command_line(system_python())],
                limits,
                user=NOBODY if os.geteuid() == 0 else None,
                files_mb=limits.workspace_mb + limits.tmp_mb + SHM_MB + GRADER_MB * (1 + len(self._folders)),
                pass_fds=list(fds.values()),
            )
        finally:
            for fd in fds.values():
                os.close(fd)
        settings = Settings(
            workspace=workspace,
            tmp="/tmp",
            grader=GRADER,
            wipe=(workspace, "/tmp", "/dev/shm", GRADER, *self._folders),
            folders=self._folders,
            background=self._background,
            limits=limits,
            env=environment(workspace, "/tmp"),
            user_processes=limits.processes,
            own_ipc=True,
            filter="namespaces",
        )
        return transport, bundle() + settings.frame(), PathAlias(workspace, workspace)

    def varied(self, limits: Limits, terms: Terms) -> BubblewrapLauncher:
        """See `sandboxes.transport.Launcher`."""
        refuse_terms(self.backend, terms)
        return BubblewrapLauncher(limits, folders=terms.folders, background=terms.background)

    def _arguments(self, workspace: str, etc: dict[str, int]) -> list[str]:
        limits = self.limits
        words = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"]
        words += ["--clearenv", "--uid", str(UID), "--gid", str(UID), "--hostname", "sandbox"]
        words += ["--ro-bind", "/usr", "/usr"]
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
            path = Path("/", name)
            if path.is_symlink():
                words += ["--symlink", os.readlink(path), str(path)]
            elif path.is_dir():
                words += ["--ro-bind", str(path), str(path)]
        words += ["--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/var"]
        for name in ("alternatives", "ld.so.cache"):
            words += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        for name, fd in etc.items():
            words += ["--perms", "0644", "--file", str(fd), f"/etc/{name}"]
        words += ["--proc", "/proc", "--dev", "/dev"]
        for hidden in _HIDDEN:
            if os.path.exists(hidden):
                words += ["--dev-bind", "/dev/null", hidden]
        words += ["--perms", "1777", "--size", str(SHM_MB << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        words += ["--perms", "1777", "--size", str(limits.tmp_mb << 20), "--tmpfs", "/tmp"]
        words += ["--symlink", "../tmp", "/var/tmp"]
        for folder in (GRADER, *self._folders):
            words += ["--perms", "0700", "--size", str(GRADER_MB << 20), "--tmpfs", folder]
        words += ["--perms", "0755", "--size", str(limits.workspace_mb << 20), "--tmpfs", workspace]
        if workspace != WORKSPACE and not workspace.startswith(WORKSPACE + "/"):
            words += ["--symlink", workspace, WORKSPACE]
        return [*words, "--cap-drop", "ALL", "--as-pid-1", "--chdir", "/", "--remount-ro", "/"]


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("sandbox-etc", os.MFD_CLOEXEC)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def sweep() -> int:
    """End what waits for a bwrap that is gone: its child, where it was killed before it let that go on.

    A host that is killed in this moment takes its bwrap along and leaves the child.

    Returns:
        How many.
    """

    def waits(path: Path) -> bool:
        words = (path / "cmdline").read_bytes().split(b"\0")
        if b"--die-with-parent" not in words or BOOTSTRAP.encode() not in words:
            return False
        _, parent, group, *_ = (path / "stat").read_text().rpartition(")")[2].split()
        return group not in (path.name, parent)  # bwrap leads a group, which its child leaves just before it runs

    ended = 0
    for pid in processes(waits):
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended, or is none of ours
            os.kill(pid, signal.SIGKILL)
            ended += 1
    return ended
