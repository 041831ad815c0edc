"""Where commands run: the sandbox of an episode, a lost one played again, whose doing that was."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from envs.actions import Action, Command, MalformedKind, malformed
from envs.conversation import ConversationEnv, StopReason
from envs.episode import AgentErrors, LostTwice
from envs.rewards import workspace_hash
from sandboxes import SandboxPool, open_sandbox
from sandboxes.client import JudgeFailed, SupervisedSandbox
from sandboxes.opening import choose
from sandboxes.pool import Wait
from sandboxes.sandbox import (
    NAMES,
    Backend,
    CommandResult,
    JudgeIsolation,
    Sandbox,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
    backend_of,
)
from tasks.assertions.grade import Grade
from tasks.assertions.run import SandboxGrader
from tasks.judged_in import exposed, judge_isolation, refuse_shared
from tasks.place import CannotBegin, begin, particular, refuse_unplaceable
from tasks.sources import load_tasks
from tasks.task import Task

# -- Where an environment's commands run: a sandbox of its own, one that was given to it, or one that a pool lends ----

POOL_SECONDS = 300.0
"""How long an environment waits for a sandbox of its pool. Longer means that the pool is too small, and a deadlock."""


class Workplace:
    """At most one sandbox, held from `take` until `release`. Used by one episode at a time.

    * A backend by name: one sandbox is opened at the first `take` and serves every episode.
    * An open sandbox: used as it is, and never closed here.
    * A pool: `take` borrows a sandbox, `give_back` at the end of an episode returns it.

    Args:
        sandbox: `auto`, a backend by name, an open sandbox, or a pool.

    Raises:
        ValueError: There is no backend of that name.
    """

    def __init__(self, sandbox: str | Backend | Sandbox | SandboxPool = "auto") -> None:
        self._pool = sandbox if isinstance(sandbox, SandboxPool) else None
        self._given = None if isinstance(sandbox, str | SandboxPool) else sandbox
        self._backend = sandbox if isinstance(sandbox, str) else "auto"
        if self._backend not in NAMES:
            raise ValueError(f"unknown sandbox '{self._backend}': choose one of {', '.join(NAMES)}")
        self._leased: SupervisedSandbox | None = None
        """What the pool lent last; it is asked for again, so that equal runs see equal process numbers."""
        self.sandbox: Sandbox | None = None
        """What is held now."""
        self._wait = Wait()
        """Cancelled by `abort`; `release` makes another."""
        self._beside: list[Sandbox] = []
        """What is open beside it: a canary, or what a judge runs in."""

    @property
    def wait(self) -> Wait:
        """Cancelled by `abort` and `release`: who does several things in a row looks at it in between."""
        return self._wait

    def refuse(self, tasks: Sequence[Task], network: str | None = None) -> None:
        """Refuse tasks that ask for what the sandbox cannot give; which one `auto` is, is found out if one asks.

        Args:
            tasks: What may be played.
            network: The engine's network that verifiers may have.

        Raises:
            TaskError: Each of them with the reason.
            SandboxUnavailable: No safe backend works here.
        """
        if any(map(particular, tasks)):
            held = self._pool or self._given
            refuse_unplaceable(tasks, backend_of(choose(self._backend)) if held is None else held.backend, network)

    def take(self, seconds: float = POOL_SECONDS) -> Sandbox:
        """The sandbox that is held; without one it is opened, or borrowed.

        Args:
            seconds: How long to wait for one of the pool.

        Raises:
            SandboxError: None can be had, or this was aborted.
        """
        if self.sandbox is None:
            wait = self._wait
            if not wait.cancelled:
                self.sandbox = (
                    self._borrow(self._pool, seconds) if self._pool else self._given or open_sandbox(self._backend)
                )
            if wait.cancelled:
                self.abort()  # it may have come just before the sandbox did
                raise SandboxError("this environment is being closed")
        assert self.sandbox is not None
        return self.sandbox

    def renew(self, seconds: float) -> Sandbox:
        """A fresh sandbox in place of one that was lost, not opened yet; `abort` reaches it, too.

        Args:
            seconds: How long to wait for one of the pool.

        Raises:
            SandboxError: As in `take`.
        """
        lost, self.sandbox = self.sandbox, None
        self._drop(lost)
        return self.take(seconds)

    @contextmanager
    def canary(self) -> Iterator[Sandbox]:
        """A second sandbox of the same kind, open and empty: what befalls the machine befalls it as well.

        Raises:
            SandboxError: It cannot be opened, or this was aborted.
        """
        with self.beside() as canary:
            canary.open({})
            yield canary

    @contextmanager
    def beside(self) -> Iterator[Sandbox]:
        """Another sandbox of the same kind, not opened yet; `abort` reaches it, too.

        Raises:
            SandboxError: This was aborted.
        """
        wait, twin = self._wait, self.take().twin()
        self._beside.append(twin)
        try:
            if wait.cancelled:  # `abort` may have come just before it could see the twin
                raise SandboxError("this environment is being closed")
            yield twin
        finally:
            self._beside.remove(twin)
            twin.close()

    def give_back(self) -> None:
        """The episode is over: a pool gets its sandbox back. Whatever else is held stays for the next episode."""
        if self._pool is not None:
            self.release()

    def release(self) -> None:
        """Hold nothing any more: close what is ours, return what is borrowed. Idempotent."""
        self._wait.cancelled = True
        sandbox, self.sandbox, self._wait = self.sandbox, None, Wait()
        self._drop(sandbox)

    def _drop(self, sandbox: Sandbox | None) -> None:
        if sandbox is None or sandbox is self._given:
            return
        if self._pool is None:
            sandbox.close()
        else:
            assert self._leased is not None
            self._pool.release(self._leased)

    def abort(self) -> None:
        """End what is held, unless it was given, and waiting for it: from any thread. `release` follows.

        A request under way fails, and so does a `take` that waits, or comes before `release`.
        """
        self._wait.cancelled = True
        if self._pool is not None:
            self._pool.cancel(self._wait)
        for held in (self.sandbox, *self._beside):
            if held is not None and held is not self._given:
                held.close()

    def _borrow(self, pool: SandboxPool, seconds: float) -> Sandbox:
        self._leased = pool.acquire(seconds, prefer=self._leased, wait=self._wait)
        return self._leased


# -- A sandbox lost in mid-episode: the episode's commands are played again in a fresh one, and whose doing it was ----
# An episode without a grade leaves every mean and one that fails does not. Were every lost sandbox the machinery's
# fault, a policy would gain by ending the sandbox of a task that it cannot solve. So a loss is tried again before it
# is judged:
#
# 1. A second sandbox of the same backend, the canary, is opened and asked. If it does not answer, the machinery
# failed.
# 2. The commands so far run once more in a fresh sandbox. Exit code, output and workspace must be what they were.
# 3. The command that was lost runs again. If it comes to its end, the episode goes on as if nothing had happened. If
# the
#    sandbox is lost again while the canary answers, the command did it: the episode is a fail.
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
            window.check()
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

    def check(self) -> None:
        """Whether the environment is still open.

        Raises:
            SandboxError: It is being closed.
        """
        if self.wait.cancelled:
            raise SandboxError("this environment is being closed")

    def left(self) -> float:
        """Seconds until the end.

        Raises:
            SandboxError: There are none, or the environment is being closed.
        """
        self.check()
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


# -- What environments with a shell share: the sandbox, how a command runs in it, and when it is given back -----------

TaskSource = str | Path | Sequence[str | Path | Task]
"""Tasks themselves, or what `tasks.sources.load_tasks` takes: `library`, `generated:...`, a YAML file, a folder."""

Place = str | Backend | Sandbox | SandboxPool | Workplace
"""What an environment takes as `sandbox`; a workplace is shared by environments of which one plays at a time."""


class SandboxedEnv(ConversationEnv):
    """A conversation with a sandbox behind it, which is given back at the end of an episode and after a failure."""

    def __init__(self, tasks: TaskSource, *, sandbox: Place = "auto", **settings: Any) -> None:
        """Load the tasks; nothing is opened.

        Args:
            tasks: Where tasks come from.
            sandbox: A backend by name (`auto`, `docker`, `bubblewrap`, `landlock`, `local`), or an open sandbox, or a
                pool as large as the number of episodes at a time; what is open stays the caller's to close.
            **settings: As in `ConversationEnv`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded, or ask for what the sandbox cannot give.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(resolve_tasks(tasks), **settings)
        self._place = sandbox if isinstance(sandbox, Workplace) else Workplace(sandbox)
        self._place.refuse([*self._tasks, *([self._fixed] if self._fixed else [])], self.verifier_network)
        self._recovery: Recovery | None = None
        self._isolation = JudgeIsolation.FULL
        self._ending = False
        """The grade of the end is being made, not one in between."""

    @property
    def losses(self) -> list[dict[str, Any]]:
        """See `ConversationEnv.losses`."""
        return [] if self._recovery is None else [loss.record() for loss in self._recovery.losses]

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """See `ConversationEnv.finish`."""
        result = super().finish(reason)
        self._place.give_back()
        return result

    def abort(self) -> None:
        """See `ConversationEnv.abort`."""
        self._place.abort()

    @property
    def _sandbox(self) -> Sandbox | None:
        return self._place.sandbox

    def _admit(self, task: Task) -> None:
        """Refuse a task whose judge the agent's programs could reach. Raises ExposedJudge, SharedJudge, TaskError."""
        assert self._sandbox is not None
        refuse_unplaceable([task], self._sandbox.backend, self.verifier_network)
        refuse_shared([task], self.allow_shared_judges)
        self._isolation = judge_isolation(task, self._sandbox)
        refuse_exposed([task], self._sandbox, self.allow_exposed_judges)

    def _judge_isolation(self) -> JudgeIsolation:
        return self._isolation

    def _grader(self) -> SandboxGrader:
        """Runs commands of graders in the episode's sandbox, and beside it where they ask for that."""
        return SandboxGrader(self._place.take(), self.task, network=self.verifier_network, twin=self._place.beside)

    def _choose(self, seed: int | None, options: dict[str, Any] | None) -> None:
        super()._choose(seed, options)
        self._recovery = Recovery(self.task, self._place, self.agent_errors)

    def _uncounted(self) -> float:
        return 0.0 if self._recovery is None else self._recovery.seconds

    def _graded(self) -> Grade:
        if not self._turns:  # nothing of the agent has run yet: a loss is the machinery's
            return self._judged()
        assert self._recovery is not None
        return self._recovery.keep(self._judged, self._turns)

    def _judged(self) -> Grade:
        if self._ending and self.task.services:
            self._settle()
        return super()._graded()

    def _settle(self) -> None:
        """End the services of the task; what they left then is what is graded."""
        sandbox = self._place.take()
        sandbox.end_services()
        files = sandbox.snapshot()
        self._show(files, workspace_hash(files))

    def _show(self, files: Snapshot, digest: str) -> None:
        """Take `files` as the workspace now; `digest` is their hash."""
        self._files, self._hash = files, digest

    def _end(self, reason: StopReason) -> float:
        self._ending = True
        try:
            return super()._end(reason)
        finally:
            self._ending = False
            self._place.give_back()  # of an episode that is over only the snapshot is needed

    def _release(self) -> None:
        self._place.release()

    def _fitting(self, action: Action) -> Action:
        """The action, or `too_long`: what the sandbox would refuse is the agent's doing, not a failure of machinery."""
        if isinstance(action, Command) and len(action.text.encode()) > self._place.take().limits.command_bytes:
            return malformed(MalformedKind.TOO_LONG)
        return action

    def _execute(self, command: str) -> tuple[CommandResult, Snapshot, str]:
        """Run a command: its result, the workspace after it, and the workspace's hash (see `Recovery.run`)."""
        assert self._recovery is not None
        return self._recovery.run(command, self._turns + 1)


