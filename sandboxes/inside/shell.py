"""One fresh bash per command, with the state of the last one.

The state is text that bash itself printed (`declare -p`, `alias -p`, ...) in an EXIT trap; it is kept in the memory of
the supervisor and sourced by the next bash. Command, state and dump travel through memory files (memfd), never through
a pipe that could fill or a command line that could be too long. What a command does to the shell it runs in
(`exit`, `exec`, `kill -9 $$`, `set -e`, redefined builtins) can at most lose the changes of that one command.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import termios
import time

from sandboxes.inside.processes import Processes

DUMP_FD, COMMAND_FD, STATE_FD = 201, 202, 203
MAX_STATE = 4 << 20
TICK = 0.05
"""Seconds between two looks at memory and disk while a command runs."""
LINGER = 0.05
"""Seconds that output of processes which outlive their bash (`> >(sort)`) is still collected, before they end."""

# The trap runs among functions that may carry the names of builtins: in POSIX mode special builtins win over functions,
# so `unset -f builtin` is the real one, and `builtin` then leads to all others. Nothing here is expanded as an alias.
_DUMP = (
    r"{ _tg_s=$SHELLOPTS _tg_b=$BASHOPTS; POSIXLY_CORRECT=1; \unset -f builtin; \builtin set +eux +o posix; "
    r'\builtin printf "%s\0" "$_tg_d" "$_tg_e" "$_tg_s" "$_tg_b"; \builtin pwd; \builtin printf "\0"; '
    r'\builtin declare -p; \builtin printf "\0"; \builtin umask -p; \builtin alias -p; \builtin printf "\0"; '
    r'\builtin declare -f; \builtin declare -Fx; \builtin printf "\0#STATE-OK"; } >&%d 2>/dev/null'
).replace("%d", str(DUMP_FD))
# Bash sources this, with the state behind it, because BASH_ENV names it; then comes the command, as `bash -c` has it.
_PRELUDE = (
    f"exec {STATE_FD}<&-; {{ echo 1000 >/proc/self/oom_score_adj; }} 2>/dev/null; ulimit @LIMITS@ 2>/dev/null\n"
    f"_tg_d=$SHELLOPTS _tg_e=$BASHOPTS; trap '{_DUMP}' EXIT\n"
    "unset -v BASH_ENV TERM SHELL HOSTNAME OLDPWD IFS PS4 OPTERR\n"
)
# A command too long for an argument is read from a memory file.
_LONG = f"IFS= read -rd '' -u {COMMAND_FD} _tg_c; exec {COMMAND_FD}<&-\n"
_LONG_COMMAND = b'eval "unset -v _tg_c;$_tg_c"'
MAX_ARGUMENT = 100_000
# Set by bash itself, or ours; restoring them would fail or lie.
_NOT_KEPT = frozenset(
    b"BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING "
    b"BASH_LINENO BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME "
    b"EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OSTYPE PIPESTATUS PPID PWD RANDOM SECONDS "
    b"SHELLOPTS SRANDOM UID _ _tg_b _tg_c _tg_d _tg_e _tg_p _tg_s".split()
)
_OPTIONS_NOT_KEPT = frozenset((b"errexit", b"xtrace", b"verbose", b"noexec", b"monitor", b"posix", b"privileged"))
_SHOPTS_NOT_KEPT = frozenset((b"expand_aliases", b"login_shell", b"restricted_shell"))


class State:
    """What the next bash starts with.

    Attributes:
        cwd: Directory, as the shell names it.
        text: Everything else, as bash commands; without the trailing `$?`.
        status: `$?`.
    """

    def __init__(self, cwd: str, text: bytes, status: int = 0) -> None:
        self.cwd, self.text, self.status = cwd, text, status

    @classmethod
    def fresh(cls, cwd: str, env: dict) -> State:
        """The state of a new sandbox: the given environment, aliases on, nothing else."""
        lines = [b"declare -x %s=%s\n" % (name.encode(), _quote(value.encode())) for name, value in env.items()]
        return cls(cwd, b"".join(lines) + b"IFS=$' \\t\\n'\nPS4='+ '\nOPTERR=1\nshopt -s expand_aliases\n")

    def carry(self, command: bytes) -> bytes:
        """The command, preceded by something that sets `$?` if the command asks for it."""
        asks = self.status and (b"$?" in command or b"${?" in command)
        return b"(\\exit %d);" % self.status + command if asks else command

    def following(self, dump: bytes, fallback: str | None) -> State | None:
        """The state after a command, read from its dump; None when the dump is missing or cut short."""
        if not dump.endswith(b"\0#STATE-OK"):
            return None
        parts = dump.split(b"\0")
        if len(parts) != 9:
            return None
        old_set, old_shopt, new_set, new_shopt, cwd, variables, aliases, functions, _ = parts
        lines = []
        for line in variables.splitlines(keepends=True):
            words = line.split(None, 2)
            if len(words) == 3 and words[0] == b"declare" and words[2].split(b"=", 1)[0].strip() in _NOT_KEPT:
                continue
            lines.append(line)
        lines += _toggles(b"set", b"-o", b"+o", old_set, new_set, _OPTIONS_NOT_KEPT)
        lines += _toggles(b"shopt", b"-s", b"-u", old_shopt, new_shopt, _SHOPTS_NOT_KEPT)
        # Aliases are defined while aliases are off, so that they do not expand again inside function bodies.
        lines += [aliases, functions]
        if b"expand_aliases" in new_shopt.split(b":"):
            lines.append(b"shopt -s expand_aliases\n")
        where = os.fsdecode(cwd.rstrip(b"\n")) or self.cwd
        if fallback is not None and where == fallback:
            where = self.cwd  # the directory was closed to us; the command did not leave it
        return State(where, b"".join(lines), self.status)


def _toggles(builtin: bytes, on: bytes, off: bytes, old: bytes, new: bytes, left_out: frozenset) -> list:
    """Lines that turn the options of a new bash (`old`) into those at the end of a command (`new`)."""
    before, after = set(old.split(b":")) - left_out, set(new.split(b":")) - left_out
    lines = [b"%s %s %s\n" % (builtin, on, name) for name in sorted(after - before) if name]
    return lines + [b"%s %s %s\n" % (builtin, off, name) for name in sorted(before - after) if name]


def _quote(value: bytes) -> bytes:
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


class Capture:
    """The head and the tail of a stream, and how long it was."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._head, self._tail, self.total = bytearray(), bytearray(), 0

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self.total += len(data)
        room = self._half - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        if len(self._tail) > 4 * self._half:
            del self._tail[: -self._half]

    @property
    def cut(self) -> int:
        """How many bytes are missing in the middle."""
        return max(0, self.total - 2 * self._half)

    def value(self) -> bytes:
        """Head, a marker where bytes are missing, tail."""
        tail = bytes(self._tail[-self._half :]) if self._half else b""
        marker = b"\n[... %d bytes not shown ...]\n" % self.cut if self.cut else b""
        return bytes(self._head) + marker + tail


