"""Bytes between the host and one supervisor, and its end; work that Ctrl-C must not leave half done."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from sandboxes import cgroup
from sandboxes.boot import PathAlias
from sandboxes.inside.processes import descendants_of, process_state
from sandboxes.sandbox import MOUNTS_FOLDERS, Backend, Limits, SandboxError, SandboxUnavailable, Terms

# -- Work that Ctrl-C must not leave half done: ending sandboxes ------------------------------------------------------


def uninterrupted(work: Callable[[], None]) -> None:
    """Do `work` to its end, whatever signals arrive; what they raise, and what the work raises, is raised afterwards.

    Signal handlers run on the main thread, so the work runs on another one and the caller waits for it.
    """
    raised: list[BaseException] = []
    begun, over = threading.Lock(), threading.Event()

    def do() -> None:
        if not begun.acquire(blocking=False):
            return
        try:
            work()
        except BaseException as error:  # handed to the caller
            raised.append(error)
        finally:
            over.set()

    signalled: BaseException | None = None
    thread: threading.Thread | None = None
    while not over.is_set():
        try:
            # A start that is interrupted may have happened or not: whichever thread comes first does the work.
            if not begun.locked():
                thread = threading.Thread(target=do, name="turngym-close")
                thread.start()
            over.wait()  # not join(): once interrupted, Python 3.11 takes the thread for dead
        except RuntimeError:  # no thread can be started
            do()
        except BaseException as error:  # Ctrl-C, or what somebody's handler raises
            signalled = signalled or error
    try:
        if thread is not None:
            thread.join(1)  # the work is over: nobody shall still see its thread
    except BaseException as error:  # as above, or a start that failed
        signalled = signalled or (None if isinstance(error, RuntimeError) else error)
    if raised:
        raise raised[0]
    if signalled is not None:
        raise signalled


# -- Bytes between the host and one supervisor: the part that differs between a local process and a container ---------


class TransportClosed(SandboxError):
    """The other end is gone."""


class DeadlinePassed(SandboxError):
    """The host's own deadline passed: the supervisor does not answer."""


class Transport(Protocol):
    """One running supervisor."""

    def send(self, data: bytes, deadline: float) -> None:
        """Write all bytes before `deadline` (monotonic seconds). Raises TransportClosed, DeadlinePassed."""

    def receive(self, deadline: float) -> bytes:
        """Some bytes, at least one. Raises TransportClosed, DeadlinePassed."""

    def ready(self) -> None:
        """Called once, when the supervisor has answered its first ping and has run nothing yet. Raises SandboxError."""

    def diagnosis(self) -> str:
        """What the supervisor or its confinement printed about a failure; may be empty."""

    def close(self, *, patience: float = 2.0) -> None:
        """Close the input, wait `patience` seconds for the end, then kill. Leaves nothing. Idempotent."""


class Launcher(Protocol):
    """Starts supervisors of one backend."""

    backend: Backend
    limits: Limits

    def start(self, workdir: str | None) -> tuple[Transport, bytes, PathAlias]:
        """Start one. Returns the transport, the first bytes to send to it, and how its paths are shown.

        Raises:
            SandboxUnavailable: This backend cannot work here.
            SandboxError: It could not be started this time.
        """

    def varied(self, limits: Limits, terms: Terms) -> Launcher:
        """A launcher like this one with other limits, and what else the terms ask for but variables.

        Raises:
            SandboxUnavailable: They ask for what this backend has not.
        """


def refuse_terms(backend: Backend, terms: Terms) -> None:
    """Refuse what docker alone can give, and what needs namespaces where there are none. Raises SandboxUnavailable."""
    if terms.image is not None:
        raise SandboxUnavailable(
            f"the {backend} sandbox has no images, and {terms.image!r} is asked for; remedy: docker"
        )
    if terms.network:
        raise SandboxUnavailable(f"the {backend} sandbox has no network, and a judge asks for one; remedy: docker")
    if (terms.folders or terms.background) and backend not in MOUNTS_FOLDERS:
        what = f"cannot mount {', '.join(terms.folders)}" if terms.folders else "has no processes of its own"
        raise SandboxUnavailable(f"the {backend} sandbox {what}; remedy: docker or bubblewrap")


