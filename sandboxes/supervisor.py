"""The supervisor: runs inside the sandbox (as PID 1 where there is a PID namespace) and answers the host's frames.

Requests, each `{"id": n, "op": name, ...}`; every reply repeats the id and is either `{"ok": true, ...}` or
`{"ok": false, "kind": ..., "message": ...}`:

    ping                                        -> {}
    open      entries, environment, body = contents -> {}   reset, then put
    reset                                       -> {}
    run       timeout, clean, keep_background, body = command    -> facts, out; body = stdout + stderr
    run_snapshot  the same                      -> facts, out, rows, cut; body = stdout + stderr + contents
    judge     entries, env, timeout, private, apart, beside, body = contents + command -> facts, out; body = out + err
    put       entries, body = contents          -> {}
    read      path                              -> body = content
    listing                                     -> paths, cut
    snapshot                                    -> rows, cut; body = contents
    digests                                     -> rows, cut
    serve     body = command                    -> {}   starts a service, which outlives commands
    services                                    -> codes: exit codes, null for what runs, in the order of `serve`
    end_services                                -> {}
    seal                                        -> {}   ends processes, wipes what is not the workspace
    spawn     rows, columns, body = program     -> frames of `sandboxes.inside.terminal`, at its end: exit_code

`cut`: paths are missing, because there were too many (see `sandboxes.inside.files`). Every answer is bounded, whatever
commands left behind. A `reset` that would take too long is refused with the kind `retired`: another sandbox takes over.

It keeps the shell state and ends all processes but services after each command, so nothing a command does outlives it.
Services end before a judge, and with the episode. Where the settings say `background`, what commands
leave running ends with the episode alone. The first frame carries the settings (`sandboxes.boot.Settings`).
When the host's end closes, everything is killed and wiped.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import stat
import sys
import time

from sandboxes.inside import kernel
from sandboxes.inside.files import DIGESTED, WIPE_SECONDS, BadPath, Tree, Unfinished, put, wipe
from sandboxes.inside.frames import BrokenFrame, FrameBuffer, pack_head, write_all
from sandboxes.inside.judge import JudgeLost, Judges
from sandboxes.inside.processes import HostGone, Processes, StillAlive
from sandboxes.inside.shell import Shell
from sandboxes.inside.terminal import Terminal

_MESSAGE = 4096
"""Letters of a refusal: a path in it may be longer than anybody reads."""
_LARGE = 1 << 16
PAUSE = 1
"""Milliseconds without a request after which the next bash is started: a host in a hurry need not wait for it."""


class Supervisor:
    """Answers requests until the host closes its end."""

    def __init__(self, settings: dict, buffer: FrameBuffer) -> None:
        self._settings = settings
        try:
            self._modes = {root: stat.S_IMODE(os.stat(root).st_mode) for root in settings["wipe"]}
        except PermissionError as error:
            sys.exit(
                f"{error.filename}: a folder on the way is closed to the sandbox's user; remedy: an image in which "
                "it may be entered (chmod 711 /root, or python -m sandboxes build), or another workdir in the task"
            )
        self._buffer = buffer
        self._requests = select.poll()
        self._requests.register(0, select.POLLIN)
        everything, enter, score, commands = self._confine()
        self._processes = Processes(everything)
        self._shell = Shell(settings, self._processes, enter, score)
        self._judges = Judges(settings, self._shell, self._processes, commands)

    def _confine(self) -> tuple:
        """Protect the supervisor from what it runs.

        Returns:
            Whether kill(-1) is safe, what confines commands, the descriptor that makes children victims, and the filter
            that commands have.
        """
        s = self._settings
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # one with a handler reaches even PID 1, and Python has one
        everything = os.getpid() == 1
        # A command that lowers its own score could make the supervisor the kernel's victim: nobody writes to /proc.
        score = inner = None
        if s["landlock"] or (s["filter"] == "namespaces" and kernel.landlock_abi() >= 2):
            score = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        if s["landlock"]:
            abi = kernel.landlock_abi()
            writable = [(path, kernel.ALL) for path in s["wipe"]]
            shared = [(path, kernel.READ) for path in s["readable"]] + [(path, kernel.DEVICE) for path in s["devices"]]
            inner = kernel.Domain([item for item in writable if item[0] != s["grader"]] + shared)
            if abi >= 6:
                terminals = [(path, kernel.DEVICE | kernel.READ) for path in ("/dev/ptmx", "/dev/pts")]
                kernel.Domain([*writable, *shared, *terminals]).enter()
                everything = _signals_stay_inside()
        elif score is not None:
            rights = kernel.FS_WRITE_FILE | kernel.FS_REFER  # moving between directories needs a rule, too
            tops = ["/" + name for name in os.listdir("/") if name != "proc" and not os.path.islink("/" + name)]
            kernel.Domain([(path, rights) for path in tops if os.path.isdir(path)], rights).enter()
            if s["background"]:  # what lives beside a judge must never have been where its files are
                kept = [(path, kernel.ALL) for path in ("/proc", *tops) if path not in (s["grader"], *s["folders"])]
                inner = kernel.Domain(kept, kernel.ALL, signals=True)
        commands = kernel.command_program()

        def enter() -> None:
            if inner is not None:
                inner.enter()
            if commands is not None:
                kernel.enter_filter(commands)

        program = None if s["filter"] == "none" else kernel.filter_program(s["filter"] == "sockets")
        if program is not None:
            kernel.enter_filter(program)
        if s["die_with_parent"]:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGTERM)
            signal.signal(signal.SIGTERM, _stop)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        return everything, enter, score, commands

    def serve(self) -> None:
        """Read requests and answer them, one at a time."""
        try:
            while True:
                _write(*self._answer(*self.receive()))
                if not self._buffer.ready and not self._requests.poll(PAUSE):
                    self._shell.start_ahead()
        except (HostGone, BrokenPipeError):
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self._processes.end_all(services=True)
            limit = time.monotonic() + WIPE_SECONDS
            with contextlib.suppress(Unfinished):  # the host removes what is on its disk
                for root in self._settings["wipe"]:
                    wipe(root, seconds=limit - time.monotonic())

    def _answer(self, head: dict, body: bytes) -> list:
        """The parts of the frame that answers a request, also where what commands left behind makes that fail."""
        try:
            reply, *out = getattr(self, "_op_" + str(head.get("op")), self._unknown)(head, body)
            return [pack_head({**reply, "ok": True, "id": head.get("id")}, sum(map(len, out))), *out]
        except BadPath as error:
            kind, message = "path", str(error)
        except FileNotFoundError as error:  # of a file that was asked for; else something of ours is gone
            kind, message = "missing" if head.get("op") == "read" else "system", str(error)
        except (OSError, BrokenFrame, MemoryError) as error:
            kind, message = "system", f"{type(error).__name__}: {error}"
        except StillAlive as error:
            kind, message = "lost", str(error)
        except Unfinished as error:
            kind, message = "retired", str(error)
        except JudgeLost as error:
            kind, message = "judge", str(error)
        return [pack_head({"ok": False, "kind": kind, "message": message[:_MESSAGE], "id": head.get("id")}, 0)]

    def receive(self) -> tuple:
        """The next frame of the host. Raises HostGone at the end."""
        while True:
            frame = self._buffer.next()
            if frame is not None:
                return frame
            data = os.read(0, 1 << 18)
            if not data:
                raise HostGone
            self._buffer.feed(data)

    def send(self, head: dict, body: bytes = b"") -> None:
        """One frame to the host."""
        _write(pack_head(head, len(body)), body)

    def _unknown(self, head: dict, body: bytes) -> tuple:
        raise BrokenFrame(f"unknown request {head.get('op')!r}")

    def _op_ping(self, head: dict, body: bytes) -> tuple:
        return {"python": sys.version.split()[0], "pid": os.getpid(), "landlock": kernel.landlock_abi()}, b""

    def _op_reset(self, head: dict, body: bytes) -> tuple:
        self._shell.reset(head.get("environment"))
        self._processes.end_all(services=True)
        self._wipe(self._modes)
        return {}, b""

    def _wipe(self, roots: dict) -> None:
        """Empty these places, and give them back their modes. Raises Unfinished."""
        limit = time.monotonic() + WIPE_SECONDS
        for root, mode in roots.items():
            wipe(root, mode, limit - time.monotonic())
        if self._settings["own_ipc"]:
            kernel.clear_ipc()

    def _op_open(self, head: dict, body: bytes) -> tuple:
        self._op_reset(head, body)
        return self._op_put(head, body)

    def _op_put(self, head: dict, body: bytes) -> tuple:
        self._shell.stand_down()  # what is put may replace the directory it stands in
        with self._shell.still():
            put(self._settings["workspace"], head["entries"], body)
        return {}, b""

    def _op_run(self, head: dict, body: bytes) -> tuple:
        facts, out, err = self._shell.run(body, head["timeout"], head["clean"], head["keep_background"])
        if self._settings["own_ipc"] and not head["keep_background"] and not self._processes.serving:
            kernel.clear_ipc()  # nothing outlives its command; what would is counted as memory of the next one
        facts["out"], facts["err"] = len(out), len(err)
        return facts, out + err

    def _op_run_snapshot(self, head: dict, body: bytes) -> tuple:
        facts, output = self._op_run(head, body)
        more, contents = self._op_snapshot(head, body)
        facts.update(more)
        return facts, output, contents

    def _op_judge(self, head: dict, body: bytes) -> tuple:
        facts, out, err = self._judges.run(head, body)
        facts["out"], facts["err"] = len(out), len(err)
        return facts, out + err

    def _op_serve(self, head: dict, body: bytes) -> tuple:
        self._shell.serve(body)
        return {}, b""

    def _op_services(self, head: dict, body: bytes) -> tuple:
        self._processes.reap()
        return {"codes": list(self._processes.services.values())}, b""

    def _op_end_services(self, head: dict, body: bytes) -> tuple:
        self._shell.stand_down()
        self._processes.end_all(services=True)
        if self._settings["own_ipc"]:
            kernel.clear_ipc()
        return {}, b""

    def _op_seal(self, head: dict, body: bytes) -> tuple:
        self._shell.stand_down()
        self._processes.end_all()
        self._wipe({root: mode for root, mode in self._modes.items() if root != self._settings["workspace"]})
        return {}, b""

    def _op_read(self, head: dict, body: bytes) -> tuple:
        with self._shell.still(), Tree(self._settings["workspace"]) as tree:
            return {}, tree.content(head["path"], self._settings["file_mb"] << 20)

    def _op_listing(self, head: dict, body: bytes) -> tuple:
        with self._shell.still(), Tree(self._settings["workspace"]) as tree:
            entries = tree.walk(self._settings["snapshot_entries"])
            paths = [path + "/" * stat.S_ISDIR(status.st_mode) for path, status, _ in entries]
            return {"paths": paths, "cut": tree.cut}, b""

    def _op_snapshot(self, head: dict, body: bytes) -> tuple:
        s = self._settings
        with self._shell.still(), Tree(s["workspace"]) as tree:
            rows, contents = tree.snapshot(s["snapshot_entries"], s["snapshot_file_bytes"], s["workspace_mb"] << 20)
            return {"rows": rows, "cut": tree.cut}, contents

    def _op_digests(self, head: dict, body: bytes) -> tuple:
        s = self._settings
        with self._shell.still(), Tree(s["workspace"]) as tree:
            total = DIGESTED * s["workspace_mb"] << 20
            rows = tree.digests(s["snapshot_entries"], s["file_mb"] << 20, total)
            return {"rows": rows, "cut": tree.cut}, b""

    def _op_spawn(self, head: dict, body: bytes) -> tuple:
        def pending() -> bool:
            return self._buffer.ready

        terminal = Terminal(self._shell, self._processes, self.send, self.receive, pending)
        return terminal.run(body, head["rows"], head["columns"]), b""


def _signals_stay_inside() -> bool:
    """Whether kill(-1) cannot leave this Landlock domain: proven by a signal 0 that must be refused."""
    try:
        os.kill(os.getppid(), 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        return False
    return False


def _leave_guardian() -> int | None:
    """Start a process that outlives this one, and then ends everything that was started here, and itself.

    It shares a Landlock domain with the supervisor and all commands, each of which is in a domain further in: so its
    kill(-1) reaches them, wherever they hide, and nothing else; no command and no kill(-1) of the supervisor reaches
    it. Its copy of our output keeps that open until all is over, which the host waits for.

    Returns:
        A descriptor to be kept open: it closes when this process ends. None where the kernel has no such domains.
    """
    if kernel.landlock_abi() < 6:
        return None
    kernel.Domain([("/", kernel.ALL)]).enter()
    if not _signals_stay_inside():
        return None
    over, alive = os.pipe()
    pid = os.fork()
    if pid:
        os.close(over)
        os.waitpid(pid, 0)
        return alive
    try:
        os.setsid()  # before the supervisor goes on: whoever ends its process group shall not meet the guardian there
        if os.fork() == 0:  # nobody's child, else the supervisor would wait for it after each command
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            for fd in (0, alive):
                os.close(fd)
            os.read(over, 1)
            for _ in range(3):  # once is enough to kill, forks included; dying takes a moment
                os.kill(-1, signal.SIGKILL)
                time.sleep(0.005)
    finally:
        os._exit(0)


def _write(*parts: bytes | bytearray) -> None:
    """Parts of a frame to the host: small ones at once, large ones without a copy."""
    if sum(map(len, parts)) < _LARGE:
        parts = (b"".join(parts),)
    for part in parts:
        write_all(1, part)


def _stop(signum: int, frame: object) -> None:
    raise HostGone


def main() -> None:
    """Read the settings and serve."""
    buffer = FrameBuffer()
    frame = None
    while frame is None:
        data = os.read(0, 1 << 16)
        if not data:
            return
        buffer.feed(data)
        frame = buffer.next()
    os.chdir("/")
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # a host may have some blocked, and commands inherit that
    guardian = _leave_guardian() if frame[0]["guardian"] else None  # noqa: F841  (open for as long as we live)
    Supervisor(frame[0], buffer).serve()
