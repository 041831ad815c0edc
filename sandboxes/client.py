"""The outside half of a sandbox: requests, deadlines, restarts. The same for every backend.

A request that is not answered `GRACE` seconds after its command's own time-out means that the machinery is lost: the
sandbox is destroyed and `SandboxError` raised. From then on it is dead; `open()` starts a fresh one.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal, Self

from sandboxes.boot import GRADER, PathAlias, check_path, encoded, rows_of, snapshot_of
from sandboxes.inside.frames import BrokenFrame, FrameBuffer, pack
from sandboxes.inside.processes import Budget
from sandboxes.inside.shell import NO_BASH
from sandboxes.sandbox import (
    Backend,
    CommandResult,
    FileEntry,
    Files,
    JudgeIsolation,
    Limits,
    SandboxError,
    SandboxUnavailable,
    Snapshot,
    Terms,
)
from sandboxes.starting import make_room, no_room
from sandboxes.transport import DeadlinePassed, Launcher, Transport, TransportClosed

if TYPE_CHECKING:
    from sandboxes.terminal import SandboxSpawn

GRACE = 5.0
"""Seconds that the host waits beyond the time-out of a command."""
REQUEST_SECONDS = 60.0
"""Deadline of a request that runs no command."""
START_SECONDS = 30.0
_PROOF = """cat "$GRADER/secret"
F=$GRADER/secret sh -c 'cat "$F" /proc/$PPID/environ; echo forged' 2>/dev/null
! F=$GRADER/secret sh -c ': <"$F" || : >"$F"' 2>/dev/null
"""
"""A judge that shows whether it is apart: it reads its file, what it starts does not, nor prints for it."""
STARTS = 3
"""How often `open` tries to start a supervisor before it gives up."""


class JudgeFailed(SandboxError):
    """A judge could not be kept apart from what it judges."""


class _Retired(SandboxError):
    """What the episodes left behind is too much to be cleaned up: another supervisor takes over."""


class SupervisedSandbox:
    """A `Sandbox` whose commands run under a supervisor. The launcher decides how that one is confined.

    Nothing is started before the first call that needs it. One user at a time.

    Args:
        launcher: Starts supervisors.
        name: As `open_sandbox` takes it, where it says more than the backend.
    """

    def __init__(self, launcher: Launcher, name: str = "") -> None:
        self._launcher = launcher
        self.name = name or str(launcher.backend)
        """What opens another one like it."""
        self.backend: Backend = launcher.backend
        self.limits: Limits = launcher.limits
        self.starts = 0
        """How many supervisors this object has started."""
        self._transport: Transport | None = None
        self._alias = PathAlias("/workspace", "/workspace")
        self._workdir: str | None = None
        self._terms = Terms()
        self._buffer = FrameBuffer()
        self._next_id = 0
        self._failure: SandboxError | None = None
        self._isolation: JudgeIsolation | None = None
        self._closed = False
        self._program: Any = None

    # --- episodes ---------------------------------------------------------------------------------------------------

    @property
    def alive(self) -> bool:
        """Whether a supervisor stands ready."""
        return self._transport is not None

    @property
    def workspace(self) -> str:
        """Absolute path of the workspace as commands see it."""
        return self._alias.shown

    def warm(self) -> None:
        """Start the supervisor now, so that the first episode need not wait for it."""
        self._ensure(self._workdir, self._terms)

    def open(self, files: Files, *, workdir: str | None = None, terms: Terms | None = None) -> None:
        """See `Sandbox.open`. A dead sandbox is started anew (at most `STARTS` tries)."""
        terms = terms or Terms()
        rows = rows_of(files, self._alias_of(workdir))
        if not self._ensure(workdir, terms):
            try:
                self._lay(rows, terms)
                return
            except _Retired:  # the last episode's doing, and no error of this one
                self._drop()
                self._ensure(workdir, terms)
        self._lay(rows_of(files, self._alias), terms)

    def _lay(self, rows: tuple[list[list[Any]], bytes], terms: Terms) -> None:
        entries, body = rows
        inward = {name: self._alias.inward(encoded(value)) for name, value in terms.environment.items()}
        environment = {name: value.decode("utf-8", "surrogateescape") for name, value in inward.items()}
        self._request({"op": "open", "entries": entries, "environment": environment}, body)

    def reset(self) -> None:
        """See `Sandbox.reset`. Starts a fresh supervisor when there is none, and when the old one retires."""
        if not self._ensure(self._workdir, self._terms):
            try:
                self._request({"op": "reset"})
            except _Retired:
                self._drop()
                self._ensure(self._workdir, self._terms)

    def twin(self) -> SupervisedSandbox:
        """See `Sandbox.twin`."""
        return SupervisedSandbox(self._launcher, self.name)

    def close(self) -> None:
        """See `Sandbox.close`."""
        self._closed = True
        self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- commands ---------------------------------------------------------------------------------------------------

    def run(
        self,
        command: str,
        *,
        timeout: float | None = None,
        state: Literal["agent", "clean"] = "agent",
        keep_background: bool = False,
    ) -> CommandResult:
        """See `Sandbox.run`."""
        reply, body = self._run("run", command, timeout, state, keep_background)
        return self._result(reply, body)

    def run_and_snapshot(
        self,
        command: str,
        *,
        timeout: float | None = None,
        state: Literal["agent", "clean"] = "agent",
        keep_background: bool = False,
    ) -> tuple[CommandResult, Snapshot]:
        """`run` and then `snapshot`, in one round trip."""
        reply, body = self._run("run_snapshot", command, timeout, state, keep_background)
        return self._result(reply, body), self._snapshot(reply, body[reply["out"] + reply["err"] :])

    def serve(self, command: str) -> None:
        """See `Sandbox.serve`."""
        self._request({"op": "serve"}, self._alias.inward(encoded(command)))

    def services(self) -> list[int | None]:
        """See `Sandbox.services`."""
        return list(self._request({"op": "services"})[0]["codes"])

    def end_services(self) -> None:
        """See `Sandbox.end_services`."""
        self._request({"op": "end_services"})

    def seal(self) -> None:
        """See `Sandbox.seal`."""
        self._request({"op": "seal"})

    def _run(
        self, op: str, command: str, timeout: float | None, state: str, keep_background: bool
    ) -> tuple[dict[str, Any], bytes]:
        if state not in ("agent", "clean"):
            raise ValueError(f"state must be 'agent' or 'clean', not {state!r}")
        seconds = self.limits.command_seconds if timeout is None else float(timeout)
        if not 0 < seconds < float("inf"):
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}")
        text = self._alias.inward(encoded(command))
        keep = bool(keep_background) or self._terms.background
        head = {"op": op, "timeout": seconds, "clean": state == "clean", "keep_background": keep}
        # Looking at the files afterwards may take as long as any look: they are the agent's, and may be many.
        return self._request(head, text, seconds + (REQUEST_SECONDS if op == "run_snapshot" else GRACE))

    def _result(self, reply: dict[str, Any], body: bytes) -> CommandResult:
        out, err = reply["out"], reply["err"]
        return CommandResult(
            exit_code=reply["exit_code"],
            stdout=self._alias.outward(body[:out]),
            stderr=self._alias.outward(body[out : out + err]),
            timed_out=reply["timed_out"],
            truncated=reply["truncated"],
            seconds=reply["seconds"],
        )

    def spawn(self, program: str, *, timeout: float | None = None) -> SandboxSpawn:
        """See `Sandbox.spawn`. While the program runs, no other request may be made; closing it frees the sandbox.

        Args:
            program: A command line, run by bash with the shell state of the episode, on a pseudo-terminal.
            timeout: Default seconds of `expect`; default `Limits.command_seconds`.
        """
        from sandboxes.terminal import SandboxSpawn  # pexpect is needed by nothing else

        rows, columns = SandboxSpawn.ROWS, SandboxSpawn.COLUMNS
        head = {"op": "spawn", "rows": rows, "columns": columns}
        reply, _ = self._request(head, self._alias.inward(program.encode("utf-8", "surrogateescape")))
        if reply.get("event") != "started":
            raise self._lost(SandboxError(f"spawn answered {reply}"))
        self._program = SandboxSpawn(self, self.limits.command_seconds if timeout is None else timeout)
        return self._program

    def stream_send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """One frame to the interactive program. For `sandboxes.terminal` only. Raises SandboxError."""
        if self._transport is None:
            raise self._dead()
        try:
            self._transport.send(pack(head, self._alias.inward(body)), time.monotonic() + REQUEST_SECONDS)
        except SandboxError as error:
            raise self._lost(error) from error

    def stream_receive(self, seconds: float) -> tuple[dict[str, Any], bytes] | None:
        """One frame of the interactive program, None when none comes in time. Raises SandboxError."""
        if self._transport is None:
            raise self._dead()
        try:
            head, body = self._receive(time.monotonic() + seconds)
            return head, self._alias.outward(body)
        except DeadlinePassed:
            return None
        except (SandboxError, BrokenFrame) as error:
            raise self._lost(error) from error

    def stream_over(self) -> None:
        """The interactive program ended: other requests may be made again."""
        self._program = None

    # --- judges -----------------------------------------------------------------------------------------------------

    @property
    def judge_isolation(self) -> JudgeIsolation:
        """See `Sandbox.judge_isolation`. Found out once for each supervisor."""
        if self.backend is Backend.LOCAL:  # what a command changed outside of the workspace is there for every judge
            return JudgeIsolation.NONE
        if self._terms.network:  # root may write to the system that its judge is made of
            return JudgeIsolation.NONE
        if self._isolation is None:
            self._ensure(self._workdir, self._terms)
            self._isolation = self._prove_isolation()
        return self._isolation

    def _prove_isolation(self) -> JudgeIsolation:
        try:
            result = self._judge(_PROOF, {"secret": "kept"}, 5.0, {}, private=True, apart=True)
        except JudgeFailed:
            return JudgeIsolation.NONE
        return JudgeIsolation.FULL if result.stdout == b"kept" and result.exit_code == 0 else JudgeIsolation.NONE

    def judge(
        self, command: str, files: Mapping[str, str], *, timeout: float, env: Mapping[str, str], private: bool
    ) -> CommandResult:
        """See `Sandbox.judge`."""
        apart = self.judge_isolation is JudgeIsolation.FULL
        return self._judge(command, files, timeout, env, private, apart)

    def _judge(
        self,
        command: str,
        files: Mapping[str, str],
        timeout: float,
        env: Mapping[str, str],
        private: bool,
        apart: bool,
    ) -> CommandResult:
        inward = self._alias.inward
        laid = {path: FileEntry(content=inward(encoded(text)), mode=0o600) for path, text in files.items()}
        entries, body = rows_of(laid, self._alias)
        folder = secrets.token_hex(8)
        head = {"op": "judge", "folder": folder, "entries": entries, "timeout": timeout, "env": dict(env)}
        head.update(private=private, apart=apart, beside=self._terms.background)
        reply, said = self._request(head, body + inward(encoded(command)), Budget(timeout).wall + GRACE)
        # Equal runs must read equal, so the name that was drawn does not show (in a traceback, for example).
        drawn, result = f"{GRADER}/{folder}".encode(), self._result(reply, said)
        stdout, stderr = (text.replace(drawn, GRADER.encode()) for text in (result.stdout, result.stderr))
        return replace(result, stdout=stdout, stderr=stderr)

    # --- files ------------------------------------------------------------------------------------------------------

    def put(self, files: Files) -> None:
        """See `Sandbox.put`."""
        entries, body = rows_of(files, self._alias)
        self._request({"op": "put", "entries": entries}, body)

    def read(self, path: str) -> bytes:
        """See `Sandbox.read`."""
        check_path(path)
        return self._alias.outward(self._request({"op": "read", "path": path})[1])

    def listing(self) -> list[str]:
        """See `Sandbox.listing`."""
        return list(self._request({"op": "listing"})[0]["paths"])

    def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`. Of more than `Limits.snapshot_entries` paths the shallowest are kept."""
        reply, body = self._request({"op": "snapshot"})
        return self._snapshot(reply, body)

    def _snapshot(self, reply: dict[str, Any], body: bytes) -> Snapshot:
        return snapshot_of(reply["rows"], body, reply["cut"], self._alias)

    def snapshot_hash(self) -> str:
        """See `Sandbox.snapshot_hash`: SHA-256 in hexadecimal, computed where the files are.

        Of more than four workspaces of files, holes counted, the largest count only by their sizes.
        """
        rows = self._request({"op": "digests"})[0]["rows"]
        for row in rows:
            row[3] = None if row[3] is None else self._alias.outward_text(row[3])
        return sha256(json.dumps(rows, separators=(",", ":")).encode()).hexdigest()

    # --- the wire ---------------------------------------------------------------------------------------------------

    def _alias_of(self, workdir: str | None) -> PathAlias:
        return self._alias if workdir is None or workdir == self._alias.shown else PathAlias(workdir, workdir)

    def _ensure(self, workdir: str | None, terms: Terms) -> bool:
        """Have a supervisor with this workdir, image and limits; True when it was started just now."""
        if self._closed:
            raise SandboxError("this sandbox was closed; open a new one with open_sandbox()")
        if self._transport is not None and (workdir, _of_the_start(terms)) == (
            self._workdir,
            _of_the_start(self._terms),
        ):
            return False
        self._drop()
        last: SandboxError | None = None
        for attempt in range(STARTS):
            if attempt:
                time.sleep(0.2 * attempt)
            if self._closed:  # by another thread meanwhile
                raise self._dead()
            try:
                self._start(workdir, terms)
                return True
            except SandboxUnavailable:
                raise
            except SandboxError as error:
                last = error
        raise SandboxError(f"no {self.name} sandbox could be started in {STARTS} tries: {last}") from last

    def _start(self, workdir: str | None, terms: Terms) -> None:
        """Start a supervisor. Where no open file is left for it, wherever that shows, the error has the remedy."""
        make_room()
        try:
            self._started(workdir, terms)
        except (OSError, SandboxError) as error:
            full = _full(error)
            if full is None:
                raise
            raise full from error

    def _started(self, workdir: str | None, terms: Terms) -> None:
        launcher = self._launcher
        if _of_the_start(terms) != Terms():
            launcher = launcher.varied(replace(launcher.limits, **terms.limits), terms)
        self._transport, first, self._alias = launcher.start(workdir)
        self._workdir, self._terms, self.limits = workdir, terms, launcher.limits
        self._buffer = FrameBuffer()
        self._failure = self._isolation = None
        self.starts += 1
        deadline = time.monotonic() + START_SECONDS
        try:
            self._transport.send(first, deadline)
        except SandboxError as error:
            raise self._lost(error) from error
        try:
            self._request({"op": "ping"}, b"", START_SECONDS)
        except SandboxError as error:
            if NO_BASH not in str(error):
                raise
            image = getattr(launcher, "image", None)  # of docker alone
            where = "this sandbox" if image is None else f"the image {image!r}"
            raise SandboxUnavailable(f"{where}: {NO_BASH}; remedy: install bash and python3 in it") from error
        try:
            self._transport.ready()
        except SandboxError as error:
            raise self._lost(error) from error

    def _request(
        self, head: dict[str, Any], body: bytes = b"", seconds: float = REQUEST_SECONDS
    ) -> tuple[dict[str, Any], bytes]:
        """Send one request and wait for its reply.

        Raises:
            JudgeFailed: A judge could not be kept apart; the sandbox is as before.
            SandboxError: The machinery failed; the sandbox is dead, unless only a file was refused.
            FileNotFoundError: The supervisor found nothing at the path.
        """
        transport = self._transport
        if transport is None:
            raise self._dead()
        if self._program is not None:
            raise SandboxError("an interactive program runs in this sandbox; close it first")
        self._next_id += 1
        deadline = time.monotonic() + seconds
        try:
            transport.send(pack({"id": self._next_id, **head}, body), deadline)
            reply, content = self._receive(deadline)
            if reply.get("id") != self._next_id and "event" not in reply:
                raise SandboxError(f"the supervisor answered request {reply.get('id')!r} instead of {self._next_id}")
        except (SandboxError, BrokenFrame) as error:
            raise self._lost(error) from error
        except BaseException:
            self._drop()  # Ctrl-C in the middle of a request: the reply would meet the next request
            raise
        if reply.get("ok") or "event" in reply:
            return reply, content
        message, kind = str(reply.get("message")), reply.get("kind")
        if kind == "missing":
            raise FileNotFoundError(message)
        if kind == "judge":
            raise JudgeFailed(message)
        if kind == "retired" and head["op"] in ("open", "reset"):
            raise _Retired(message)
        refused = SandboxError(f"{head['op']}: {message}")
        if kind in ("lost", "system") and head["op"] not in ("put", "read"):
            raise self._lost(refused)
        raise refused

    def _receive(self, deadline: float) -> tuple[dict[str, Any], bytes]:
        """The next frame. Raises SandboxError or BrokenFrame."""
        assert self._transport is not None
        while True:
            frame = self._buffer.next()
            if frame is not None:
                return frame
            self._buffer.feed(self._transport.receive(deadline))

    def _lost(self, error: Exception) -> SandboxError:
        """Destroy everything after a failure of the machinery; returns what to raise."""
        said = ""
        if self._transport is not None:
            if isinstance(error, TransportClosed):
                time.sleep(0.01)  # the last words of a dying process may come after the end of its pipe
            said = self._transport.diagnosis()
        self._drop(patience=0.0 if not isinstance(error, TransportClosed) else 1.0)
        self._failure = SandboxError(
            f"{self.name} sandbox lost: {error}" + (f"; it said: {said[-2000:]}" if said else "")
        )
        return self._failure

    def _dead(self) -> SandboxError:
        if self._closed:
            return SandboxError("this sandbox was closed; open a new one with open_sandbox()")
        if self._failure is not None:
            return SandboxError(f"this sandbox is dead ({self._failure}); open() starts a fresh one")
        return SandboxError("this sandbox has no episode; call open() first")

    def _drop(self, patience: float = 2.0) -> None:
        transport, self._transport, self._program = self._transport, None, None
        if transport is not None:
            transport.close(patience=patience)


def _of_the_start(terms: Terms) -> Terms:
    """What of the terms a supervisor is started with: all but variables."""
    return replace(terms, environment={}, limits=dict(terms.limits))


def _full(error: BaseException | None) -> SandboxUnavailable | None:
    """What to tell where an error goes back to having no open file left; else None."""
    while error is not None:
        if isinstance(error, OSError) and (found := no_room(error)):
            return found
        error = error.__cause__
    return None
