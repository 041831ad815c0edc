"""The sandbox contract: what every backend offers, and the values that cross it.

A sandbox is a workspace plus a bash that cannot be lost: each command runs in a fresh bash into which the state of
the last one (directory, variables, functions, aliases, options) is restored. Nothing of the answer is in band:
stdout and stderr are two pipes, the exit code is the real wait status.

Failure model
    * What the command did (exit code, time-out, flood) is a `CommandResult`, never an exception.
    * What the machinery did (supervisor died, host deadline passed, broken frame) is a `SandboxError`: an
      infrastructure failure, which must never be turned into a reward.
    * A backend that cannot work on this machine is a `SandboxUnavailable`, with the reason and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, Protocol, Self, runtime_checkable


class Backend(StrEnum):
    """How the supervisor is confined."""

    DOCKER = "docker"
    """A container, through an engine's socket."""
    BUBBLEWRAP = "bubblewrap"
    """Linux namespaces, through the `bwrap` program."""
    LANDLOCK = "landlock"
    """Landlock and rlimits only: no package, no root, works inside default containers."""
    LOCAL = "local"
    """No confinement. Only for commands you would run yourself; never chosen by `auto`."""


MOUNTS_FOLDERS = (Backend.DOCKER, Backend.BUBBLEWRAP)
"""Backends with namespaces, which can give judges folders at the root, and judge by what runs inside."""

REMOTE = "ray:"
"""Before the name of a backend: on the nodes of a Ray cluster."""
NAMES = ("auto", *Backend, *(f"{REMOTE}{backend}" for backend in Backend))
"""What names a sandbox. `auto` is none of those that confine nothing, and never on a cluster."""


def backend_of(name: str) -> Backend:
    """What confines a sandbox of this name, wherever it runs; not for `auto`.

    Raises:
        ValueError: No such sandbox.
    """
    try:
        return Backend(name.removeprefix(REMOTE))
    except ValueError:
        raise ValueError(f"unknown sandbox backend {name!r}; known: {', '.join(NAMES)}") from None


class JudgeIsolation(StrEnum):
    """Whether what a grader's command starts of the agent's can reach the grader. A sandbox is `FULL` or `NONE`."""

    FULL = "full"
    """It can neither read nor write the grader's files, nor the memory, descriptors or verdict of a process of it."""
    SEPARATE = "separate"
    """The same, and the judge ran in a fresh sandbox, which got nothing but the workspace."""
    SHARED = "shared"
    """The same, but processes of the agent ran on beside the judge: what it asks of them they may answer as they like,
    and the workspace may change while it looks."""
    NONE = "none"
    """Nothing keeps it from that."""


class SandboxError(RuntimeError):
    """The machinery failed, not the command. Never a reward; counted and shown."""


class SandboxUnavailable(SandboxError):
    """A backend cannot work here. The message names each probe that failed, and the remedy."""


class SandboxOutage(SandboxUnavailable):
    """No engine answers. One that answered before may be restarting: a pool waits for it."""


class EntryKind(StrEnum):
    """What stands at a path of the workspace."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"
    OTHER = "other"
    """A fifo, socket or device: never opened, only named."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One path of a workspace, going in or coming out.

    Attributes:
        kind: File, directory, symbolic link, or something that is never opened.
        content: Bytes of a file; `None` when the file is larger than the snapshot's cap or is no file.
        mode: Permission bits (0o777 mask).
        target: Where a symbolic link points; links are reported, never followed.
        size: Bytes of a file as the file system says, also when `content` is `None`.
    """

    kind: EntryKind = EntryKind.FILE
    content: bytes | None = b""
    mode: int = 0o644
    target: str | None = None
    size: int | None = None


Files = Mapping[str, FileEntry | bytes | str]
"""Workspace paths (relative, `/` between parts) to what stands there; bytes and text are files of mode 0644."""


class Snapshot(dict[str, FileEntry]):
    """Every path of the workspace, sorted; a directory's path has no trailing slash.

    Attributes:
        cut: Paths are missing, because there were too many, too long or too deep ones: the shallowest are here, and of
            no other path it can be said that nothing stands there.
    """

    def __init__(self, entries: Mapping[str, FileEntry] | None = None, *, cut: bool = False) -> None:
        super().__init__(entries or {})
        self.cut = cut


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What one command did.

    Attributes:
        exit_code: The real wait status as bash would report it (128 + signal when killed).
        stdout: Bytes, cut to head and tail at `Limits.output_bytes`, with a marker where bytes are missing.
        stderr: Likewise.
        timed_out: The command outran its time; every process of the sandbox was killed, partial output kept.
        truncated: Some output is missing (cap or flood).
        seconds: Wall time inside the sandbox.
    """

    exit_code: int
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    truncated: bool = False
    seconds: float = 0.0

    @property
    def stdout_text(self) -> str:
        """Stdout as text; invalid UTF-8 is replaced, never raised."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def stderr_text(self) -> str:
        """Stderr as text; invalid UTF-8 is replaced, never raised."""
        return self.stderr.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use. Sizes in the unit of their name; times in seconds."""

    command_seconds: float = 10.0
    output_bytes: int = 64 * 1024
    flood_bytes: int = 8 * 1024 * 1024
    command_bytes: int = 1024 * 1024
    memory_mb: int = 256
    processes: int = 128
    workspace_mb: int = 64
    tmp_mb: int = 16
    file_mb: int = 64
    open_files: int = 1024
    snapshot_file_bytes: int = 1024 * 1024
    snapshot_entries: int = 20_000


