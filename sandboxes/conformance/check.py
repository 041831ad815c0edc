"""What a conformance check is, what it may use while it runs, and what it can say."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxes.client import SupervisedSandbox
from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry

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


def must_find_nothing(result: CommandResult, what: str) -> None:
    """Raise `Wrong` unless a search ran to its end and printed nothing."""
    must(result.exit_code == 0 and result.stdout == b"", f"{what}: {brief(result)}")


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
        self.neighbour = neighbour
        self.backend = sandbox.backend
        self.limits = sandbox.limits
        self.token = "tg" + secrets.token_hex(8)
        """A word that stands nowhere else."""

    def run(self, command: str, *, timeout: float = SECONDS, clean: bool = False) -> CommandResult:
        """Run a command."""
        return self.sandbox.run(command, timeout=timeout, state="clean" if clean else "agent")

    def out(self, command: str, **options: bool) -> str:
        """Stdout of a command that must succeed. Raises Wrong."""
        result = self.run(command, **options)
        must(result.exit_code == 0, f"{command!r}: {brief(result)}")
        return result.stdout_text

    def python(self, code: str, *words: str, timeout: float = SECONDS) -> CommandResult:
        """Run a Python program inside."""
        return self.run(python(code, *words), timeout=timeout)

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


Body = Callable[[Trial], None]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that every backend must hold.

    Attributes:
        name: What must hold, in words joined by dashes.
        group: Theme.
        body: Runs it; raises Wrong, or SandboxError when the machinery fails.
        about: What is tried, in one line.
        exceptions: Backends that need not hold it, with the documented reason.
        stress: It uses up the machine for a moment, so nothing else is tried at the same time.
        unsafe: It would harm a host without confinement, so the local backend is spared.
    """

    name: str
    group: str
    body: Body = field(repr=False, compare=False)
    about: str = ""
    exceptions: Mapping[Backend, str] = field(default_factory=dict, hash=False)
    stress: bool = False
    unsafe: bool = False

    def __str__(self) -> str:
        return self.name


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
    """Collects the checks of one theme.

    Args:
        name: The theme.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks: list[Check] = []

    def check(
        self, *, exceptions: Mapping[Backend, str] | None = None, stress: bool = False, unsafe: bool = False
    ) -> Callable[[Body], Body]:
        """Make a function a check: its name and its first line say what must hold and what is tried."""

        def add(body: Body) -> Body:
            name = body.__name__.replace("_", "-")
            about = (body.__doc__ or "").strip().splitlines()[0]
            self.checks.append(Check(name, self.name, body, about, exceptions or {}, stress, unsafe))
            return body

        return add

    def attack(
        self,
        name: str,
        command: str,
        holds: Callable[[CommandResult], object],
        *,
        timeout: float = SECONDS,
        exceptions: Mapping[Backend, str] | None = None,
        stress: bool = False,
        unsafe: bool = False,
    ) -> None:
        """Make a hostile command a check.

        Args:
            name: What must hold.
            command: What is run.
            holds: What its result must fulfil; that the session lives is always asked.
            timeout: Seconds of the command.
            exceptions: See `Check`.
            stress: See `Check`.
            unsafe: See `Check`.
        """

        def body(trial: Trial) -> None:
            result = trial.attack(command, timeout=timeout)
            must(holds(result), brief(result))

        about = command if len(command) <= 100 else command[:97] + "..."
        self.checks.append(Check(name, self.name, body, about, exceptions or {}, stress, unsafe))


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
