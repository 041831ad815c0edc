"""A grader's command, kept apart from the agent's programs that it starts."""

from __future__ import annotations

import _socket  # `socket` takes as long to import as a supervisor to start
import contextlib
import ctypes
import errno
import fcntl
import os
import select
import signal
import stat
import struct

from sandboxes.inside import kernel
from sandboxes.inside.files import Tree, put, wipe
from sandboxes.inside.processes import Processes, exit_code
from sandboxes.inside.shell import Shell

# -- A judge and what it judges, apart: every program of the agent's that a judge starts is confined before it runs ---
# A judge needs the grader's files, and it starts programs that the agent wrote. Both have the same user, and whatever
# a process may do its children may do, however it starts them. So the judge is traced (ptrace(2)): the kernel stops
# each process below it right after it has executed a new program, before the first instruction of it. If that program
# is not the judge's own, the tracer has it enter the agent's place (a Landlock domain without the grader's folder and
# without `/proc` of other processes), takes the verdict's descriptor from it, and lets it go. From then on neither it
# nor what it starts can read or write the grader's files, nor the memory, descriptors or environment of any process of
# the judge.
#
# A ruleset cannot be opened by name, and programs such as Python's `subprocess` close every descriptor that a child
# could inherit. It is handed over through a listener of seccomp (seccomp_unotify(2)): see `kernel.listening_program`.

PATIENCE = 5.0
"""Seconds in which a stopped process must ask for what is handed over to it."""

# ptrace(2)
_CONT, _DETACH, _SYSCALL, _GETREGSET, _SETREGSET, _SEIZE, _LISTEN = 7, 17, 24, 0x4204, 0x4205, 0x4206, 0x4208
_PEEKTEXT, _POKETEXT = 1, 4
_EVENT_EXEC, _EVENT_STOP = 4, 128
# Stops in calls are told from signals; fork, vfork, clone and exec are reported; all end when their tracer does.
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x10 | 0x100000
_WALL = 0x40000000
_AT_CALL = signal.SIGTRAP | 0x80
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

# seccomp_unotify(2)
_RECEIVE, _SEND, _ADD = 0xC0502100, 0xC0182101, 0x40182103
_AT_NUMBER = 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class _Machine:
    """Registers of one architecture, as PTRACE_GETREGSET gives them: how many, and which hold what."""

    def __init__(self, size: int, call: int, arguments: tuple, result: int, place: int, enter: bytes, close: int):
        self.size, self.call, self.arguments, self.result, self.place = size, call, arguments, result, place
        self.enter = enter
        """The instruction that makes a system call."""
        self.close = close


_MACHINES = {
    "x86_64": _Machine(27, 10, (14, 13, 12), 10, 16, b"\x0f\x05", 3),
    "aarch64": _Machine(34, 8, (0, 1, 2), 0, 32, b"\x01\x00\x00\xd4", 57),
}
_ORIGINAL_CALL = 15  # of x86_64: -1 keeps the kernel from restarting a call that it thinks was interrupted


class Gone(Exception):
    """The process ended meanwhile."""


class CannotConfine(Exception):
    """A program of the agent's could not be confined: it was ended, and nothing is known of the verdict."""


class Unfit(Exception):
    """A program that could not have run: code of another machine, or none where it begins."""


