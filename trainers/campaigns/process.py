"""A run of a campaign as a process of this machine, and where what it prints goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

from sandboxes.inside.kernel import PR_SET_PDEATHSIG, prctl

POLL = 0.1
"""Seconds between two looks at the runs."""


class RunLost(Exception):
    """What started a run does not know how it ended: a failure, of which the message says more."""


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM are noted and not raised: inside of a fork an exception would be lost."""
    signals: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    both = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda number, _: signals.append(number)) for number in both}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Process:
    """A run in a process of this machine, which ends when this one does. See `Job`.

    Args:
        words: What Python is told to run.
        outputs: Files that take what it prints and what it complains.
        environment: Of the process.
        folder: Where it is started; here, where none is named.
    """

    def __init__(
        self,
        words: Sequence[str],
        outputs: tuple[Path, Path],
        environment: Mapping[str, str],
        folder: str | None = None,
    ) -> None:
        outputs[0].parent.mkdir(parents=True, exist_ok=True)
        with _appended(outputs[0]) as stdout, _appended(outputs[1]) as stderr:
            self._process = subprocess.Popen(
                [sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=environment,
                cwd=folder,
                start_new_session=True,  # Ctrl-C reaches it once, by us
                preexec_fn=partial(_end_with, os.getpid()),
            )

    def poll(self) -> int | None:
        """See `Job`."""
        return self._process.poll()

    def interrupt(self) -> None:
        """See `Job`."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """See `Job`."""
        self._process.kill()
        self._process.wait()


def _end_with(parent: int) -> None:
    """In a run's process, before its program: it ends with the campaign, and hears Ctrl-C even where that is off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # processes of Ray have it blocked
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _appended(path: Path) -> BinaryIO:
    return open(path, "ab")


def outputs_of(place: Path) -> tuple[Path, Path]:
    """What the run of a folder prints, and what it complains: beside that folder, which must be its own."""
    return place.with_name(f"{place.name}.log"), place.with_name(f"{place.name}.err")