class Shell:
    """Runs commands one after the other.

    Args:
        settings: The supervisor's settings (see `sandboxes.supervisor`).
        processes: How the processes of a command are ended.
        enter: Called in the child before bash starts (Landlock); None lets the faster posix_spawn be used.
    """

    def __init__(self, settings: dict, processes: Processes, enter: object = None) -> None:
        self._settings, self._processes, self._enter = settings, processes, enter
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._bash = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "/bin/bash")
        path = _quote(settings["env"]["PATH"].encode())  # a shell whose PATH was unset finds its programs again
        self._prelude = _PRELUDE.replace("@LIMITS@", self.limits()).encode() + b"declare -x PATH=" + path + b"\n"
        self.workspace: str = settings["workspace"]
        self.reset()

    def reset(self) -> None:
        """Back to the state of a new sandbox."""
        self.state = State.fresh(self.workspace, self._settings["env"])

    def limits(self) -> str:
        """Arguments of bash's `ulimit` for every command."""
        s = self._settings
        wanted = (
            ("-f", resource.RLIMIT_FSIZE, s["file_mb"] * 1024, 1024),
            ("-n", resource.RLIMIT_NOFILE, s["open_files"], 1),
            ("-u", resource.RLIMIT_NPROC, s["user_processes"], 1),
            ("-v", resource.RLIMIT_AS, 4 * s["memory_mb"] * 1024, 1024),
        )
        words = ["-c 0 -q 0"]  # no core files, no POSIX message queues
        for option, kind, value, unit in wanted:
            hard = resource.getrlimit(kind)[1]
            words.append(f"{option} {value if hard == resource.RLIM_INFINITY else min(value, hard // unit)}")
        return " ".join(words)

    def prepare(self, state: State) -> tuple:
        """Where to start bash, a note for stderr, and the stand-in directory if the state's own is closed."""
        try:
            os.chdir(state.cwd)
            return state.cwd, b"", None
        except PermissionError:
            os.chdir("/")
            return "/", b"", "/"
        except OSError as error:
            note = b"bash: cd: %s: %s; back to %s\n"
            note %= os.fsencode(state.cwd), (error.strerror or "").encode(), os.fsencode(self.workspace)
            state.cwd = self.workspace
            try:
                os.chdir(self.workspace)
                return self.workspace, note, None
            except PermissionError:
                os.chdir("/")
                return "/", note, "/"

    def start(self, command: bytes, state: State, streams: tuple, fds: list, terminal: bool = False) -> tuple:
        """Start bash on a command; returns (pid, dump descriptor, note, stand-in directory).

        Descriptors that it opens are added to `fds`; the caller closes them. With `terminal`, stream 0 becomes the
        controlling terminal.
        """
        cwd, note, fallback = self.prepare(state)
        dump = _memory_file(b"", fds)
        pairs = [(streams[0], 0), (streams[1], 1), (streams[2], 2), (dump, DUMP_FD)]
        prelude, command = self._prelude, state.carry(command)
        script = state.text
        if fallback is not None:
            script += b"PWD=" + _quote(os.fsencode(state.cwd)) + b"\n"  # where the command believes to be
        if len(command) > MAX_ARGUMENT:
            pairs.append((_memory_file(command, fds), COMMAND_FD))
            prelude, command = prelude + _LONG.encode(), _LONG_COMMAND
        pairs.append((_memory_file(prelude + script, fds), STATE_FD))
        argv = [b"bash", b"--norc", b"--noprofile", b"-c", command]
        env = {"PWD": cwd, "BASH_ENV": f"/dev/fd/{STATE_FD}"}
        try:
            if self._enter is None and not terminal:
                actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in pairs]
                pid = os.posix_spawn(
                    self._bash, argv, env, file_actions=actions, setsid=True, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
                )
            else:
                pid = self._fork(argv, env, pairs, terminal)
        finally:
            os.chdir("/")
        return pid, dump, note, fallback

    def _fork(self, argv: list, env: dict, pairs: list, terminal: bool) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            for source, target in pairs:
                os.dup2(source, target)
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if self._enter is not None:
                self._enter()  # type: ignore[operator]
            os.execve(self._bash, argv, env)
        except BaseException as error:  # the child must not return into the supervisor's loop
            os.write(2, f"sandbox: the command could not be started: {error}\n".encode())
        os._exit(126)

    def run(self, command: bytes, timeout: float, clean: bool) -> tuple:
        """Run one command to its end, its time-out, or its flood. Returns (facts, stdout, stderr).

        Raises:
            StillAlive: A process could not be ended.
            HostGone: The host closed its end meanwhile.
        """
        if not clean and all(not line.strip() or line.lstrip().startswith(b"#") for line in command.split(b"\n")):
            self.state.status = 0
            return _facts(0), b"", b""
        if b"\0" in command:
            return _facts(2), b"", b"bash: the command holds a NUL byte; nothing was run\n"
        if len(command) > self._settings["command_bytes"]:
            size, limit = len(command), self._settings["command_bytes"]
            return (
                _facts(126),
                b"",
                b"bash: the command is %d bytes long, the limit is %d; nothing was run\n" % (size, limit),
            )
        state = State.fresh(self.workspace, self._settings["env"]) if clean else self.state
        fds: list = []
        try:
            out_read, out_write = os.pipe()
            fds += [out_read, out_write]
            err_read, err_write = os.pipe()
            fds += [err_read, err_write]
            begin = time.monotonic()
            pid, dump_fd, note, fallback = self.start(command, state, (self._null, out_write, err_write), fds)
            for fd in (out_write, err_write):
                os.close(fd)
                fds.remove(fd)
            watch = Watch(self._settings, self._processes, {out_read: Capture(self._cap), err_read: Capture(self._cap)})
            code = watch.until_over(pid, begin + timeout)
            seconds = time.monotonic() - begin
            dump = b"" if watch.why else os.pread(dump_fd, MAX_STATE, 0)
        finally:
            for fd in fds:
                os.close(fd)
        out, err = watch.captures[out_read], watch.captures[err_read]
        if not clean:
            self.state = state.following(dump, fallback) or state
            self.state.status = code
        facts = _facts(code, watch.why == "timeout", bool(out.cut or err.cut or watch.why == "flood"), seconds)
        return facts, out.value(), note + err.value() + watch.note()

    @property
    def flood_bytes(self) -> int:
        """Output after which a command is ended."""
        return self._settings["flood_bytes"]

    @property
    def _cap(self) -> int:
        return self._settings["output_bytes"]


