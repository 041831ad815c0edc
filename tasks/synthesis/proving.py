"""A draft is read and proven in a process of its own: it may take no more memory and time than that, and end no other.

A sandbox keeps what a draft runs. This keeps what reading it costs: a pattern of 30 characters can compile to more than
any machine holds.
"""

from __future__ import annotations

import multiprocessing
import resource
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from sandboxes import open_sandbox
from sandboxes.sandbox import Sandbox, SandboxUnavailable
from tasks.check import prove_all
from tasks.endpoints.chat import Reply
from tasks.proof import Status
from tasks.synthesis.draft import Order, Reason, Refused, read_draft
from tasks.yaml import dump_task

MEMORY = 1 << 30
"""Bytes of address space of the process; it needs a quarter of them."""
PROOF_SECONDS = 120.0
"""Wall time after which a proof goes no further."""
SECONDS = 300.0
"""Wall time after which the process is killed: what takes so long is reading, one step of a proof, or a sandbox."""
DETAILS, CHARACTERS = 20, 1000
"""Complaints that are kept of a draft, the first ones, and characters of each."""

PROVEN = "proven"


@dataclass(frozen=True, slots=True)
class Judged:
    """What a draft came to, before it is compared with other tasks.

    Attributes:
        verdict: `proven`, or why not: a `Reason` or a `tasks.proof.Fault`.
        details: Why not, in full.
        task: The proven task as YAML.
    """

    verdict: str
    details: tuple[str, ...] = ()
    task: str = ""


def judge(reply: Reply, order: Order, make: Callable[[], Sandbox]) -> Judged:
    """Read the draft in a reply and prove it, in this process.

    Raises:
        SandboxUnavailable: No sandbox could be opened.
    """
    try:
        task = read_draft(reply, order)
        (proof,) = prove_all([task], make, 1, seconds=PROOF_SECONDS)
    except Refused as refused:
        return _refused(refused.reason, *refused.details)
    except (RecursionError, MemoryError) as error:
        return _refused(Reason.PROCESS, f"is nested too deeply or takes too much memory ({type(error).__name__})")
    if proof.status is Status.UNDECIDED:
        return _refused(Reason.SANDBOX, *proof.problems)
    if proof.status is not Status.PROVEN:
        return _refused(proof.faults[0], *proof.problems)
    return Judged(PROVEN, task=dump_task(task))


def _refused(reason: str, *details: str) -> Judged:
    return Judged(str(reason), tuple(detail[:CHARACTERS] for detail in details[:DETAILS]))


class Prover:
    """Judges drafts, each in a process of its own. Threads may share it.

    Args:
        sandbox: Name of the sandbox in which drafts are proven.
        jobs: Processes at a time.
    """

    def __init__(self, sandbox: str, jobs: int) -> None:
        self._sandbox = sandbox
        self._free = threading.BoundedSemaphore(jobs)
        self._lock = threading.Lock()
        self._running: set[BaseProcess] = set()
        self._closed = False
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def judge(self, reply: Reply, order: Order) -> Judged:
        """Judge the draft in a reply.

        Raises:
            SandboxUnavailable: No sandbox could be opened, or the prover was closed.
        """
        with self._free:
            here, there = self._context.Pipe(duplex=False)
            process = self._context.Process(target=_serve, args=(there, reply, order, self._sandbox))
            with self._lock:
                if self._closed:
                    raise SandboxUnavailable("the prover was closed")
                process.start()
                self._running.add(process)
            there.close()
            try:
                found = here.recv() if here.poll(SECONDS) else None
                late = found is None
            except EOFError:
                found, late = None, False
            finally:
                process.kill()  # it has said all that it had to say
                process.join()
                here.close()
                with self._lock:
                    self._running.discard(process)
        if isinstance(found, SandboxUnavailable):
            raise found
        if found is None:
            why = f"took more than {SECONDS:g} s" if late else f"ended it (exit code {process.exitcode})"
            return _refused(Reason.PROCESS, f"a process of its own was to read and prove it, and the draft {why}")
        assert isinstance(found, Judged)
        return found

    def close(self) -> None:
        """Kill what is under way. Idempotent."""
        with self._lock:
            self._closed = True
            for process in self._running:
                process.kill()


def _serve(connection: Connection, reply: Reply, order: Order, sandbox: str) -> None:
    """Judge one draft, in the process of its own."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))  # commands in a sandbox have their own
    try:
        found: Judged | SandboxUnavailable = judge(reply, order, partial(open_sandbox, sandbox))
    except SandboxUnavailable as error:
        found = error
    connection.send(found)