class Warden:
    """Starts one judge, in a process of its own, and confines what the judge starts.

    Args:
        place: The domain that programs of the agent's enter.
        folders: The folders that only the judge has, the grader's own first.
        text: All that the grader brought: its command and its files.
        open_to_agent: Directories that the agent can write to: no program in them is the judge's.
        private: The judge's stdout is its verdict: programs of the agent's get /dev/null instead.
    """

    def __init__(self, place: kernel.Domain, folders: list, text: bytes, open_to_agent: list, private: bool) -> None:
        self._place, self._folders, self._open, self._private = place, folders, open_to_agent, private
        self._text = os.fsdecode(text)
        self._machine = _MACHINES[os.uname().machine]
        self._verdict: tuple | None = None
        self._listener = self._null = -1  # opened in the process that watches: they end with it

    def run(self, start: object, report: int) -> None:
        """Start the judge and watch over it to its end. Ends this process, with the judge's exit code; never returns.

        Args:
            start: Called in the judge's process, to confine it as far as judges are, and execute it.
            report: Descriptor to which is written why nothing is known of the verdict.
        """
        try:
            status = self._watch(self._start(start))
        except BaseException as error:  # whoever reads the report must learn of it, whatever it is
            os.write(report, f"{type(error).__name__}: {error}".encode()[:4000])
            os._exit(125)
        os._exit(exit_code(status))

    def _start(self, start: object) -> int:
        self._null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
        out = os.fstat(1)
        self._verdict = (out.st_dev, out.st_ino) if self._private else None
        ours, theirs = _socket.socketpair()
        pid = os.fork()
        if pid == 0:
            ours.close()
            try:
                kernel.prctl(kernel.PR_SET_DUMPABLE, 1)  # its tracer has the same user, and no privilege
                listener = kernel.enter_filter(kernel.listening_program() or b"", listen=True)
                passed = (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, struct.pack("=i", listener))
                theirs.sendmsg([b"\n"], [passed])
                theirs.recv(1)
                start()  # type: ignore[operator]
            except BaseException as error:  # the child must not return into what its parent does
                theirs.send(f"{error}".encode())
            os._exit(125)
        theirs.close()
        said, received, _, _ = ours.recvmsg(200, _socket.CMSG_SPACE(4))
        if not received:
            raise CannotConfine(f"the judge cannot be listened to: {said.decode()}")
        self._listener = struct.unpack("=i", received[0][2])[0]
        _trace(_SEIZE, pid, 0, _OPTIONS)
        ours.send(b"\n")
        # No end of the judge's own pipes stays here: their readers see its end.
        for fd in range(3):
            os.dup2(self._null, fd)
        return pid

    # -- the judge's family -------------------------------------------------------------------------------------------

    def _watch(self, judge: int) -> int:
        """Let the judge and what it starts run until the judge has ended; its wait status."""
        begun = False
        while True:
            pid, status = os.waitpid(-1, _WALL)
            if not os.WIFSTOPPED(status):
                if pid == judge:
                    return status
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            try:
                if event == _EVENT_EXEC and not begun:  # the judge's bash
                    begun = True
                    _trace(_CONT, pid)
                elif event == _EVENT_EXEC and not self._is_judges_own(pid):
                    self._confine(pid)
                elif event == _EVENT_STOP and number in _STOPS:
                    _trace(_LISTEN, pid)  # stopped by a signal, until another one
                else:
                    _trace(_CONT, pid, 0, 0 if event else number)
            except Gone:
                continue

    def _is_judges_own(self, pid: int) -> bool:
        try:
            program = os.readlink(f"/proc/{pid}/exe")
            here = os.readlink(f"/proc/{pid}/cwd")
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
        except OSError:  # a program that its user may not read, or a process that is gone
            return False
        return is_judges_own(program, words, here, self._folders, self._text, self._open)

    def _confine(self, pid: int) -> None:
        """Have a stopped process enter the agent's place, and let it go."""
        stopped = _Stopped(pid, self._machine, self._listener)
        try:
            stopped.leave_execve()
            replaced = self._lent(pid)
            ruleset = stopped.receive(self._place.fd, {fd: self._null for fd in replaced})
            stopped.call(kernel.SYS_LANDLOCK_RESTRICT_SELF, ruleset, 0)
            stopped.call(self._machine.close, ruleset)
            stopped.let_go()
        except ProcessLookupError:
            raise Gone from None
        except Unfit:
            os.kill(pid, signal.SIGKILL)  # as its first instruction would
        except CannotConfine:
            os.kill(pid, signal.SIGKILL)
            raise

    def _lent(self, pid: int) -> list:
        """Descriptors that a program of the agent's must not have: the verdict's, and files of the grader.

        What was put on its standard streams on purpose (input from a grader's file) stays.
        """
        found = []
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{name}"
                if int(name) > 2 and os.readlink(path).startswith(tuple(folder + "/" for folder in self._folders)):
                    found.append(int(name))
                elif self._verdict is not None:
                    status = os.stat(path)
                    if (status.st_dev, status.st_ino) == self._verdict:
                        found.append(int(name))
        except FileNotFoundError:
            raise Gone from None
        return found


