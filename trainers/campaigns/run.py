"""The runs of a campaign, started in processes of their own, several at a time, and gone on with after any end.

Each is `python -m trainers.grpo ... --resume`. The kernel ends them (SIGTERM) when the campaign is killed, and a run
that another process still writes is waited for; so the same command goes on, whatever was killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from sandboxes.guard import plain
from sandboxes.inside.kernel import PR_SET_PDEATHSIG, prctl
from tasks.model import counted
from trainers.campaigns.plan import Campaign, Manifest, RunEntry, ended_of, read_summary
from trainers.errors import RunFolderError
from trainers.run.folder import is_locked, lock_folder, refuse_unwritable
from trainers.run.record import SUMMARY
from trainers.run.summary import Stopped

TRAIN = (sys.executable, "-m", "trainers.grpo")
POLL = 0.1
"""Seconds between two looks at the runs."""
TAIL = 6
"""Lines of a failed run's output that are shown."""
CORES = 2
"""For each run without a GPU: it learns in one, and its sandboxes want another."""


def devices(conditions: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The GPUs that runs share out, as CUDA_VISIBLE_DEVICES names them; none where all runs are on the CPU."""
    if all(settings.get("use_cpu") for settings in conditions.values()):
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip()]
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def workers_of(campaign: Campaign, gpus: Sequence[str]) -> int:
    """Runs at a time: as the file says, or one for each GPU, or one for every two cores."""
    return campaign.file.workers or len(gpus) or max(1, len(os.sched_getaffinity(0)) // CORES)


def seconds_left(campaign: Campaign, manifest: Manifest, workers: int) -> tuple[float, int] | None:
    """How long the rest takes, from the mean time of the runs that are over, and how many these are.

    `None` before the first one. What an unfinished run has done already is not counted.
    """
    runs = [manifest.runs[key] for key in campaign.names()]
    summaries = [read_summary(campaign.folder, run) for run in runs if run.over]
    times = [float(summary["wall_seconds"]) for summary in summaries if summary is not None]
    rounds = -(-(len(runs) - sum(run.over for run in runs)) // workers)
    return (rounds * sum(times) / len(times), len(times)) if times else None


def duration(seconds: float) -> str:
    """For people: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def work(campaign: Campaign, say: Callable[[str], None], command: Sequence[str] = TRAIN) -> Manifest:
    """Do the runs that are not over.

    Args:
        campaign: What is wanted.
        say: Takes lines for people.
        command: In the place of `python -m trainers.grpo`.

    Returns:
        The manifest as it is then; runs that failed are in it, and did not stop the others.

    Raises:
        ConfigError: See `Manifest.of`.
        RunFolderError: The same; or another process works on the campaign.
        KeyboardInterrupt: On Ctrl-C or SIGTERM, once the runs have ended.
    """
    Manifest.of(campaign)  # a folder that is refused stays as it was
    refuse_unwritable(campaign.folder)
    campaign.folder.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_folder(campaign.folder)
    except RunFolderError as error:
        raise RunFolderError(f"the campaign's folder: {error}") from error
    try:
        manifest = Manifest.of(campaign)
        manifest.write(campaign.folder)
        workers = _Workers(campaign, manifest, say, command)
        try:
            with _noted_signals() as signals:
                workers.work(signals)
                if signals:
                    raise KeyboardInterrupt
        finally:
            workers.kill()
    finally:
        os.close(lock)
    return manifest


@contextmanager
def _noted_signals() -> Iterator[list[int]]:
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


@dataclass(frozen=True, slots=True)
class _Child:
    run: RunEntry
    process: subprocess.Popen[bytes]
    began: float


class _Workers:
    """The processes; each has a place among `workers`, and with it a GPU."""

    def __init__(
        self, campaign: Campaign, manifest: Manifest, say: Callable[[str], None], command: Sequence[str]
    ) -> None:
        self._campaign, self._manifest, self._say, self._command = campaign, manifest, say, command
        self._folder = campaign.folder
        self._todo = deque(run for key in campaign.names() if not (run := manifest.runs[key]).over)
        self._gpus = devices(manifest.conditions)
        self._workers = workers_of(campaign, self._gpus)
        self._children: dict[int, _Child] = {}
        self._next_start = 0.0
        self._waited: set[RunEntry] = set()

    def work(self, signals: Sequence[int]) -> None:
        """Until nothing is left; on a signal each run ends as on its own Ctrl-C, and on a second one it is killed.

        Args:
            signals: Those that came; it grows.
        """
        total = len(list(self._campaign.names()))
        self._say(f"{total} runs, {len(self._todo)} to do, {self._workers} at a time, in {self._folder}")
        told = False
        while self._children or (self._todo and not signals):
            self._reap()
            if not signals:
                self._start_one()
            elif not told:
                self._interrupt()
                told = True
            elif len(signals) > 1:
                return
            time.sleep(POLL)

    def _reap(self) -> None:
        for place, child in list(self._children.items()):
            if child.process.poll() is not None:
                del self._children[place]
                self._ended(child)

    def _interrupt(self) -> None:
        self._say(f"interrupted: {counted(len(self._children), 'run')} to end; the same command goes on")
        for child in self._children.values():
            child.process.send_signal(signal.SIGINT)

    def _start_one(self) -> None:
        free = next((place for place in range(self._workers) if place not in self._children), None)
        if free is None or not self._todo or time.monotonic() < self._next_start:
            return
        run = self._todo.popleft()
        if is_locked(self._folder / run.folder):
            if run not in self._waited:
                self._say(f"{run}: waits for the process that still writes {self._folder / run.folder}")
                self._waited.add(run)
            self._todo.append(run)
            return
        self._children[free] = _Child(run, self._start(run, free), time.monotonic())
        self._next_start = time.monotonic() + self._campaign.file.stagger_seconds
        self._say(f"{run}: started" if run.ended is None else f"{run}: started again ({run.ended} before)")

    def _start(self, run: RunEntry, place: int) -> subprocess.Popen[bytes]:
        place_gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[place % len(self._gpus)]} if self._gpus else {}
        out, err = _outputs(self._folder, run)
        out.parent.mkdir(parents=True, exist_ok=True)
        with _appended(out) as stdout, _appended(err) as stderr:
            return subprocess.Popen(
                [*self._command, *self._campaign.arguments(run.condition, run.seed)],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env={**os.environ, **place_gpu},
                start_new_session=True,  # Ctrl-C reaches it once, by us
                preexec_fn=partial(_end_with, os.getpid()),
            )

    def _ended(self, child: _Child) -> None:
        """Write down how a run ended, and say it."""
        run, code = child.run, child.process.returncode
        ended, why = _end_of(self._folder, run, code)
        self._manifest.runs[run.condition, run.seed] = replace(run, ended=ended)
        self._manifest.write(self._folder)
        over = sum(self._manifest.runs[key].over for key in self._campaign.names())
        took = duration(time.monotonic() - child.began)
        self._say(f"{run}: {ended} after {took}; {counted(over, 'run')} over{self._left()}")
        if ended is Stopped.FAILED:
            self._say(f"  {why}; {_outputs(self._folder, run)[1]} ends with:")
            for line in last_lines(self._folder, run):
                self._say(f"  | {line}")

    def _left(self) -> str:
        left = seconds_left(self._campaign, self._manifest, self._workers)
        return f", about {duration(left[0])} to go" if left and left[0] else ""

    def kill(self) -> None:
        """What still runs after a second Ctrl-C, or when something went wrong."""
        for child in self._children.values():
            child.process.kill()
            child.process.wait()


