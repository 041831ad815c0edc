"""How a supervisor starts as a child: room for open files, the thread that starts it, its user, its control group."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import queue
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from sandboxes import cgroup
from sandboxes.sandbox import Limits, SandboxError, SandboxUnavailable
from sandboxes.transport import PipeTransport

DESCRIPTORS = 8
"""Open files that one sandbox costs its host: pipes or a connection, its stderr, its user, and what a start needs."""
_OTHERS = 128
"""Open files that the rest of this process may want meanwhile."""


def make_room(sandboxes: int = 1) -> None:
    """Raise the soft limit of open files as far as this many more sandboxes need, up to the hard limit.

    Commands have a limit of their own, which does not depend on ours.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # full already, or forbidden: the start that finds no room says so
        need = len(os.listdir("/proc/self/fd")) + DESCRIPTORS * sandboxes + _OTHERS
        if soft != resource.RLIM_INFINITY and need > soft:
            most = need if hard == resource.RLIM_INFINITY else min(need, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def no_room(error: OSError) -> SandboxUnavailable | None:
    """What to tell where an error says that this process, or the machine, has no open file left; else None."""
    if error.errno == errno.ENFILE:
        return SandboxUnavailable("the machine has no open file left; remedy: raise fs.file-max, or fewer sandboxes")
    if error.errno != errno.EMFILE:
        return None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return SandboxUnavailable(
        f"no room for another sandbox: this process may open {hard} files; remedy: raise the hard limit (`ulimit -Hn` "
        "as root, LimitNOFILE= of a service, --ulimit nofile= of a container), or have fewer sandboxes"
    )


class _Starter:
    """One thread per process that starts every child.

    The kernel sends a parent-death signal when the *thread* that started a child ends. A sandbox opened on a worker
    thread must not die with that worker, so all children are started here, on a thread that ends with the process.
    """

    def __init__(self) -> None:
        self._owner = 0
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._lock = threading.Lock()

    def run(self, job: Callable[[], Any]) -> Any:
        with self._lock:
            if self._owner != os.getpid():  # the first call, or the first after a fork, which copies no threads
                self._owner = os.getpid()
                self._jobs = queue.SimpleQueue()
                threading.Thread(target=self._loop, args=(self._jobs,), name="sandbox-starter", daemon=True).start()
            jobs = self._jobs
        future: Future[Any] = Future()
        jobs.put((future, job))
        return future.result()

    @staticmethod
    def _loop(jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]) -> None:
        while True:
            future, job = jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:  # handed to the caller, who waits for it
                future.set_exception(error)


_starter = _Starter()


def as_user(uid: int | None) -> tuple[list[str], dict[str, Any]]:
    """What makes a child run as another user: the beginning of its command line, and arguments of `Popen`.

    With `user=` Popen forks, which copies the page tables of a process that holds a GPU for tens of milliseconds, while
    no thread of it runs; without, the child shares them until it is the new program.
    """
    if uid is None:
        return [], {}
    if program := _setpriv():
        return [program, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--"], {}
    return [], {"user": uid, "group": uid, "extra_groups": []}


@functools.cache
def _setpriv() -> str | None:
    """The program of util-linux that does it, where there is one (a smaller one of that name knows fewer options)."""
    program = shutil.which("setpriv")
    if program is None or os.geteuid() != 0:
        return None
    trial = [program, "--reuid=0", "--regid=0", "--clear-groups", "--", "true"]
    works = subprocess.run(trial, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0
    return program if works else None


def start_process(
    argv: Sequence[str], *, user: int | None, pass_fds: Sequence[int] = (), errors: int, cwd: str = "/"
) -> subprocess.Popen[bytes]:
    """Start a child with piped input and output, as another user when `user` is given (only root can).

    Raises:
        OSError: It could not be started.
    """
    prefix, identity = as_user(user)
    return _starter.run(
        lambda: subprocess.Popen(
            [*prefix, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            bufsize=0,
            pass_fds=list(pass_fds),
            cwd=cwd,
            env={"LC_ALL": "C.UTF-8"},
            start_new_session=True,
            **identity,
        )
    )


def launch(
    argv: Sequence[str],
    limits: Limits,
    *,
    user: int | None,
    files_mb: int = 0,
    pass_fds: Sequence[int] = (),
    remove: Callable[[bool], None] | None = None,
) -> PipeTransport:
    """Start a supervisor as a child in a control group of its own, where there can be one.

    Args:
        argv: The command line, the confining program first.
        limits: What commands may use.
        user: Who it runs as; None: as we do.
        files_mb: Size of its file systems in memory.
        pass_fds: Descriptors that the child inherits.
        remove: Called once at the end, also where nothing started; with whether it ended by itself and cleanly.

    Raises:
        SandboxError: It could not be started; nothing is left.
    """
    errors = os.memfd_create("sandbox-stderr", os.MFD_CLOEXEC)  # read only when something failed
    group: cgroup.Group | None = None

    def cleanup(clean: bool) -> None:
        if group is not None:
            group.remove()
        if remove is not None:
            remove(clean)

    try:
        group = cgroup.make_group(limits, files_mb=files_mb)
        process = start_process(argv, user=user, pass_fds=pass_fds, errors=errors)
    except (OSError, SandboxError) as error:
        os.close(errors)
        cleanup(False)
        raise SandboxError(f"{os.path.basename(argv[0])} could not be started: {error}") from error
    return PipeTransport(process, errors, cleanup, None if group is None else group.enter)
