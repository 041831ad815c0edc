"""What a conformance check is, what its steps may be, and how checks are run."""

from __future__ import annotations

import queue
import re
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import Any, Literal

from sandboxes.client import SupervisedSandbox
from sandboxes.opening import choose, open_sandbox
from sandboxes.sandbox import (
    Backend,
    CommandResult,
    EntryKind,
    FileEntry,
    Files,
    Limits,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
)

# -- What a conformance check is, what it may use while it runs, and what it can say ----------------------------------

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


# -- Running the checks: several sandboxes at the same time, a fresh one after any loss, stress in turn ---------------

LANES = 4
"""How many sandboxes (each with a neighbour where needed) are tried at the same time."""

Opener = Callable[[], SupervisedSandbox]


class Lane:
    """One sandbox that runs check after check, and its neighbour.

    Args:
        opener: Makes a sandbox that is not yet started.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._sandbox: SupervisedSandbox | None = None
        self._neighbour: SupervisedSandbox | None = None

    def judge(self, check: Check) -> Verdict:
        """Run one check. Raises SandboxUnavailable when the backend cannot work here."""
        begin = time.monotonic()
        status, detail = self._judge(check)
        return Verdict(check, status, detail, time.monotonic() - begin)

    def _judge(self, check: Check) -> tuple[Status, str]:
        try:
            sandbox = self._sandbox = self._sandbox or self._opener()
            if check.unsafe and sandbox.backend is Backend.LOCAL:
                return Status.EXCEPTION, UNSAFE
            sandbox.open(folders("here"))
            trial = Trial(sandbox, self._open_neighbour)
            check.body(trial)
            sandbox.reset()
            left = sandbox.listing()
            must(not left, f"left after a reset: {left[:5]}")
            return Status.OK, ""
        except SandboxUnavailable:
            raise
        except Exception as error:  # whatever a sandbox raises against its contract is a finding, not a crash
            # A refused request leaves its sandbox alive: then the machinery works, and the answer is wrong.
            lost = not all(
                each is not None and each.alive for each in {self._sandbox, self._neighbour or self._sandbox}
            )
            self.close()
            reason = None if sandbox is None else check.exceptions.get(sandbox.backend)
            if reason is not None:
                return Status.EXCEPTION, reason
            if isinstance(error, SandboxError) and lost:
                return Status.ERROR, str(error)
            return Status.WRONG, str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"

    def _open_neighbour(self) -> SupervisedSandbox:
        self._neighbour = self._neighbour or self._opener()
        self._neighbour.open({})
        return self._neighbour

    def close(self) -> None:
        """End both sandboxes; the next check gets fresh ones."""
        both, self._sandbox, self._neighbour = (self._sandbox, self._neighbour), None, None
        for sandbox in both:
            if sandbox is not None:
                sandbox.close()


def run_checks(checks: Sequence[Check], opener: Opener, *, lanes: int = LANES) -> Iterator[Verdict]:
    """Run checks in sandboxes that `opener` makes: first those that share the machine, then the others in turn.

    Args:
        checks: What to run.
        opener: Makes a sandbox that is not yet started.
        lanes: How many are tried at the same time.

    Yields:
        Verdicts in the order of `checks`, those of stressing checks last.

    Raises:
        SandboxUnavailable: The backend cannot work here.
    """
    calm = [check for check in checks if not check.stress]
    yield from _in_lanes(calm, opener, max(1, min(lanes, len(calm))))
    yield from _in_lanes([check for check in checks if check.stress], opener, 1)


def _in_lanes(checks: Sequence[Check], opener: Opener, number: int) -> Iterator[Verdict]:
    lanes = [Lane(opener) for _ in range(number)]
    free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def judge(check: Check) -> Verdict:
        lane = free.get()
        try:
            return lane.judge(check)
        finally:
            free.put(lane)

    threads = ThreadPoolExecutor(number, thread_name_prefix="conformance")
    try:
        yield from threads.map(judge, checks)
    finally:  # the caller may have stopped early
        threads.shutdown(cancel_futures=True)
        for lane in lanes:
            lane.close()


def conform(
    backend: Backend | str,
    *,
    only: Iterable[str] | None = None,
    limits: Limits | None = None,
    lanes: int = LANES,
    **options: Any,
) -> Iterator[Verdict]:
    """Run the conformance list on a backend.

    Args:
        backend: Which; `auto` is resolved as in `open_sandbox`.
        only: Names of checks, or of groups; default all.
        limits: What commands may use; default `Limits()`.
        lanes: How many sandboxes are tried at the same time.
        options: Options of the backend, as in `open_sandbox`.

    Yields:
        One verdict per check, as soon as it and all before it are known.

    Raises:
        SandboxUnavailable: The backend cannot work here.
        ValueError: No such backend, or no check or group of a name in `only`.
    """
    chosen, wanted = choose(backend), select(only)
    return run_checks(wanted, lambda: open_sandbox(chosen, limits=limits, **options), lanes=lanes)


def select(only: Iterable[str] | None = None) -> list[Check]:
    """The checks with these names, or in groups with these names; all when None.

    Raises:
        ValueError: No check and no group has one of the names.
    """
    from sandboxes.conformance import CHECKS

    if only is None:
        return list(CHECKS)
    names = set(only)
    unknown = names - {check.name for check in CHECKS} - {check.group for check in CHECKS}
    if unknown:
        groups = ", ".join(dict.fromkeys(check.group for check in CHECKS))
        raise ValueError(f"no conformance check or group is called {', '.join(sorted(unknown))}; groups: {groups}")
    return [check for check in CHECKS if check.name in names or check.group in names]


def passed(verdicts: Iterable[Verdict]) -> bool:
    """Whether nothing is wrong and nothing failed."""
    return all(verdict.status in (Status.OK, Status.EXCEPTION) for verdict in verdicts)


def summary(verdicts: Iterable[Verdict]) -> str:
    """One line that counts, such as `131 checks: 128 ok, 3 exceptions`."""
    verdicts = list(verdicts)
    counts = Counter(verdict.status for verdict in verdicts)
    words = {Status.EXCEPTION: ("exception", "exceptions"), Status.ERROR: ("error", "errors")}
    parts = []
    for status in Status:
        if counts[status] or status is Status.OK:
            one, many = words.get(status, (str(status), str(status)))
            parts.append(f"{counts[status]} {one if counts[status] == 1 else many}")
    return f"{len(verdicts)} checks: {', '.join(parts)}; {sum(verdict.seconds for verdict in verdicts):.0f} s of work"