def _end_of(folder: Path, run: RunEntry, code: int) -> tuple[Stopped, str]:
    """How a run ended whose process did, with what to say of one that failed."""
    if code in (130, 143, -signal.SIGINT, -signal.SIGTERM):
        return Stopped.INTERRUPTED, ""
    if code < 0:
        return Stopped.FAILED, f"ended by {signal.Signals(-code).name}"
    try:
        ended = ended_of(folder, run) if code in (0, 3) else Stopped.FAILED
    except RunFolderError as error:
        return Stopped.FAILED, str(error)
    return (ended, f"exit code {code}") if ended else (Stopped.FAILED, f"exit code {code}, and no {SUMMARY}")


def _end_with(parent: int) -> None:
    """In a run's process, before its program: it ends with the campaign, and hears Ctrl-C even where that is off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _appended(path: Path) -> BinaryIO:
    return open(path, "ab")


def _outputs(folder: Path, run: RunEntry) -> tuple[Path, Path]:
    """What a run prints, and what it complains: beside its folder, which must be its own."""
    place = folder / run.folder
    return place.with_name(f"{place.name}.log"), place.with_name(f"{place.name}.err")


def last_lines(folder: Path, run: RunEntry) -> list[str]:
    """The end of what a run complained, or else of what it printed; nothing in it that a terminal would obey."""
    for path in reversed(_outputs(folder, run)):
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                text = file.read().decode("utf-8", errors="replace")
            if lines := [plain(line.rstrip()) for line in text.splitlines() if line.strip()]:
                return lines[-TAIL:]
    return []