class _Stopped:
    """A traced process that has just executed a program, and makes calls of ours before that program begins."""

    def __init__(self, pid: int, machine: _Machine, listener: int) -> None:
        self._pid, self._machine, self._listener = pid, machine, listener
        self._signals: list = []

    def leave_execve(self) -> None:
        """Go to the end of the call that it is in, and note where its program begins.

        Raises:
            Unfit: It cannot run.
        """
        self._resume()
        self._registers = self._get()
        self._address = self._registers[self._machine.place]
        self._code = _peek(self._pid, self._address)
        code = self._machine.enter + struct.pack("=q", self._code)[len(self._machine.enter) :]
        _poke(self._pid, self._address, struct.unpack("=Q", code)[0])

    def call(self, call: int, *arguments: int, listen: object = None) -> int:
        """Have it make one system call.

        Raises:
            Gone: It ended meanwhile.
            CannotConfine: The call failed.
        """
        m = self._machine
        values = list(self._registers)
        values[m.call], values[m.place] = call, self._address
        if m.size == 27:
            values[_ORIGINAL_CALL] = (1 << 64) - 1
        for number, value in enumerate(arguments):
            values[m.arguments[number]] = value & (1 << 64) - 1
        self._set(values)
        self._resume()  # to where it enters the call
        if listen is None:
            self._resume()
        else:
            self._restart()
            listen()  # type: ignore[operator]
            self._wait()
        result = self._get()[m.result]
        if result >= (1 << 64) - 4095:
            code = (1 << 64) - result
            raise CannotConfine(f"call {call} of a program of the agent's failed: {os.strerror(code)}")
        return result

    def receive(self, fd: int, replaced: dict) -> int:
        """Hand it a copy of a descriptor of ours; returns its number there.

        Args:
            fd: The descriptor.
            replaced: Descriptors of its that become copies of ours.
        """
        return self.call(
            kernel.SYS_LANDLOCK_RESTRICT_SELF, -1, kernel.HANDOVER, listen=lambda: self._hand_over(fd, replaced)
        )

    def _hand_over(self, fd: int, replaced: dict) -> None:
        pid, ident = None, 0
        while pid != self._pid:
            if pid is not None:  # one that was let go makes this call: it is refused
                self._answer(ident, 0, errno.EPERM)
            if not select.select([self._listener], [], [], PATIENCE)[0]:
                raise CannotConfine("a stopped process did not ask for its ruleset")
            asked = bytearray(80)  # zeroed: the kernel refuses another one
            try:
                fcntl.ioctl(self._listener, _RECEIVE, asked)
            except FileNotFoundError:
                pid = None  # who asked has ended
                continue
            ident, pid = struct.unpack_from("=QI", asked)
        try:
            for number, ours in replaced.items():
                fcntl.ioctl(self._listener, _ADD, struct.pack("=QIIII", ident, _AT_NUMBER, ours, number, 0))
            # Mutable, so that the answer is a number.
            wanted = bytearray(struct.pack("=QIIII", ident, 0, fd, 0, os.O_CLOEXEC))
            theirs = fcntl.ioctl(self._listener, _ADD, wanted)
        except FileNotFoundError:
            raise Gone from None
        self._answer(ident, theirs, 0)

    def _answer(self, ident: int, value: int, error: int) -> None:
        with contextlib.suppress(FileNotFoundError):  # who asked has ended
            fcntl.ioctl(self._listener, _SEND, struct.pack("=QqiI", ident, value, -error, 0))

    def let_go(self) -> None:
        """Give its registers and its code back, and trace it no more."""
        _poke(self._pid, self._address, self._code & (1 << 64) - 1)
        self._set(self._registers)
        for number in self._signals[1:]:
            os.kill(self._pid, number)
        _trace(_DETACH, self._pid, 0, self._signals[0] if self._signals else 0)

    # -- ptrace -------------------------------------------------------------------------------------------------------

    def _restart(self) -> None:
        _trace(_SYSCALL, self._pid)

    def _resume(self) -> None:
        """Let it run to the next edge of a call."""
        self._restart()
        self._wait()

    def _wait(self) -> None:
        while True:
            _, status = os.waitpid(self._pid, _WALL)
            if not os.WIFSTOPPED(status):
                raise Gone
            if os.WSTOPSIG(status) == _AT_CALL:
                return
            if not status >> 16:
                self._signals.append(os.WSTOPSIG(status))  # it gets this one when it is let go
            self._restart()

    def _get(self) -> list:
        buffer = ctypes.create_string_buffer(8 * self._machine.size)
        if self._exchange(_GETREGSET, buffer) != len(buffer):
            raise Unfit  # registers of 32 bits: its calls have other numbers, and the filter ends it at the first one
        return list(struct.unpack(f"={self._machine.size}Q", buffer.raw))

    def _set(self, values: list) -> None:
        data = struct.pack(f"={self._machine.size}Q", *values)
        self._exchange(_SETREGSET, ctypes.create_string_buffer(data, len(data)))

    def _exchange(self, request: int, buffer: ctypes.Array) -> int:
        vector = struct.pack("@PN", ctypes.addressof(buffer), len(buffer))
        holder = ctypes.create_string_buffer(vector, len(vector))
        _trace(request, self._pid, 1, ctypes.addressof(holder))
        size: int = struct.unpack("@PN", holder.raw)[1]
        return size


