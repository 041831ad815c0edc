"""One worker process as its parent sees it: started, asked, and ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from tasks.assertions.math.worker import HEADER, pack

START_SECONDS = 60.0
"""How long a worker may take to start; importing sympy takes about a second on an idle machine."""

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from tasks.assertions.math.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


class WorkerUnavailable(RuntimeError):
    """A worker could not be started; the message says why and what helps."""


class WorkerDied(RuntimeError):
    """A worker ended without an answer."""


class WorkerLate(RuntimeError):
    """A worker did not answer before the deadline, which may be the fault of a busy machine."""


class WorkerSpent(RuntimeError):
    """A request used up its processor time. The worker is as good as new."""


class WorkerBroke(RuntimeError):
    """The process that compared ended without an answer. The worker is as good as new."""


class Worker:
    """A process of its own program, not a fork: it holds no threads, locks or modules of the parent.

    Args:
        memory: Bytes of address space that it may take.
        nice: Whether it makes way for other processes.
        begun: Called with the worker once its process is there, before it can be asked.

    Raises:
        WorkerUnavailable: it did not start.
    """

    def __init__(self, memory: int, nice: bool = False, begun: Callable[[Worker], None] = lambda _: None) -> None:
        self.served = 0
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, json.dumps(sys.path), str(memory), str(int(nice))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the parent
                # One order of sets for all workers, so that verdicts do not depend on which one answers.
                env={**os.environ, "PYTHONHASHSEED": "0"},
            )
        except (OSError, ValueError) as error:
            raise WorkerUnavailable(f"the math worker cannot be started: {error}") from error
        try:
            begun(self)
            reply = self._receive(time.monotonic() + START_SECONDS)
        except (WorkerDied, WorkerLate) as error:
            code = self.end()
            raise WorkerUnavailable(
                f"the math worker did not start ({error}; exit code {code}): is there memory for one more Python?"
            ) from error
        except BaseException:
            self.end()
            raise
        if "ready" not in reply:
            self.end()
            raise WorkerUnavailable(
                f"the math worker could not start: {reply.get('failed')}. It needs math-verify and sympy "
                f"(pip install 'math-verify[antlr4_13_2]'), and memory for them"
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], seconds: float, deadline: float) -> dict[str, Any]:
        """Send a request and return the answer.

        Args:
            request: What `worker.main` takes.
            seconds: Processor time that it may take.
            deadline: Seconds from now, of the clock.

        Raises:
            WorkerSpent: it needed more processor time.
            WorkerBroke: the process that compared ended before answering.
            WorkerLate: no answer in time. The worker must be ended.
            WorkerDied: it ended before answering.
        """
        end = time.monotonic() + deadline
        self.served += 1
        self._send(pack({**request, "number": self.served, "seconds": seconds, "deadline": deadline}), end)
        reply = self._receive(end)
        while "status" in reply and reply["number"] != self.served:  # to a request whose process was thought lost
            reply = self._receive(end)
        if "spent" in reply:
            raise WorkerSpent(f"took more than {seconds:g} s of processor time")
        if "broke" in reply:
            raise WorkerBroke("it ended without an answer")
        return reply

    def end(self) -> int | None:
        """Kill it, take its exit code and close the pipes. May be called again."""
        self.kill()
        code = self._process.wait()
        self._close()
        return code

    def kill(self) -> None:
        """Kill it; whoever waits for it learns that it ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the process that compares, too

    def forget(self) -> None:
        """Let go of it without touching it: in a child of the process that started it."""
        self._process.returncode = 0  # not ours to wait for
        self._close()

    def _close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _send(self, data: bytes, end: float) -> None:
        assert self._process.stdin is not None
        handle = self._process.stdin.fileno()
        view = memoryview(data)
        poll = select.poll()
        poll.register(handle, select.POLLOUT)
        try:
            while view:
                self._wait(poll, end)
                view = view[os.write(handle, view[: select.PIPE_BUF]) :]
        except BrokenPipeError:
            raise WorkerDied("it had ended") from None

    def _receive(self, end: float) -> dict[str, Any]:
        (length,) = HEADER.unpack(self._read(HEADER.size, end))
        found: dict[str, Any] = json.loads(self._read(length, end))
        return found

    def _read(self, count: int, end: float) -> bytes:
        assert self._process.stdout is not None
        handle = self._process.stdout.fileno()
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        data = bytearray()
        while len(data) < count:
            self._wait(poll, end)
            chunk = os.read(handle, count - len(data))
            if not chunk:
                raise WorkerDied("it ended without an answer")
            data += chunk
        return bytes(data)

    @staticmethod
    def _wait(poll: select.poll, end: float) -> None:
        if not poll.poll(max(0.0, (end - time.monotonic()) * 1000)):
            raise WorkerLate("it did not answer in time")
