"""What a conformance check is, what it may use while it runs, and what it can say."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Literal

from sandboxes.client import SupervisedSandbox
from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry, Files, SandboxError, Snapshot

UNSAFE = "not run: unsafe without confinement"
"""Detail of a check that the local backend is spared."""
SECONDS = 20.0
"""Time-out of a command that must end by itself: long, because a busy machine is not what is judged here."""
HERE = "/workspace/here"
"""Where the shell stands when an attack begins."""


class Status(StrEnum):
    """What a check said."""

    OK = "ok"
    WRONG = "wrong"
    EXCEPTION = "exception"
    """It does not hold, and the documentation of this backend says so; or it was not run for that reason."""
    ERROR = "error"
    """The machinery failed: the sandbox was lost, or could not be started."""


class Wrong(Exception):
    """What a check demands does not hold."""


def must(holds: object, detail: str) -> None:
    """Raise `Wrong` with the detail unless it holds."""
    if not holds:
        raise Wrong(detail)


def brief(result: CommandResult) -> str:
    """A result in one line."""
    ended = " timed out" if result.timed_out else ""
    return f"exit code {result.exit_code}{ended}, stdout {_short(result.stdout)}, stderr {_short(result.stderr)}"


def _short(data: bytes) -> str:
    text = repr(data[:120] + b" ... " + data[-120:] if len(data) > 300 else data)
    return text[1:]


class Trial:
    """One run of one check: a sandbox at the start of an episode, and a neighbour when asked for.

    Args:
        sandbox: Opened, with the empty directory `here`.
        neighbour: Opens a second sandbox of the same backend, which lives at the same time.
    """

    def __init__(self, sandbox: SupervisedSandbox, neighbour: Callable[[], SupervisedSandbox]) -> None:
        self.sandbox = sandbox
        self.backend = sandbox.backend
        self.limits = sandbox.limits
        self.token = "tg" + secrets.token_hex(8)
        """A word that stands nowhere else."""
        self._open_neighbour = neighbour

    @cached_property
    def neighbour(self) -> SupervisedSandbox:
        """The second sandbox, opened when it is first asked for."""
        return self._open_neighbour()

    def fill(self, text: Command) -> str:
        """Put in what a row does not know: `@token@`, and limits by their names, such as `@open_files@`."""
        if not isinstance(text, str):
            return text(self)
        known = {"token": self.token, **asdict(self.limits)}
        return re.sub(r"@([a-z_]+)@", lambda found: str(known[found[1]]), text)

    def run(self, command: str, *, timeout: float = SECONDS, clean: bool = False) -> CommandResult:
        """Run a command."""
        return self.sandbox.run(command, timeout=timeout, state="clean" if clean else "agent")

    def out(self, command: str) -> str:
        """Stdout of a command that must succeed. Raises Wrong."""
        result = self.run(command)
        must(result.exit_code == 0, f"{command!r}: {brief(result)}")
        return result.stdout_text

    def attack(self, command: str, *, timeout: float = SECONDS, where: str = HERE) -> CommandResult:
        """Run a hostile command: afterwards the session must live, its directory and a variable as before.

        Args:
            command: The attack.
            timeout: Seconds; an attack that never ends by itself gets a short one.
            where: Directory that the shell stands in.
        """
        ready = self.run(f"export KEPT={self.token}; cd {where}")
        must(ready.exit_code == 0, f"could not prepare: {brief(ready)}")
        result = self.run(command, timeout=timeout)
        self.lives(where, result)
        return result

    def lives(self, where: str = HERE, result: CommandResult | None = None) -> None:
        """The session answers, with the directory and the variable that `attack` set. Raises Wrong."""
        # Programs by their path: an attack may have redefined every word of the shell.
        probe = self.run("/usr/bin/printenv KEPT; /bin/pwd")
        seen = f"; the attack gave {brief(result)}" if result is not None else ""
        must(probe.stdout == f"{self.token}\n{where}\n".encode(), f"afterwards {brief(probe)}{seen}")

    def again(self) -> None:
        """End the episode and begin the next one in the same sandbox."""
        self.sandbox.open({})


Command = str | Callable[[Trial], str]
"""A command of a row, or what makes it from a trial."""
Step = Callable[[Trial], object]
"""One thing that a check does: it raises Wrong, or SandboxError when the machinery fails."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every backend must hold.

    Attributes:
        name: What must hold, in words joined by dashes.
        group: Theme.
        body: Runs it.
        about: What is tried, in one line.
        exceptions: Backends that need not hold it, with the documented reason.
        stress: It uses up the machine for a moment, so nothing else is tried at the same time.
        unsafe: It would harm a host without confinement, so the local backend is spared.
    """

    name: str
    group: str
    body: Step = field(repr=False, compare=False)
    about: str = ""
    exceptions: Mapping[Backend, str] = field(default_factory=dict, hash=False)
    stress: bool = False
    unsafe: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one check said about one backend.

    Attributes:
        check: Which.
        status: How it went.
        detail: What was seen, or the reason of an exception; empty when all is well.
        seconds: How long it took.
    """

    check: Check
    status: Status
    detail: str
    seconds: float

    def __str__(self) -> str:
        detail = " ".join(self.detail.split())
        return f"{self.status:<9} {self.check.name}" + (f"  ({detail})" if detail else "")