def _trace(request: int, pid: int, address: int = 0, data: int = 0) -> None:
    if _libc.ptrace(request, pid, address, data) < 0:
        code = ctypes.get_errno()
        if code == errno.ESRCH:
            raise Gone
        raise CannotConfine(f"ptrace({request:#x}): {os.strerror(code)}")


def _peek(pid: int, address: int) -> int:
    ctypes.set_errno(0)
    word: int = _libc.ptrace(_PEEKTEXT, pid, address, 0)
    if word == -1 and ctypes.get_errno():
        raise Gone if ctypes.get_errno() == errno.ESRCH else Unfit
    return word


def _poke(pid: int, address: int, word: int) -> None:
    if _libc.ptrace(_POKETEXT, pid, address, word) < 0:
        raise Gone if ctypes.get_errno() == errno.ESRCH else Unfit


# --- whose program it is ----------------------------------------------------------------------------------------------

_CARRIERS = ("env", "timeout", "nice", "nohup", "setsid", "stdbuf", "time", "chrt", "ionice", "taskset", "flock")
"""Programs that only start another one, which is looked at in its turn."""
_TOOLS = frozenset(
    b"[ b2sum base64 basename cat chmod cksum cmp comm cp cut diff diff3 egrep expand fgrep file fold grep gunzip gzip "
    b"head hexdump jq ln ls md5sum mkdir mv nl od paste printf realpath rm rmdir sdiff sha1sum sha224sum sha256sum "
    b"sha384sum sha512sum sort stat sum tac tail tee test touch tr uniq wc xxd zcat zcmp zdiff zgrep".split()
)
"""Programs that run no other: where the grader's folder is named, anywhere, they work for the judge."""
_LOOKS = ("fuser", "lsof", "netstat", "pgrep", "pidof", "ps", "ss")
"""Programs that run no other, and look at what the agent's places hide: processes."""
_WITH_VALUE = ("-W", "-X", "-o")
"""Options of interpreters and shells that the next word belongs to."""
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib", "/opt/")