@dataclass(frozen=True, slots=True)
class Terms:
    """What one episode asks of its sandbox, beside or instead of what the sandbox has.

    Attributes:
        environment: Variables of every command of the episode: of the agent's, graders', and services.
        image: Image of the container, instead of the one the sandbox was opened with. Only docker has images.
        limits: Names and values of `Limits`, instead of those the sandbox was opened with.
        folders: Folders at the root that judges alone have, beside `$GRADER`: empty before and after a judge. Only
            docker and bubblewrap can mount them (`MOUNTS_FOLDERS`).
        network: For a judge that installs packages: the name of a network of the engine, which the container has beside
            a user that is root and may write to the system. Only docker has it, and no judge there is kept apart from
            what it starts.
        background: What commands leave running runs on beside later commands, and beside judges, which it cannot
            reach where `judge_isolation` is full; a command that times out or floods ends it. As `folders`.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    limits: Mapping[str, int] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    network: str | None = None
    background: bool = False


@runtime_checkable
class Sandbox(Protocol):
    """A place where commands run. One user at a time; not thread-safe, but each may live on its own thread."""

    backend: Backend
    limits: Limits

    def open(self, files: Files, *, workdir: str | None = None, terms: Terms | None = None) -> None:
        """Start an episode: leave nothing of the last one, then put `files` into the empty workspace.

        Raises:
            SandboxUnavailable: The terms ask for what this backend has not.
        """

    def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        state: Literal["agent", "clean"] = "agent",
        keep_background: bool = False,
    ) -> CommandResult:
        """Run one command (any length, any lines) in a fresh bash.

        Args:
            command: The text, as typed; it may hold newlines, heredocs, quotes.
            timeout: Seconds; default `Limits.command_seconds`.
            state: `agent` restores and then keeps the shell state of the last command; `clean` starts from the
                state of a new sandbox and keeps nothing (for graders and oracles).
            keep_background: Let processes that the command leaves behind run on, until a command without this ends,
                or the episode. A time-out or a flood ends them all the same. They should redirect their output: the
                pipes of their command are closed.

        Raises:
            SandboxError: The machinery failed or its own deadline passed.
        """

    def serve(self, command: str) -> None:
        """Start a service: a command from clean state that runs on when others end, time out or flood.

        It must stay in the foreground: what it leaves without a parent ends with the next command. What it prints goes
        nowhere. Services end before a judge, and with the episode; what they use counts against the limits of the
        sandbox. Commands of the agent have the same user, and may be able to end them.
        """

    def services(self) -> list[int | None]:
        """Exit codes of the episode's services, in the order of `serve`; None for one that runs."""

    def end_services(self) -> None:
        """Kill the services of the episode."""

    def seal(self) -> None:
        """Leave nothing of what ran so far but services and what it made of the workspace.

        Every process else ends, and all other places that commands may write to (`/tmp`, `/dev/shm`) are emptied. For
        what makes the start of an episode before its agent comes. Shell state is kept: run such commands `clean`.

        Raises:
            SandboxError: The machinery failed, or what was left could not be removed in time.
        """

    @property
    def judge_isolation(self) -> JudgeIsolation:
        """What `judge` can promise here: proven by a judge with a program that tries."""

    def judge(
        self, command: str, files: Mapping[str, str], *, timeout: float, env: Mapping[str, str], private: bool
    ) -> CommandResult:
        """Run a grader's command in the workspace, out of reach of what the agent wrote. Ends everything else first.

        Fifos, sockets and devices are removed from the workspace: a judge that opens one would wait for ever. Programs
        that the command starts are the agent's unless they are named as the grader's (see `docs/sandboxes.md`).

        Args:
            command: Bash text. `$GRADER` is the folder of `files`; only the judge sees what is in it.
            files: Paths in that folder, and what stands there; gone when this returns.
            timeout: Seconds that count: waiting for a busy machine does not.
            env: Variables beside those of a new shell.
            private: Stdout is a verdict: the agent's programs print nothing to it.

        Raises:
            SandboxError: The machinery failed.
        """

    def put(self, files: Files) -> None:
        """Add or replace paths of the workspace. Follows no links; refuses paths that leave the workspace."""

    def read(self, path: str) -> bytes:
        """Bytes of one regular file of the workspace. Raises FileNotFoundError or SandboxError; follows no links."""

    def listing(self) -> list[str]:
        """Sorted relative paths; directories end in `/`."""

    def snapshot(self) -> Snapshot:
        """Every path of the workspace with its content (up to the caps; `Snapshot.cut` says when paths are missing)."""

    def snapshot_hash(self) -> str:
        """A hash of all paths, kinds, modes and contents (up to the caps): equal workspaces, equal hashes."""

    def spawn(self, program: str, *, timeout: float | None = None) -> Any:
        """A pexpect spawn of an interactive program in the workspace."""

    def twin(self) -> Sandbox:
        """Another sandbox of the same kind, not started; the caller closes it."""

    def reset(self) -> None:
        """Back to an empty workspace and a new shell; every process of the last episode is gone."""

    def close(self) -> None:
        """End it. Idempotent; nothing stays behind."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc: object) -> None: ...