class Group:
    """Collects the checks of one theme: rows of a table, and functions where a row cannot say it.

    Args:
        name: The theme.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def table(self, *rows: Check) -> None:
        """Add rows, as `attack` and `check` make them."""
        self.checks += [replace(row, group=self.name) for row in rows]

    def check(
        self, *, exceptions: Mapping[Backend, str] | None = None, stress: bool = False, unsafe: bool = False
    ) -> Callable[[Step], Step]:
        """Make a function a check: its name and its first line say what must hold and what is tried."""

        def add(body: Step) -> Step:
            about = (body.__doc__ or "").strip().splitlines()[0]
            name = body.__name__.replace("_", "-")
            self.table(check(name, about, body, exceptions=exceptions, stress=stress, unsafe=unsafe))
            return body

        return add


# --- rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """A step: one command, and what its result must be.

    Attributes:
        command: What is run, filled in by `Trial.fill`.
        code: The exit code; any when None.
        fails: The exit code is not 0.
        out: All of stdout. As in all bytes here, `@token@` is filled in.
        err: All of stderr.
        has: What stdout contains.
        says: What stderr contains.
        lacks: What stdout does not contain.
        timed_out: Whether its time ended it; either when None.
        holds: What else must be true of result and trial.
        attack: Afterwards the session must live, its directory and a variable as before (`Trial.attack`).
        where: Where an attack begins.
        timeout: Seconds; an attack that never ends by itself gets a short one.
        clean: Run as a grader's command.
        keep: What it leaves running lives on.
        next_door: Run in the second sandbox.
        beside: Command that runs in the first sandbox meanwhile, and prints `ready`.
    """

    command: Command
    _: KW_ONLY
    code: int | None = None
    fails: bool = False
    out: bytes | None = None
    err: bytes | None = None
    has: bytes = b""
    says: bytes = b""
    lacks: tuple[bytes, ...] = ()
    timed_out: bool | None = False
    holds: Callable[[CommandResult, Trial], object] | None = None
    attack: bool = False
    where: str = HERE
    timeout: float = SECONDS
    clean: bool = False
    keep: bool = False
    next_door: bool = False
    beside: Command = ""

    def __call__(self, trial: Trial) -> None:
        """Run it. Raises Wrong, SandboxError."""
        command = trial.fill(self.command)
        with ThreadPoolExecutor(1) as thread:
            sandbox = trial.neighbour if self.next_door else trial.sandbox
            running = thread.submit(trial.run, trial.fill(self.beside)) if self.beside else None
            if self.attack:
                result = trial.attack(command, timeout=self.timeout, where=self.where)
            else:
                state: Literal["clean", "agent"] = "clean" if self.clean else "agent"
                result = sandbox.run(command, timeout=self.timeout, state=state, keep_background=self.keep)
            must(self._right(result, trial), f"{command[:300]!r}: {brief(result)}")
            if running is not None:
                here = running.result()
                must(b"ready" in here.stdout, f"the first sandbox did not get ready: {brief(here)}")

    def _right(self, result: CommandResult, trial: Trial) -> bool:
        def filled(data: bytes) -> bytes:
            return trial.fill(data.decode("latin-1")).encode("latin-1")

        return (
            self.timed_out in (None, result.timed_out)
            and self.code in (None, result.exit_code)
            and not (self.fails and result.exit_code == 0)
            and (self.out is None or result.stdout == filled(self.out))
            and (self.err is None or result.stderr == filled(self.err))
            and filled(self.has) in result.stdout
            and filled(self.says) in result.stderr
            and not any(filled(word) in result.stdout for word in self.lacks)
            and (self.holds is None or bool(self.holds(result, trial)))
        )


Attack = partial(Run, attack=True)
"""A step: one hostile command. Afterwards the session must live."""


def check(
    name: str,
    about: str,
    *steps: Step,
    exceptions: Mapping[Backend, str] | None = None,
    stress: bool = False,
    unsafe: bool = False,
) -> Check:
    """A row: what must hold, what is tried in one line, and its steps. For the rest see `Check`."""

    def body(trial: Trial) -> None:
        for step in steps:
            step(trial)

    return Check(name, "", body, about, exceptions or {}, stress, unsafe)


def attack(
    name: str,
    command: str,
    *,
    exceptions: Mapping[Backend, str] | None = None,
    stress: bool = False,
    unsafe: bool = False,
    **holds: Any,
) -> Check:
    """A row of one hostile command; `holds` is what `Run` demands of its result."""
    about = command if len(command) <= 100 else command[:97] + "..."
    return check(name, about, Attack(command, **holds), exceptions=exceptions, stress=stress, unsafe=unsafe)


def again(trial: Trial) -> None:
    """A step: the episode ends, and the next one begins in the same sandbox."""
    trial.again()


def meet(trial: Trial) -> None:
    """A step: the neighbour is opened, so that what comes after cannot be wiped by its start."""
    assert trial.neighbour.alive


def lives(where: str = HERE) -> Step:
    """A step: the session answers, see `Trial.lives`."""
    return lambda trial: trial.lives(where)


def puts(files: Files) -> Step:
    """A step: files go in."""
    return lambda trial: trial.sandbox.put(files)


def reads(path: str, content: bytes) -> Step:
    """A step: a file has this content."""

    def step(trial: Trial) -> None:
        found = trial.sandbox.read(path)
        must(found == content, f"{path!r} holds {_short(found)}")

    return step


def sees(what: str, holds: Callable[[Snapshot], object]) -> Step:
    """A step: a snapshot is as it should be."""

    def step(trial: Trial) -> None:
        found = trial.sandbox.snapshot()
        must(holds(found), f"not so: {what}; the snapshot has {sorted(found)[:20]}")

    return step


def must_refuse(call: Callable[[], object], what: str, kinds: tuple[type[Exception], ...] = (SandboxError,)) -> None:
    """Raise `Wrong` unless a call raises one of these exceptions."""
    try:
        found = call()
    except kinds:
        return
    seen = brief(found) if isinstance(found, CommandResult) else repr(found)[:200]
    raise Wrong(f"{what}: {seen}")


def gone(*, files: str = "/proc/[0-9]*/cmdline", before: str = "", **where: Any) -> Run:
    """A step: no process has the token in its command line (or in other files of /proc)."""
    return Run(lambda trial: before + holders(files, trial.token), fails=True, out=b"", **where)


# --- commands ---------------------------------------------------------------------------------------------------------


def python(code: str, *words: str) -> str:
    """A command that runs a Python program inside, with arguments."""
    return shlex.join(["python3", "-c", code, *words])


def folders(*paths: str) -> dict[str, FileEntry]:
    """Empty directories to put."""
    return {path: FileEntry(EntryKind.DIR) for path in paths}


def holders(files: str, word: str) -> str:
    """A command that names the files which hold a word, and fails when there are none.

    The word is put together at run time and never an argument, so that the search does not find itself; the names are
    few, where the contents might be cut.
    """
    return f'w={word[:4]}; w=${{w}}{word[4:]}; echo "$w" | grep -alF -f - {files} 2>/dev/null'


def without(*backends: Backend, reason: str) -> dict[Backend, str]:
    """The same documented exception of several backends."""
    return dict.fromkeys(backends, reason)


OPEN = without(Backend.LOCAL, reason="no confinement: commands can see and do whatever you can")
SEES = {**OPEN, Backend.LANDLOCK: "/proc shows the host's processes and their command lines"}