def is_judges_own(program: str, words: list, here: str, folders: list, text: str, open_to_agent: list) -> bool:
    """Whether a program that a judge has started is the judge's, not the agent's.

    It is when a folder of the grader is named as what it runs: `python3 "$GRADER/check.py"`, `diff out /tests/wanted`,
    `python3 -c` with a text of the grader that names $GRADER, `python3 -m unittest` in that folder. Everything else is
    the agent's, also what only the system brought (`make`, `python3 -c`): whoever needs no file of the grader needs no
    privilege. $GRADER is drawn for each judge, so a command line that the agent wrote cannot name it; folders at the
    root it can name, and gains nothing: what the agent's programs start has no privilege whatever it is called.

    Args:
        program: Path of the executable.
        words: Its arguments, its name first.
        here: Its directory.
        folders: The folders that only the judge has, the grader's own first.
        text: All that the grader brought.
        open_to_agent: Directories that the agent can write to.
    """

    def within(path: str, place: str) -> bool:
        return path == place or path.startswith(place + "/")

    def of_grader(path: str) -> bool:
        return any(within(path, folder) for folder in folders)

    def resolved(word: str) -> str:
        return os.path.normpath(os.path.join(here, word))

    if any(within(program, place) for place in open_to_agent):
        return False
    if of_grader(program):
        return True
    named = any(folder in word for word in words[1:] for folder in folders[:1]) or any(
        of_grader(resolved(word)) for word in words[1:]
    )
    name = os.path.basename(words[0] if words else program)
    if name in _LOOKS and program.startswith(_SYSTEM):
        return True
    if name in _CARRIERS or name.encode() in _TOOLS:
        return named
    skip = False
    for number, word in enumerate(words[1:], start=1):
        if skip:
            skip = False
            continue
        if word[:1] == "-" != word[1:2] and word[-1] in "ce":  # a text to run: python3 -c, bash -ec, perl -ne
            inline = words[number + 1] if number + 1 < len(words) else ""
            return any(name in inline for name in ("GRADER", *folders[1:])) and inline in text
        if word == "-m" and name.startswith("python"):
            return of_grader(here) or any(of_grader(resolved(rest)) for rest in words[number + 2 :])
        if word.startswith("-"):
            skip = word in _WITH_VALUE
            continue
        path = resolved(word)
        if not path.startswith(_SYSTEM):
            return of_grader(path)
    return False


# -- Running a command of a grader: its files, its folder, and what keeps them out of reach of what the agent wrote ---
# Before a judge starts, nothing of the agent's runs, the grader's folder is empty, and nothing stands in the workspace
# that could make a judge wait for ever (a fifo, a socket, a device). Neither its command nor its files are ever an
# argument of a process. What it starts of the agent's is confined by a `Warden`.


class JudgeLost(Exception):
    """The judge could not be kept apart, so nothing is known of its verdict."""


class Start:
    """How a judge's bash is started; `Shell.run` takes one.

    Attributes:
        env: Variables of the judge, beside those of a new shell.
    """

    def __init__(self, env: dict, confine: object, warden: Warden | None, report: int) -> None:
        self.env = env
        self._confine, self._warden, self._report = confine, warden, report

    def __call__(self, execute: object) -> None:
        """In a child of the supervisor: become the judge, or what watches over it. Does not return."""

        def begin() -> None:
            self._confine()  # type: ignore[operator]
            execute()  # type: ignore[operator]

        if self._warden is None:
            begin()
        else:
            self._warden.run(begin, self._report)


