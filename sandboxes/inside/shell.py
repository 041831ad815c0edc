"""One fresh bash per command, with the state of the last one."""

from __future__ import annotations

import _thread
import contextlib
import fcntl
import os
import resource
import signal
import sys
import termios
import time

from sandboxes.inside.frames import write_all
from sandboxes.inside.processes import Budget, Capture, Processes, Watch
from sandboxes.inside.variables import NOT_KEPT, graders_part

# -- The state of a shell between two commands: text that bash itself printed, and that the next bash sources ---------

_OPTIONS_NOT_KEPT = frozenset(
    (b"errexit", b"xtrace", b"verbose", b"noexec", b"monitor", b"onecmd", b"posix", b"privileged")
)
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
        lines = [b"declare -x %s=%s\n" % (name.encode(), quote(value.encode())) for name, value in env.items()]
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
            if len(words) == 3 and words[0] == b"declare" and words[2].split(b"=", 1)[0].strip() in NOT_KEPT:
                continue
            lines.append(line)
        lines += _toggles(b"set", b"-o", b"+o", old_set, new_set, _OPTIONS_NOT_KEPT)
        lines += _toggles(b"shopt", b"-s", b"-u", old_shopt, new_shopt, _SHOPTS_NOT_KEPT)
        # Aliases are defined while aliases are off, so that they do not expand again inside function bodies.
        lines += [aliases, functions]
        if b"expand_aliases" in new_shopt.split(b":"):
            lines.append(b"\\builtin shopt -s expand_aliases\n")
        where = os.fsdecode(cwd.rstrip(b"\n")) or self.cwd
        if fallback is not None and where == fallback:
            where = self.cwd  # the directory was closed to us; the command did not leave it
        return State(where, b"".join(lines), self.status)


def _toggles(builtin: bytes, on: bytes, off: bytes, old: bytes, new: bytes, left_out: frozenset) -> list:
    """Lines that turn the options of a new bash (`old`) into those at the end of a command (`new`)."""
    before, after = set(old.split(b":")) - left_out, set(new.split(b":")) - left_out
    lines = [b"%s %s %s\n" % (builtin, on, name) for name in sorted(after - before) if name]
    return lines + [b"%s %s %s\n" % (builtin, off, name) for name in sorted(before - after) if name]


