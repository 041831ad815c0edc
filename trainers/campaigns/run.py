"""The runs of a campaign, started in processes of their own, several at a time, and gone on with after any end.

They are started on this machine, or on those of a cluster (`trainers.campaigns.cluster`). Each is `python -m
trainers.grpo ... --resume`. The kernel ends them (SIGTERM) when the campaign is killed, and a run that another process
still writes is waited for; so the same command goes on, whatever was killed.
"""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sandboxes.guard import plain
from tasks.model import counted
from trainers.campaigns.plan import CORES, Campaign, Manifest, RunEntry, ended_of, read_summary
from trainers.campaigns.process import POLL, Process, RunLost, noted_signals, outputs_of
from trainers.errors import RunFolderError
from trainers.run.folder import is_locked, lock_folder, refuse_unwritable
from trainers.run.record import SUMMARY
from trainers.run.summary import Stopped

TRAIN = ("-m", "trainers.grpo")
"""What Python is told to run."""
TAIL = 6
"""Lines of a failed run's output that are shown."""


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


class Job(Protocol):
    """A run that was started."""

    def poll(self) -> int | None:
        """Its exit code as `Popen` has it, `None` while it runs. Raises RunLost."""

    def interrupt(self) -> None:
        """End it as Ctrl-C does."""

    def kill(self) -> None:
        """End it at once."""


class Machines(Protocol):
    """Where runs are started."""

    def check(self) -> None:
        """Called once before the first run, with the campaign's folder locked. Raises ConfigError."""

    def workers(self) -> int:
        """Runs at a time; it may change, and may be none."""

    def start(self, run: RunEntry, place: int) -> Job:
        """Start a run; `place` counts from 0, and no other that runs has it."""


def work(
    campaign: Campaign,
    say: Callable[[str], None],
    command: Sequence[str] = TRAIN,
    machines: Callable[[Campaign, Manifest, Sequence[str]], Machines] | None = None,
) -> Manifest:
    """Do the runs that are not over.

    Args:
        campaign: What is wanted.
        say: Takes lines for people.
        command: In the place of `-m trainers.grpo`, after Python.
        machines: Where; this one where nothing is said.

    Returns:
        The manifest as it is then; runs that failed are in it, and did not stop the others.

    Raises:
        ConfigError: See `Manifest.of` and `Machines.check`.
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
        where = (machines or ThisMachine)(campaign, manifest, command)
        where.check()
        manifest.write(campaign.folder)
        workers = _Workers(campaign, manifest, say, where)
        try:
            with noted_signals() as signals:
                workers.work(signals)
                if signals:
                    raise KeyboardInterrupt
        finally:
            workers.kill()
    finally:
        os.close(lock)
    return manifest


class ThisMachine:
    """Runs are processes here; each has a place among `workers`, and with it a GPU. See `Machines`."""

    def __init__(self, campaign: Campaign, manifest: Manifest, command: Sequence[str]) -> None:
        self._campaign, self._command = campaign, command
        self._gpus = devices(manifest.conditions)

    def check(self) -> None:
        """Nothing needs to be."""

    def workers(self) -> int:
        """As `workers_of`."""
        return workers_of(self._campaign, self._gpus)

    def start(self, run: RunEntry, place: int) -> Job:
        """A process."""
        gpu = {"CUDA_VISIBLE_DEVICES": self._gpus[place % len(self._gpus)]} if self._gpus else {}
        words = [*self._command, *self._campaign.arguments(run.condition, run.seed)]
        return Process(words, outputs_of(self._campaign.folder / run.folder), {**os.environ, **gpu})


@dataclass(frozen=True, slots=True)
class _Child:
    run: RunEntry
    job: Job
    began: float


class _Workers:
    """The runs that were started, each with a place among `workers`."""

    def __init__(self, campaign: Campaign, manifest: Manifest, say: Callable[[str], None], machines: Machines) -> None:
        self._campaign, self._manifest, self._say, self._machines = campaign, manifest, say, machines
        self._folder = campaign.folder
        self._todo = deque(run for key in campaign.names() if not (run := manifest.runs[key]).over)
        self._children: dict[int, _Child] = {}
        self._next_start = 0.0
        self._waited: set[RunEntry] = set()
        self._crowded = False

    def work(self, signals: Sequence[int]) -> None:
        """Until nothing is left; on a signal each run ends as on its own Ctrl-C, and on a second one it is killed.

        Args:
            signals: Those that came; it grows.
        """
        total = len(list(self._campaign.names()))
        self._say(f"{total} runs, {len(self._todo)} to do, {self._machines.workers()} at a time, in {self._folder}")
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
            try:
                code = child.job.poll()
            except RunLost as lost:
                end = (Stopped.FAILED, str(lost))
            else:
                if code is None:
                    continue
                end = _end_of(self._folder, child.run, code)
            del self._children[place]
            self._ended(child, *end)

    def _interrupt(self) -> None:
        self._say(f"interrupted: {counted(len(self._children), 'run')} to end; the same command goes on")
        for child in self._children.values():
            child.job.interrupt()

    def _start_one(self) -> None:
        if not self._todo or time.monotonic() < self._next_start:
            return
        workers = self._machines.workers()
        free = next((place for place in range(workers) if place not in self._children), None)
        if workers == 0 and not self._children and not self._crowded:
            self._say("no machine is left that a run fits on: waiting for one")
        self._crowded = workers == 0
        if free is None:
            return
        run = self._todo.popleft()
        if is_locked(self._folder / run.folder):
            if run not in self._waited:
                self._say(f"{run}: waits for the process that still writes {self._folder / run.folder}")
                self._waited.add(run)
            self._todo.append(run)
            return
        self._children[free] = _Child(run, self._machines.start(run, free), time.monotonic())
        self._next_start = time.monotonic() + self._campaign.file.stagger_seconds
        self._say(f"{run}: started" if run.ended is None else f"{run}: started again ({run.ended} before)")

    def _ended(self, child: _Child, ended: Stopped, why: str) -> None:
        """Write down how a run ended, and say it."""
        run = child.run
        self._manifest.runs[run.condition, run.seed] = replace(run, ended=ended)
        self._manifest.write(self._folder)
        over = sum(self._manifest.runs[key].over for key in self._campaign.names())
        took = duration(time.monotonic() - child.began)
        self._say(f"{run}: {ended} after {took}; {counted(over, 'run')} over{self._left()}")
        if ended is Stopped.FAILED:
            self._say(f"  {why}; {outputs_of(self._folder / run.folder)[1]} ends with:")
            for line in last_lines(self._folder, run):
                self._say(f"  | {line}")

    def _left(self) -> str:
        left = seconds_left(self._campaign, self._manifest, max(1, self._machines.workers()))
        return f", about {duration(left[0])} to go" if left and left[0] else ""

    def kill(self) -> None:
        """What still runs after a second Ctrl-C, or when something went wrong."""
        for child in self._children.values():
            child.job.kill()


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


def last_lines(folder: Path, run: RunEntry) -> list[str]:
    """The end of what a run complained, or else of what it printed; nothing in it that a terminal would obey."""
    for path in reversed(outputs_of(folder / run.folder)):
        if path.is_file():
            with open(path, "rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                text = file.read().decode("utf-8", errors="replace")
            if lines := [plain(line.rstrip()) for line in text.splitlines() if line.strip()]:
                return lines[-TAIL:]
    return []