class ExposedJudge(ValueError):
    """A judge runs code of the agent, and nothing keeps that from the judge: a forged pass could not be told."""


def refuse_exposed(tasks: Sequence[Task], sandbox: Sandbox, allowed: bool) -> None:
    """Refuse tasks whose judge runs code of the agent in a sandbox that cannot keep them apart, unless it is allowed.

    A judge that loads such code into itself is no matter of the sandbox: `tasks check` and the trainer name those.

    Raises:
        ExposedJudge: The message names the tasks and the remedies.
    """
    found = [] if allowed else [task for task in tasks if exposed(task, sandbox)]
    if not found:
        return
    names = ", ".join([*(task.id for task in found[:3]), *(["..."] if len(found) > 3 else [])])
    where = f"the {sandbox.backend} sandbox"
    remedy = "docker, bubblewrap or landlock on Linux 5.14 or newer with Landlock, other tasks"
    if sandbox.judge_isolation is JudgeIsolation.FULL:  # but not where a judge installs packages
        where, remedy = "a verifier with a network is root, and its sandbox", "other tasks"
    raise ExposedJudge(
        f"{where} cannot keep judges apart from programs of the agent's that they run "
        f"(judge_isolation: none), and {len(found)} of {len(tasks)} tasks have such a judge ({names}); remedy: "
        f"{remedy}, or allow_exposed_judges where a forged pass does no harm"
    )


def resolve_tasks(tasks: TaskSource) -> list[Task]:
    """The tasks of a source; a sequence may mix tasks and sources.

    Raises:
        tasks.task.TaskError: A source could not be loaded.
    """
    if isinstance(tasks, str | Path):
        return load_tasks(tasks)
    out: list[Task] = []
    for item in tasks:
        out += [item] if isinstance(item, Task) else load_tasks(item)
    return out
