"""A sandbox lost in mid-episode: its commands are played again in a fresh one, and whose doing the loss was."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import TypeVar

from envs.episode import AgentErrors, LostTwice
from envs.rewards import workspace_hash
from envs.workplace import Workplace, refuse_closed
from sandboxes.client import JudgeFailed
from sandboxes.pool import Wait
from sandboxes.sandbox import CommandResult, JudgeIsolation, Sandbox, SandboxError, SandboxUnavailable, Snapshot
from tasks.place import CannotBegin, begin
from tasks.task import Task

# An episode without a grade leaves every mean and one that fails does not. Were every lost sandbox the machinery's
# fault, a policy would gain by ending the sandbox of a task that it cannot solve. So a loss is tried again before it
# is judged:
#
# 1. A second sandbox of the same backend, the canary, is opened and asked. If it does not answer, the machinery
#    failed.
# 2. The commands so far run once more in a fresh sandbox. Exit code, output and workspace must be what they were.
# 3. The command that was lost runs again. If it comes to its end, the episode goes on as if nothing had happened. If
#    the sandbox is lost again while the canary answers, the command did it: the episode is a fail.
#
# Anything else (a canary that is dead, a turn that comes out otherwise, no time left) is the machinery's:
# `SandboxError`. What differs by itself from one run to the next (the time, process numbers, random numbers) cannot be
# told from a broken machine, so an episode that printed such things and then lost its sandbox has no grade.

REPLAY_SECONDS = 60.0
"""What playing commands again may take in one episode, canaries included and the lost commands themselves not."""
CANARY_SECONDS = 10.0
SHOWN = 100
"""Characters of a command in the record of a loss."""

Value = TypeVar("Value")


class LossEnd(StrEnum):
    """What became of an episode after a loss."""

    REPLAYED = "replayed"
    """The command came to its end in a fresh sandbox: the episode went on."""
    LOST = "lost"
    """The sandbox was lost again: the agent's doing."""
    INFRASTRUCTURE = "infrastructure"
    """The machinery is at fault, or nobody can tell."""


@dataclass(slots=True)
class Loss:
    """A sandbox that was lost.

    Attributes:
        turn: In which turn, from 1.
        command: During which command, shortened; empty while the episode was graded.
        error: What the sandbox said.
        end: What became of the episode.
    """

    turn: int
    command: str
    error: str
    end: LossEnd = LossEnd.INFRASTRUCTURE

    def record(self) -> dict[str, str | int]:
        """For `info["losses"]`, JSON-able."""
        return {"turn": self.turn, "command": self.command, "end": self.end.value, "error": self.error}


@dataclass(frozen=True, slots=True)
class Played:
    """A command that came to its end, as it is compared."""

    command: str
    exit_code: int
    timed_out: bool
    output: str
    """Hash of standard output and standard error."""
    files: str
    """Hash of the workspace after it."""

    @classmethod
    def of(cls, command: str, result: CommandResult, files: str) -> Played:
        """A command, what it did, and the hash of the workspace after it."""
        output = sha256(len(result.stdout).to_bytes(8, "big") + result.stdout + result.stderr).hexdigest()
        return cls(command, result.exit_code, result.timed_out, output, files)

    def difference(self, again: Played) -> str | None:
        """What came out otherwise, for people; `None` where nothing did."""
        if (self.exit_code, self.timed_out) != (again.exit_code, again.timed_out):
            return "exit code"
        if self.output != again.output:
            return "output"
        return "workspace" if self.files != again.files else None


