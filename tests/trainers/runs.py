"""Runs of `trainers.grpo` in processes of their own, killed at a chosen moment, or several as one.

A run is a child of a fork server that has loaded the libraries once. It watches what it does to the files of its run
folder (audit events of the interpreter) and kills itself, as `kill -9` does, just before the event it was told: the
same one each time. Or some time after it, anywhere in between.
"""

from __future__ import annotations

import gc
import hashlib
import multiprocessing
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

EVENTS = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree"}
_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["trainers.grpo", "tests.trainers.runs"])


@dataclass(frozen=True, slots=True)
class Moment:
    """The `count`-th event (from 0) whose name and path match a pattern."""

    pattern: str
    count: int
    signal: signal.Signals = signal.SIGKILL
    """What it gets then."""
    after: float = 0.0
    """Seconds from the event until then: between two events, in the middle of whatever it does."""


def run_name(folder: Path) -> str:
    """The TURNGYM_RUN_ID of runs in a folder: no other run has it, not even the same test in another session."""
    return f"killed-{hashlib.sha256(bytes(folder)).hexdigest()[:16]}"


def start(args: list[str], folder: Path, log: Path, moment: Moment | None = None) -> Any:
    """Start a run in a process of its own.

    Args:
        args: Of the command line.
        folder: Its run folder; changes below it are events.
        log: Gets its output.
        moment: When it dies; `None` lets it live.
    """
    process = _server.Process(target=_run, args=(args, str(folder), str(log), moment))
    process.start()
    return process


def start_together(count: int, log: Path, work: Callable[..., int | None], *args: Any) -> list[Any]:
    """Start a function in several processes of one group, with the environment that a launcher gives them.

    Args:
        count: How many.
        log: The output of process 0 goes to `<log>.0`, and so on.
        work: Of a module that can be imported; its result is the exit code.
        args: Its arguments.
    """
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = str(server.getsockname()[1])
    group = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    started = []
    for rank in range(count):
        env = {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {}
        started.append(_server.Process(target=_join, args=(env, f"{log}.{rank}", work, args)))
        started[-1].start()
    return started


def _join(env: dict[str, str], log: str, work: Callable[..., int | None], args: tuple[Any, ...]) -> None:
    _begin(log)
    os.environ.update(env)
    _end(work(*args) or 0)


def _begin(log: str) -> int:
    """Of each process: its output goes to a file, and what the server has loaded is not collected again."""
    gc.freeze()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    return out


def _end(code: int) -> None:
    """Without the clean-up of the test process, of which this one is no copy in earnest."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(args: list[str], folder: str, log: str, moment: Moment | None) -> None:
    out = _begin(log)
    count = 0

    def die(when: str) -> None:
        assert moment is not None
        os.write(out, f"killed {when}\n".encode())
        os.kill(os.getpid(), moment.signal)

    def hook(event: str, values: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in EVENTS or not isinstance(values[0], str | Path) or not str(values[0]).startswith(folder):
            return
        if event == "open" and not values[2] & (os.O_WRONLY | os.O_RDWR):
            return
        name = f"{event} {str(values[0])[len(folder) :]}"
        if moment is not None and re.search(moment.pattern, name):
            count += 1
            if count - 1 == moment.count and moment.after:
                threading.Timer(moment.after, die, [f"{moment.after:.2f} s after: {name}"]).start()
            elif count - 1 == moment.count:
                die(f"before: {name}")

    from trainers import grpo

    os.environ["TURNGYM_RUN_ID"] = run_name(Path(folder))
    sys.addaudithook(hook)
    _end(grpo.main(args))
