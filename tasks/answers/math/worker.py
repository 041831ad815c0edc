"""The processes that compare answers: frames of JSON in on file 0, frames of JSON out on what was file 1.

A frame is four bytes of length, the most significant first, and UTF-8 JSON. There are two: one imports what is needed
and waits, its child compares. The kernel ends the child where a request takes more processor time than it may, whatever
it is in the middle of; then, or where the child ended in another way, the first says so and has another child within
milliseconds. Both end where nobody holds
the other end, and the child where a request takes longer than its deadline and nobody is left to kill it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import math
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

HEADER = struct.Struct(">I")
ORPHANED = 3
"""Seconds after its deadline at which a request ends the process, should its parent be gone."""
SLOW = 5
"""By how much the priority of a worker for comparisons that take long is lowered."""
USED = 3
"""Exit code of a child whose place another one is to take."""
DETAIL = 300
"""Characters of a reason."""
SPENT = signal.SIGPROF
"""What ends the child when a request has used up its processor time."""


def main(memory: int, nice: int = 0) -> None:
    """Serve until the input ends.

    Args:
        memory: Bytes of address space that the process may take.
        nice: 1 where it makes way for other processes.
    """
    os.nice(SLOW * nice)
    replies = os.fdopen(os.dup(1), "wb")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # what a library prints must not stand between two frames
    os.close(quiet)
    try:
        _limit(memory)
        # Here, so that what is missing is told, not died of.
        from tasks.answers.math.equivalence import Unreadable, computable, equivalent, minerva_equivalent

        equivalent("x+1", "1+x")  # builds what the first parse builds
    except BaseException as error:
        write_frame(replies, {"failed": f"{type(error).__name__}: {error}"[:DETAIL]})
        return
    write_frame(replies, {"ready": os.getpid()})
    compare: dict[str, Callable[[str, str], bool]]
    compare = {"fixed": equivalent, "minerva": minerva_equivalent, "gold": computable}
    gc.freeze()  # what is there stays shared with each child
    while True:
        child = os.fork()
        if child == 0:
            try:
                _end_with_parent()
                _serve(replies, compare, Unreadable)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == SPENT:
            write_frame(replies, {"spent": True})
        elif os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return  # the input ended
        elif not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == USED):
            write_frame(replies, {"broke": True})


def _serve(replies: BinaryIO, compare: dict[str, Callable[[str, str], bool]], unreadable: type[Any]) -> None:
    while (request := read_frame(sys.stdin.buffer)) is not None:
        signal.alarm(math.ceil(request["deadline"]) + ORPHANED)
        signal.setitimer(signal.ITIMER_PROF, request["seconds"])
        reply: dict[str, Any]
        try:
            same = compare[request["how"]](request["gold"], request["answer"])
            reply = {"status": "same" if same else "different"}
        except unreadable as error:
            reply = {"status": "gold_unreadable" if error.gold else "unreadable", "detail": error.text[:DETAIL]}
        except MemoryError:
            reply = {"status": "memory"}
        except Exception as error:  # whose doing it is, the parent finds out
            reply = {"status": "failed", "detail": f"{type(error).__name__}: {error}"[:DETAIL]}
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        write_frame(replies, {**reply, "number": request["number"]})
        if reply["status"] == "memory":
            os._exit(USED)  # what is left of the heap is of no use to the next one


def _end_with_parent() -> None:
    """Have the kernel end this process when its parent ends."""
    parent_death = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(parent_death, signal.SIGKILL)


def _limit(memory: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = memory if hard == resource.RLIM_INFINITY else min(memory, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(SPENT, signal.SIG_DFL)  # the parent may have ignored or blocked it
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {SPENT, signal.SIGALRM})


def pack(value: Mapping[str, Any]) -> bytes:
    """Return a frame. ASCII only, so that half a surrogate pair can be sent."""
    body = json.dumps(value).encode("ascii")
    return HEADER.pack(len(body)) + body


def write_frame(stream: BinaryIO, value: Mapping[str, Any]) -> None:
    """Write one frame."""
    stream.write(pack(value))
    stream.flush()


def read_frame(stream: BinaryIO) -> dict[str, Any] | None:
    """Read one frame; None where the stream has ended."""
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (length,) = HEADER.unpack(header)
    body = stream.read(length)
    if len(body) < length:
        return None
    found: dict[str, Any] = json.loads(body)
    return found