class HostGone(Exception):
    """The host closed its end: everything stops."""


class Watch:
    """Collects the output of one command and ends it when it must end.

    Attributes:
        why: None, or `timeout`, `flood`, `processes`, `memory`, `disk`: what ended the command before its time.
    """

    def __init__(self, settings: dict, processes: Processes, captures: dict) -> None:
        self._settings, self._processes, self.captures = settings, processes, captures
        self.why: str | None = None

    def note(self) -> bytes:
        """One line for stderr about a command that was ended for what it used."""
        s = self._settings
        return {
            "flood": b"\n[killed: more than %d bytes of output]\n" % s["flood_bytes"],
            "processes": b"\n[killed: more than %d processes]\n" % s["processes"],
            "memory": b"\n[killed: more than %d MB of memory]\n" % s["memory_mb"],
            "disk": b"\n[killed: more than %d MB of files]\n" % s["workspace_mb"],
        }.get(self.why or "", b"")

    def until_over(self, pid: int, deadline: float) -> int:
        """Wait for the end of `pid`, end everything else, and return the exit code as bash would report it."""
        poller = select.poll()
        poller.register(0, 0)  # only to learn that the host is gone
        open_fds = set(self.captures)
        for fd in open_fds:
            os.set_blocking(fd, False)
            poller.register(fd, select.POLLIN)
        ended = _end_of(pid)
        if ended is not None:
            poller.register(ended, select.POLLIN)
        status = None
        next_look = time.monotonic() + TICK
        free = _free_bytes(self._settings["disk_roots"])
        try:
            while open_fds or status is None:
                now = time.monotonic()
                if now >= deadline:
                    self.why = "timeout" if status is None else None
                    break
                wait = min(deadline, next_look) - now if ended is not None else 0.005
                for fd, _ in poller.poll(max(0.0, wait) * 1000):
                    if fd == 0:
                        raise HostGone
                    if fd in open_fds and not self._collect(fd):
                        open_fds.discard(fd)
                        poller.unregister(fd)
                if status is None and os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                    status = os.waitpid(pid, 0)[1]
                    if ended is not None:
                        poller.unregister(ended)
                    deadline = min(deadline, time.monotonic() + LINGER)
                if sum(capture.total for capture in self.captures.values()) > self._settings["flood_bytes"]:
                    self.why = "flood"
                    break
                begin = time.monotonic()
                if begin >= next_look:
                    self.why = self._used_too_much(free)
                    if self.why:
                        break
                    spent = time.monotonic() - begin
                    next_look = time.monotonic() + max(TICK, 4 * spent)  # looking must not starve the deadline
        finally:
            statuses = self._processes.end_all()
            if ended is not None:
                os.close(ended)
        for fd in open_fds:
            while self._collect(fd):
                pass
        if status is None:
            status = statuses.get(pid, signal.SIGKILL)
        return exit_code(status)

    def _collect(self, fd: int) -> bool:
        """Read once; False at the end of the stream (or, after everything was killed, when it is dry)."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return False
        if data:
            self.captures[fd].feed(data)
        return bool(data)

    def _used_too_much(self, free: list) -> str | None:
        s = self._settings
        why = self._processes.excess(s["processes"], s["memory_mb"] << 20)
        if why is not None:
            return why
        allowed = s["workspace_mb"] + s["tmp_mb"] << 20
        for index, root in enumerate(s["disk_roots"]):
            if free[index] - _free_bytes([root])[0] > allowed and _used_bytes(root) > allowed:
                return "disk"
        return None


def _free_bytes(roots: list) -> list:
    found = [os.statvfs(root) for root in roots]
    return [status.f_bavail * status.f_frsize for status in found]


def _used_bytes(root: str) -> int:
    total = 0
    todo = [root]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except OSError:
            continue  # removed or closed while we look, or deeper than PATH_MAX
    return total


def _facts(code: int, timed_out: bool = False, truncated: bool = False, seconds: float = 0.0) -> dict:
    return {"exit_code": code, "timed_out": timed_out, "truncated": truncated, "seconds": seconds}


def exit_code(status: int) -> int:
    """A wait status as bash reports it."""
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _end_of(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None  # older Python or kernel: the loop polls instead


def _memory_file(data: bytes, fds: list) -> int:
    fd = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    fds.append(fd)
    if data:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        os.lseek(fd, 0, os.SEEK_SET)
    return fd