class PipeTransport:
    """A supervisor that is a child process, spoken to through its standard input and output.

    Args:
        process: Started by `start_process`.
        errors: Descriptor of the memory file that is the child's stderr; owned by this object.
        cleanup: Called once after the process ended, with True when it ended by itself and cleanly.
        on_ready: Called with the process id when the supervisor stands and has run nothing yet.
    """

    _closed = True  # until the object is complete, for `__del__`

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        errors: int,
        cleanup: Callable[[bool], None] | None = None,
        on_ready: Callable[[int], None] | None = None,
    ) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._errors, self._cleanup, self._on_ready = process, errors, cleanup, on_ready
        self._in, self._out = process.stdin.fileno(), process.stdout.fileno()
        self._lock = threading.Lock()
        self._closed = False
        os.set_blocking(self._in, False)
        _open.add(self)
        _unreaped.add(process)
        self._reader, self._writer = select.poll(), select.poll()
        self._reader.register(self._out, select.POLLIN)
        self._writer.register(self._in, select.POLLOUT)

    @property
    def pid(self) -> int:
        """Process id of the child (the supervisor, or what confines it)."""
        return self._process.pid

    def send(self, data: bytes, deadline: float) -> None:
        """See `Transport`."""
        view = memoryview(data)
        while view:
            try:
                with self._lock:  # the number of a closed descriptor may already be another's
                    self._refuse_closed()
                    view = view[os.write(self._in, view) :]
                continue
            except BlockingIOError:
                pass
            except (BrokenPipeError, OSError) as error:
                raise TransportClosed(f"the supervisor is gone ({error})") from error
            self._wait(self._writer, deadline, "read")

    def receive(self, deadline: float) -> bytes:
        """See `Transport`."""
        self._wait(self._reader, deadline, "answer")
        try:
            with self._lock:
                self._refuse_closed()
                data = os.read(self._out, 1 << 18)
        except OSError as error:
            raise TransportClosed(f"the supervisor is gone ({error})") from error
        if not data:
            raise TransportClosed("the supervisor is gone (end of its output)")
        return data

    def _wait(self, pipe: select.poll, deadline: float, what: str) -> None:
        """Wait for a pipe. The child's end is looked for as well: something below it may hold the other end open."""
        while (left := deadline - time.monotonic()) > 0:
            if pipe.poll(min(left, LOOK_SECONDS) * 1000):
                return
            if _has_ended(self.pid) is not False:
                raise TransportClosed("the supervisor is gone (it ended, and something holds its pipes)")
        raise DeadlinePassed(f"the supervisor does not {what}")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise TransportClosed("the supervisor was ended by another thread")

    def ready(self) -> None:
        """See `Transport`."""
        if self._on_ready is not None:
            self._on_ready(self.pid)

    def diagnosis(self) -> str:
        """See `Transport`."""
        if self._closed:
            return ""
        return os.pread(self._errors, 1 << 14, 0).decode("utf-8", "replace").strip()

    def close(self, *, patience: float = 2.0) -> None:
        """See `Transport`."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):  # a pipe that broke before is closed all the same
            process.stdin.close()
        try:
            wait_unreaped(process.pid, patience)
        except BaseException as error:  # it does not end by itself, or somebody pressed Ctrl-C meanwhile
            end_family(process.pid)
            if not isinstance(error, TimeoutError):
                raise
        finally:
            end_group(process)
            self._wait_for_end()
            # Only now, so that another thread that waits for an answer learns of the end and leaves.
            process.stdout.close()
            os.close(self._errors)
            if self._cleanup is not None:
                self._cleanup(process.returncode == 0)

    def _wait_for_end(self) -> None:
        """Read to the end of the output: where a guardian (see `sandboxes.supervisor`) holds it, all is over then."""
        limit = time.monotonic() + FAMILY_SECONDS
        reader = select.poll()  # another thread may wait with the other one
        reader.register(self._out, select.POLLIN)
        with contextlib.suppress(OSError):
            while (left := limit - time.monotonic()) > 0 and reader.poll(left * 1000):
                if not os.read(self._out, 1 << 18):
                    return

    def disown(self) -> None:
        """Forget the child: this process is a forked copy of its host, and keeps no end of its pipes."""
        if not self._closed:
            self._closed = True
            self._process.returncode = 0
            _unreaped.discard(self._process)
            for fd in (self._in, self._out, self._errors):
                os.close(fd)

    def __del__(self) -> None:
        self.close(patience=0.5)


_open: weakref.WeakSet[PipeTransport] = weakref.WeakSet()
_unreaped: set[subprocess.Popen[bytes]] = set()
"""Children of open transports. One that is collected as garbage is reaped by Python, perhaps before its transport."""


@atexit.register
def _close_all() -> None:
    """End every supervisor that was not closed, so that nothing is left when the host ends."""
    for transport in list(_open):
        transport.close(patience=0.5)
    cgroup.finish()


def _disown_all() -> None:
    for transport in list(_open):
        transport.disown()


os.register_at_fork(after_in_child=_disown_all)


LOOK_SECONDS = 1.0
"""How often a transport that waits looks whether its child lives."""
FAMILY_SECONDS = 2.0
"""What ending the processes below a supervisor may take."""


def end_family(pid: int) -> None:
    """Kill everything below a supervisor that does not end by itself, and leave it stopped for `end_group`.

    It is stopped first: as long as it lives, what loses its parent stays below it and is found.
    """
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    limit = time.monotonic() + FAMILY_SECONDS
    quiet = 0
    while quiet < 2 and time.monotonic() < limit:
        try:
            family = [one for one in descendants_of(pid) if process_state(one) not in "ZX"]
        except OSError:  # no open file is left to look with: what is below is swept later
            break
        quiet = 0 if family else quiet + 1
        for one in family:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # most go with their namespace
                os.kill(one, signal.SIGKILL)
        time.sleep(0.001)


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and all that is left of its process group, and reap it.

    A bwrap that is killed in its first moment leaves a child there that waits for it, and for nothing else.
    """
    if _has_ended(process.pid) is not None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _unreaped.discard(process)


def wait_unreaped(pid: int, seconds: float) -> None:
    """Wait for the end of a child. It is not reaped, so that its number, and its group's, stays its own.

    Raises:
        TimeoutError: It has not ended.
    """
    limit = time.monotonic() + seconds
    pause = 0.001
    while _has_ended(pid) is False:
        if (left := limit - time.monotonic()) <= 0:
            raise TimeoutError
        time.sleep(min(pause, left))
        pause = min(0.05, 2 * pause)


def _has_ended(pid: int) -> bool | None:
    """Whether a child has ended; None: somebody else reaped it, and its number may be another's."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return None