class Judges:
    """Runs judges, one at a time.

    Args:
        settings: The supervisor's settings.
        shell: Starts their bash.
        processes: Ends what the agent left running.
        filter_: The filter that commands have, as a program of BPF; None where there is none.
    """

    def __init__(self, settings: dict, shell: Shell, processes: Processes, filter_: bytes | None) -> None:
        self._settings, self._shell, self._processes, self._filter = settings, shell, processes, filter_
        self._root: str = settings["grader"]
        self._private = [self._root, *settings["folders"]]
        self._open = [root for root in settings["wipe"] if root not in self._private]
        self._places: tuple | None = None

    def run(self, head: dict, body: bytes) -> tuple:
        """Lay the files, run the command, remove the files. Returns (facts, stdout, stderr).

        Args:
            head: `folder` (its name, which nobody can know before), `entries` as for `put`, `env`, `timeout`, `private`
                (stdout is the verdict), `apart` (confine what is the agent's; else nothing keeps it from the files),
                `beside` (what the agent left runs on).
            body: Contents of the files, then the command.

        Raises:
            JudgeLost: What the agent wrote could not be confined.
            OSError: The files could not be laid.
        """
        self._shell.stand_down()
        if not head["beside"]:
            self._processes.end_all(services=True)
            for root in (self._settings["workspace"], self._settings["tmp"]):
                _make_room(root)
        for root in self._private:
            wipe(root, 0o700)
        folder = f"{self._root}/{head['folder']}"
        os.mkdir(folder, 0o700)
        sizes = sum(entry[4] for entry in head["entries"])
        put(folder, head["entries"], body[:sizes])
        report = os.memfd_create("report", os.MFD_CLOEXEC)
        try:
            apart = self._settings["landlock"] or head["apart"]
            mine, theirs = self._domains() if apart else (None, None)
            folders = [folder, *self._private[1:]]
            warden = Warden(theirs, folders, body, self._open, head["private"]) if head["apart"] else None
            env = {"GRADER": folder, "HOME": folder, **head["env"]}
            start = Start(env, lambda: self._confine(mine), warden, report)
            facts, out, err = self._shell.run(body[sizes:], head["timeout"], True, head["beside"], judge=start)
            why = os.pread(report, 4000, 0)
        finally:
            os.close(report)
            for root in self._private:
                wipe(root, 0o700)
        if why:
            raise JudgeLost(why.decode("utf-8", "replace"))
        return facts, out, err

    def _confine(self, domain: kernel.Domain | None) -> None:
        """Confine the calling process as far as judges are."""
        if domain is not None:
            domain.enter()
        if self._filter is not None:
            kernel.enter_filter(self._filter)

    def _domains(self) -> tuple:
        """What a judge may touch (None: all that its supervisor may), and what the agent's programs below it may.

        They see no process: what a judge's tools are given as arguments (`grep -x 42`) stands in /proc.
        """
        if self._places is None:
            s = self._settings
            facts = [
                (path, kernel.READ)
                for path in (f"/proc/{name}" for name in os.listdir("/proc") if not name.isdigit())
                if not os.path.islink(path)
            ]
            if s["landlock"]:
                shared = [(path, kernel.DEVICE) for path in s["devices"]]
                shared += [(path, kernel.READ) for path in s["readable"] if path != "/proc"]
                shared += [(path, kernel.ALL) for path in self._open]
                mine = kernel.Domain([*shared, ("/proc", kernel.READ), (self._root, kernel.ALL)])
                theirs = kernel.Domain([*shared, *facts])
            else:
                tops = [f"/{name}" for name in os.listdir("/") if name != "proc"]
                tops = [path for path in tops if not os.path.islink(path) and path not in self._private]
                mine = None
                theirs = kernel.Domain([*((path, kernel.ALL) for path in tops), *facts], kernel.ALL, signals=True)
            self._places = mine, theirs
        return self._places


def _make_room(root: str) -> None:
    """Open a directory to its owner, and remove what is no file, directory or link from it: nothing to wait for."""
    status = os.stat(root)
    if status.st_uid == os.geteuid() and status.st_mode & 0o700 != 0o700:
        os.chmod(root, stat.S_IMODE(status.st_mode) | 0o700)
    with Tree(root) as tree:
        tree.clear_special()