def quote(value: bytes) -> bytes:
    """A word that bash reads as these bytes."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"


# -- One fresh bash per command, with the state of the last one -------------------------------------------------------
# The state is text that bash itself printed (`declare -p`, `alias -p`, ...) in an EXIT trap; it is kept in the memory
# of the supervisor and sourced by the next bash. Command, state and dump travel through memory files (memfd), never
# through a pipe that could fill or a command line that could be too long. What a command does to the shell it runs in
# (`exit`, `exec`, `kill -9 $$`, `set -e`, redefined builtins) can at most lose the changes of that one command.
#
# The next bash is started ahead, while the policy thinks. It has executed nothing of the agent's when it waits: state
# and command are handed to it together, so a function or a variable can do nothing between two commands.

NO_BASH = "there is no bash in /bin or /usr/bin, which every command needs"
"""The last words of a supervisor in a foreign image."""
DUMP_FD, GO_FD, PRELUDE_FD, SCRIPT_FD = 201, 202, 203, 204
MAX_STATE = 4 << 20
_DEFAULTS = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT)
"""Signals that the supervisor ignores, and a command does not."""

# The trap runs among functions that may carry the names of builtins: in POSIX mode special builtins win over functions,
# so `unset -f builtin` is the real one, and `builtin` then leads to all others. Nothing here is expanded as an alias.
_DUMP = (
    r"{ _tg_s=$SHELLOPTS _tg_b=$BASHOPTS; POSIXLY_CORRECT=1; \unset -f builtin; \builtin set +eux +o posix; "
    r'\builtin printf "%s\0" "$_tg_d" "$_tg_e" "$_tg_s" "$_tg_b"; \builtin pwd; \builtin printf "\0"; '
    r'\builtin declare -p; \builtin printf "\0"; \builtin umask -p; \builtin alias -p; \builtin printf "\0"; '
    r'\builtin declare -f; \builtin declare -Fx; \builtin printf "\0#STATE-OK"; } >&%d 2>/dev/null'
).replace("%d", str(DUMP_FD))
# Bash sources this because BASH_ENV names it. It ends in a wait; what it sources then is state and command.
_PRELUDE = (
    f"exec {PRELUDE_FD}<&-; @VICTIM@ulimit @LIMITS@ 2>/dev/null\n"
    f"_tg_d=$SHELLOPTS _tg_e=$BASHOPTS; trap '{_DUMP}' EXIT\n"
    "unset -v BASH_ENV TERM SHELL HOSTNAME OLDPWD IFS PS4 OPTERR\n"
    "declare -x PATH=@PATH@\n"
    f"read -ru {GO_FD} _tg_p || exit; exec {GO_FD}<&-; . /dev/fd/{SCRIPT_FD}\n"
)
# A judge's state is not kept, and nothing of it is written to where a program that it starts could read it.
_JUDGES_PRELUDE = _PRELUDE.replace(f"_tg_d=$SHELLOPTS _tg_e=$BASHOPTS; trap '{_DUMP}' EXIT\n", f"exec {DUMP_FD}<&-\n")
_VICTIM = "{ echo 1000 >/proc/self/oom_score_adj; } 2>/dev/null; "
_SCRIPT = f"exec {SCRIPT_FD}<&-; unset -v _tg_p; SECONDS=0\n".encode()
# Then it runs this. Functions of the agent are defined by now, and one may be called `eval`: hence `builtin`. None is
# called that: the dump above has to be rid of it.
_MAIN = rb'\builtin eval "\builtin unset -v _tg_c; $_tg_c"'


class Waiting:
    """A bash that has started, entered its limits, and waits for its state and its command.

    Attributes:
        pid: Its process.
        state: The state it was started for; its directory is that of this state.
        note: What stderr begins with.
        fallback: The directory it stands in because that of the state is closed to us, or None.
        out, err: Where its output is read; None for one on a terminal.
    """

    def __init__(self, pid: int, state: State, note: bytes, fallback: str | None, fds: tuple) -> None:
        self.pid, self.state, self.note, self.fallback = pid, state, note, fallback
        self._go, self._script, self._dump, self.out, self.err = self._fds = fds

    def wake(self, command: bytes) -> None:
        """Hand it state and command. Raises OSError when it is gone."""
        state = self.state
        script = _SCRIPT + b"_tg_c=" + quote(state.carry(command)) + b"\n" + state.text
        if self.fallback is not None:
            script += b"PWD=" + quote(os.fsencode(state.cwd)) + b"\n"  # where the command believes to be
        write_all(self._script, script)
        os.write(self._go, b"\n")

    def dump(self) -> bytes:
        """What it said of its state when it ended; empty if it did not come to that."""
        return os.pread(self._dump, MAX_STATE, 0)

    def close(self) -> None:
        """Close our ends. One that was not woken ends by itself."""
        for fd in self._fds:
            if fd is not None:
                os.close(fd)


class Confined:
    """A thread that has entered what commands are confined to: what it starts is confined, without a fork of ours.

    A filter and a Landlock domain are a thread's own, and inherited by what that thread starts; posix_spawn takes a
    third of the time of a fork of this Python, which would have to enter them anew for each command.
    """

    def __init__(self, enter: object) -> None:
        self._enter, self._job = enter, enter
        self._asked, self._done = _thread.allocate_lock(), _thread.allocate_lock()
        self._asked.acquire()
        self._done.acquire()
        self._result: object = None
        _thread.start_new_thread(self._serve, ())
        self._await()

    def run(self, job: object) -> int:
        """Call `job` on that thread; returns what it returns, raises what it raises."""
        self._job = job
        self._asked.release()
        return self._await()

    def _await(self) -> int:
        self._done.acquire()
        if isinstance(self._result, BaseException):
            raise self._result
        return self._result  # type: ignore[return-value]

    def _serve(self) -> None:
        self._do(self._enter)
        while True:
            self._done.release()
            self._asked.acquire()
            self._do(self._job)

    def _do(self, job: object) -> None:
        try:
            self._result = job()  # type: ignore[operator]
        except BaseException as error:  # handed to the caller, who waits for it
            self._result = error


class Shell:
    """Runs commands one after the other.

    Args:
        settings: The supervisor's settings (see `sandboxes.supervisor`).
        processes: How the processes of a command are ended.
        enter: Confines the calling thread, and what it starts, to what a command may do.
        score: Descriptor of our own oom_score_adj, where commands cannot change theirs; else they set it themselves.
    """

    def __init__(self, settings: dict, processes: Processes, enter: object, score: int | None = None) -> None:
        self._settings, self._processes, self._enter, self._score = settings, processes, enter, score
        self._confined = Confined(enter)
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        self._bash = next((path for path in ("/bin/bash", "/usr/bin/bash") if os.path.exists(path)), "")
        if not self._bash:
            sys.exit(NO_BASH)
        self._graders = graders_part(settings["env"], settings["wipe"])
        self._preludes = []
        for text, env in ((_PRELUDE, settings["env"]), (_JUDGES_PRELUDE, self._graders)):
            path = quote(env["PATH"].encode())  # a shell whose PATH was unset finds its programs again
            text = text.replace("@LIMITS@", self.limits()).replace("@PATH@", path.decode())
            self._preludes.append(_memory_file())
            write_all(self._preludes[-1], text.replace("@VICTIM@", _VICTIM if score is None else "").encode())
        self.workspace: str = settings["workspace"]
        self._ahead: Waiting | None = None
        self._kept = False
        self.reset()

    def reset(self, environment: dict | None = None) -> None:
        """Back to the state of a new sandbox, with these variables beside its own. The caller ends all processes."""
        self.stand_down()
        self._kept = False
        self._env, self._clean = ({**env, **(environment or {})} for env in (self._settings["env"], self._graders))
        self.state = State.fresh(self.workspace, self._env)

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

    def start(self, state: State, stream: int | None = None, judge: object = None, *, silent: bool = False) -> Waiting:
        """Start a bash for this state, up to the point where it waits to be woken.

        Args:
            state: What it will be given.
            stream: Its three streams and its controlling terminal; None makes two pipes, `out` and `err` of the result.
            silent: What it prints goes nowhere: no pipes are made.
            judge: Called in a child of ours with what executes the bash: it is no command, and confined otherwise.
        """
        ours: list = []
        theirs: list = []
        try:
            cwd, note, fallback = self.prepare(state)
            dump, script = (_memory_file(ours) for _ in range(2))
            wait, go = _pipe(theirs, ours)
            streams, out, err = [self._null if silent else stream] * 3, None, None
            if stream is None and not silent:
                out, out_end = _pipe(ours, theirs)
                err, err_end = _pipe(ours, theirs)
                streams = [self._null, out_end, err_end]
            pairs = [(source, target) for target, source in enumerate(streams)]
            prelude = self._preludes[judge is not None]
            pairs += [(dump, DUMP_FD), (wait, GO_FD), (prelude, PRELUDE_FD), (script, SCRIPT_FD)]
            argv = [b"bash", b"--norc", b"--noprofile", b"-c", _MAIN]
            env = {"PWD": cwd, "BASH_ENV": f"/dev/fd/{PRELUDE_FD}"}
            self._be_victim(True)
            if judge is None and stream is None:
                actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in pairs]

                def spawn() -> int:
                    return os.posix_spawn(self._bash, argv, env, file_actions=actions, setsid=True, setsigdef=_DEFAULTS)

                pid = self._confined.run(spawn)
            else:
                pid = self._fork(argv, env, pairs, stream is not None, judge)
        except BaseException:
            for fd in ours:
                os.close(fd)
            raise
        finally:
            self._be_victim(False)
            os.chdir("/")
            for fd in theirs:
                os.close(fd)
        return Waiting(pid, state, note, fallback, (go, script, dump, out, err))

    def _be_victim(self, willing: bool) -> None:
        """What is started now inherits that the kernel takes it first when memory is short."""
        if self._score is not None:
            os.pwrite(self._score, b"1000" if willing else b"0", 0)

    def _fork(self, argv: list, env: dict, pairs: list, terminal: bool, judge: object) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.setsid()
            for source, target in pairs:
                os.dup2(source, target)
            for number in (*_DEFAULTS, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            if judge is not None:
                judge(lambda: os.execve(self._bash, argv, env))  # type: ignore[operator]
            if terminal:
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            self._enter()  # type: ignore[operator]
            os.execve(self._bash, argv, env)
        except BaseException as error:  # the child must not return into the supervisor's loop
            os.write(2, f"sandbox: the command could not be started: {error}\n".encode())
        os._exit(126)

    def start_ahead(self) -> None:
        """Start the bash of the next command now, unless it stands already."""
        if self._ahead is None:
            with contextlib.suppress(OSError):  # no memory or process left: the next command tries again and reports it
                self._ahead = self.start(self.state)

    def stand_down(self) -> None:
        """End a bash that was started ahead: its directory may be about to change."""
        waiting, self._ahead = self._ahead, None
        if waiting is not None:
            waiting.close()
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it was ended with all others
                os.kill(waiting.pid, signal.SIGKILL)
                os.waitpid(waiting.pid, 0)

    def serve(self, command: bytes) -> None:
        """Start a service: a command that starts from a new state and runs beside those that follow. Raises OSError."""
        waiting = self.start(State.fresh(self.workspace, self._env), silent=True)
        self._processes.services[waiting.pid] = None
        try:
            waiting.wake(command)
        finally:
            waiting.close()

    def _woken(self, state: State, command: bytes, judge: object) -> Waiting:
        """A bash that has been given the command: the one that was started ahead, if it fits and still lives."""
        waiting = self._ahead
        if waiting is not None and waiting.state is state and judge is None:
            with contextlib.suppress(OSError):  # ended from outside, or reaped with others: another is started
                if os.waitid(os.P_PID, waiting.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    waiting.wake(command)
                    self._ahead = None
                    return waiting
        self.stand_down()
        waiting = self.start(state, judge=judge)
        with contextlib.suppress(BrokenPipeError):  # it is gone already: its wait status says how
            waiting.wake(command)
        return waiting

    def run(
        self, command: bytes, timeout: float, clean: bool, keep_background: bool = False, judge: object = None
    ) -> tuple:
        """Run one command to its end, its time-out, or its flood. Returns (facts, stdout, stderr).

        Args:
            command: What to run.
            timeout: Seconds of wall time; of a judge, seconds as `sandboxes.inside.processes.Budget` counts them.
            clean: Start from a new state and keep nothing.
            keep_background: Do not end the processes that the command left running.
            judge: A `sandboxes.inside.judge.Start`: how it is started, when it is a judge's. Then `clean` must be set.

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
        if self._kept or self._processes.serving:
            self._processes.reap()
        own = {} if judge is None else judge.env  # type: ignore[attr-defined]
        state = State.fresh(self.workspace, {**self._clean, **own}) if clean else self.state
        begin = time.monotonic()
        waiting = self._woken(state, command, judge)
        try:
            captures = {waiting.out: Capture(self._cap), waiting.err: Capture(self._cap)}
            budget = None if judge is None else Budget(timeout)
            watch = self.watch(captures, budget)
            deadline = begin + (timeout if budget is None else budget.wall)
            code = watch.until_over(waiting.pid, deadline, keep_background)
            seconds = time.monotonic() - begin
            dump = b"" if watch.why else waiting.dump()
        finally:
            self._kept = keep_background
            waiting.close()
        out, err = captures[waiting.out], captures[waiting.err]
        if not clean:
            self.state = state.following(dump, waiting.fallback) or state
            self.state.status = code
        facts = _facts(code, watch.why == "timeout", bool(out.cut or err.cut or watch.why == "flood"), seconds)
        return facts, out.value(), waiting.note + err.value() + watch.note()

    def watch(self, captures: dict, budget: Budget | None = None) -> Watch:
        """Looks after what is started now."""
        return Watch(self._settings, self._processes, captures, budget)

    def still(self) -> contextlib.AbstractContextManager:
        """A context in which nothing in the sandbox moves, for looking at files or changing them."""
        moving = self._kept or self._processes.serving
        return self._processes.stopped() if moving else contextlib.nullcontext()

    @property
    def flood_bytes(self) -> int:
        """Output after which a command is ended."""
        return self._settings["flood_bytes"]

    @property
    def _cap(self) -> int:
        return self._settings["output_bytes"]


def _facts(code: int, timed_out: bool = False, truncated: bool = False, seconds: float = 0.0) -> dict:
    return {"exit_code": code, "timed_out": timed_out, "truncated": truncated, "seconds": seconds}


def _pipe(readers: list, writers: list) -> tuple:
    """A pipe; each end is added to the list of the side that owns it."""
    ends = os.pipe()
    readers.append(ends[0])
    writers.append(ends[1])
    return ends


def _memory_file(fds: list | None = None) -> int:
    fd = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    if fds is not None:
        fds.append(fd)
    return fd