class Recovery:
    """The commands of one episode so far, and the sandboxes that were lost in it.

    Args:
        task: The task of the episode.
        place: Where its commands run.
        agent_errors: What counts where the agent ended the sandbox.
    """

    def __init__(self, task: Task, place: Workplace, agent_errors: AgentErrors) -> None:
        self.losses: list[Loss] = []
        self.seconds = 0.0
        """What playing commands again took, with the commands that ended their sandbox run once more."""
        self._task, self._place, self._agent_errors = task, place, agent_errors
        self._played: list[Played] = []
        self._left = REPLAY_SECONDS

    def run(self, command: str, turn: int) -> tuple[CommandResult, Snapshot, str]:
        """Run a command of the agent; returns its result, the workspace after it, and the workspace's hash.

        Raises:
            LostTwice: The command ended its sandbox twice.
            SandboxError: The machinery failed.
        """
        seconds = self._task.budget.command_seconds
        result, files = self.keep(lambda: run_and_snapshot(self._place.take(), command, seconds), turn, command)
        digest = workspace_hash(files)
        self._played.append(Played.of(command, result, digest))
        return result, files, digest

    def keep(self, do: Callable[[], Value], turn: int, command: str | None = None) -> Value:
        """Do something in the sandbox; where that is lost meanwhile, once more in a fresh one (see the module's text).

        Args:
            do: What to do.
            turn: The turn it belongs to, from 1.
            command: The command that it runs; `None` for grading.

        Raises:
            LostTwice: The sandbox was lost both times, and the canary was not.
            SandboxError: The machinery failed.
        """
        wait = self._place.wait
        try:
            return do()
        except SandboxUnavailable:
            raise
        except SandboxError as error:
            if wait.cancelled:
                raise
            first = error
        loss = Loss(turn, shortened(command or ""), _line(first))
        self.losses.append(loss)
        begun = time.monotonic()
        try:
            again = self._again(do, _Window(begun + self._left, wait))
        except SandboxError as error:
            raise SandboxError(f"{first}; not made good: {error}") from error
        finally:
            self.seconds += time.monotonic() - begun
        if not isinstance(again, _Lost):
            loss.end = LossEnd.REPLAYED
            return again
        where = "while this was graded" if command is None else "at this command"
        detail = f"the sandbox was lost twice {where}: {loss.command or loss.error}"
        if self._agent_errors is AgentErrors.ERROR:
            raise SandboxError(f"{detail} ({again.error})") from again.error
        loss.end = LossEnd.LOST
        raise LostTwice(command, detail) from again.error

    def _again(self, do: Callable[[], Value], window: _Window) -> Value | _Lost:
        """Play the episode again and do it; `_Lost` where only the sandbox that did it was lost.

        Raises:
            SandboxError: The machinery failed, or nobody can tell.
        """
        with self._place.canary() as canary:
            _ask(canary)
            self._replay(window)
            self._left = window.left()
            try:
                value: Value | _Lost = do()
            except SandboxError as error:
                value = _Lost(error)
                _ask(canary)
                if isinstance(error, JudgeFailed) and canary.judge_isolation is not JudgeIsolation.FULL:
                    raise SandboxError(f"a second sandbox beside it fails at judges, too: {error}") from error
            refuse_closed(window.wait)
            return value

    def _replay(self, window: _Window) -> None:
        """Bring a fresh sandbox to where the lost one stood."""
        sandbox = self._place.renew(window.left())
        try:
            begin(self._task, sandbox)
        except CannotBegin as error:
            raise SandboxError(f"it does not begin a second time: {error}") from error
        for number, played in enumerate(self._played, 1):
            seconds = min(self._task.budget.command_seconds, window.left())
            try:
                result, files = run_and_snapshot(sandbox, played.command, seconds)
            except SandboxError as error:
                raise SandboxError(f"played again, command {number} was lost as well: {error}") from error
            window.left()  # a command that was cut short differs for that reason
            difference = played.difference(Played.of(played.command, result, workspace_hash(files)))
            if difference is not None:
                raise SandboxError(f"played again, command {number} has another {difference} than before")


@dataclass(frozen=True, slots=True)
class _Lost:
    """In the place of a value: the sandbox was lost."""

    error: SandboxError


@dataclass(frozen=True, slots=True)
class _Window:
    """Until when an episode may be played again, and whether anybody still wants it."""

    end: float
    wait: Wait

    def left(self) -> float:
        """Seconds until the end.

        Raises:
            SandboxError: There are none, or the environment is being closed.
        """
        refuse_closed(self.wait)
        left = self.end - time.monotonic()
        if left <= 0:
            raise SandboxError(f"playing the episode again takes more than {REPLAY_SECONDS:g} seconds")
        return left


def run_and_snapshot(sandbox: Sandbox, command: str, seconds: float) -> tuple[CommandResult, Snapshot]:
    """Run a command and take the snapshot after it: in one round trip where the sandbox offers that."""
    together = getattr(sandbox, "run_and_snapshot", None)
    if together is not None:
        result, files = together(command, timeout=seconds)
        return result, files
    return sandbox.run(command, timeout=seconds), sandbox.snapshot()


def shortened(command: str) -> str:
    """A command on one line, as records and reports name it."""
    line = " ".join(command.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 3]}..."


def _ask(canary: Sandbox) -> None:
    try:
        alive = canary.run("echo alive", timeout=CANARY_SECONDS).stdout == b"alive\n"
    except SandboxError as error:
        raise SandboxError(f"a second sandbox beside it does not answer: {error}") from error
    if not alive:
        raise SandboxError("a second sandbox beside it does not answer as it should")


def _line(error: SandboxError) -> str:
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0][:200]
