"""What `python -m sandboxes shell` does: bash in a sandbox, for people and for pipes.

In a terminal the shell has a terminal of its own inside the sandbox, spoken to through `SandboxSpawn`. Everything that
is typed goes inside, Ctrl-C, Ctrl-D and Ctrl-Z too; Ctrl-] ends the session from outside. When stdin is no terminal,
each of its lines is a command of its own, as agents run them.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import stat
import sys
import termios
import tty
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from pexpect import EOF, TIMEOUT

from sandboxes.cli import Mistake
from sandboxes.client import SupervisedSandbox
from sandboxes.inside.files import BadPath, path_parts
from sandboxes.inside.frames import write_all
from sandboxes.opening import choose, open_sandbox
from sandboxes.paths import check_workdir
from sandboxes.sandbox import EntryKind, FileEntry, Limits, SandboxError
from sandboxes.terminal import SandboxSpawn

ESCAPE = b"\x1d"
"""Ctrl-]"""
LOOK = 0.01
"""Seconds between two looks at the keyboard while the shell prints nothing."""
WINDOW, READ_AGAIN = 32 << 10, 512 << 10
"""Bytes that are typed before output is read, and bytes of output after which more is typed. Were the pipes to and from
the supervisor both full, each side would wait for the other."""
ENDLESS = 1 << 40
"""Bytes a session may print: there is somebody to press Ctrl-C."""


def shell(options: Namespace) -> int:
    """Run a session; returns the exit code of the shell, or of the last command. Raises Mistake, SandboxError."""
    backend = choose(options.backend)
    if options.workdir is not None:
        try:
            check_workdir(options.workdir)
        except ValueError as error:
            raise Mistake(error) from error
    files = {} if options.put is None else load_folder(options.put)
    if options.save is not None:
        _must_be_new(options.save)
    interactive = sys.stdin.isatty()
    limits = Limits(flood_bytes=ENDLESS) if interactive else Limits()
    with open_sandbox(backend, limits=limits) as sandbox:
        sandbox.open(files, workdir=options.workdir)
        code = _converse(sandbox) if interactive else _lines(sandbox, options.timeout)
        if options.save is not None:
            _save(sandbox, options.save)
    return code


# --- a terminal -------------------------------------------------------------------------------------------------------


def _converse(sandbox: SupervisedSandbox) -> int:
    print(f"{sandbox.backend} sandbox, workspace {sandbox.workspace}; Ctrl-] ends it from outside", file=sys.stderr)
    variables = {
        "TERM": os.environ.get("TERM", "dumb"),
        "PS1": f"({sandbox.backend}) \\w\\$ ",
        "HISTFILE": "",  # the home of the shell is the workspace
    }
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    with _Keyboard(sys.stdin.fileno()) as keyboard, sandbox.spawn(f"export {exports}; exec bash --norc -i") as program:
        _relay(program, keyboard)
    assert program.exitstatus is not None
    return int(program.exitstatus)


def _relay(program: SandboxSpawn, keyboard: _Keyboard) -> None:
    """Pass bytes both ways until the shell ends, or is ended."""
    window, seen = WINDOW, 0
    while True:
        if keyboard.resized():
            program.setwinsize(*keyboard.size())
        if window > 0 and (typed := keyboard.read(4096)) is not None:
            before, escape, _ = typed.partition(ESCAPE)
            if before:
                program.send(before)
                window -= len(before)
            if escape or not typed:
                write_all(1, b"\r\n" if escape else b"")
                program.close()
                return
        try:
            data = program.read_nonblocking(1 << 16, timeout=LOOK)
        except TIMEOUT:
            window, seen = WINDOW, 0
            continue
        except EOF:
            return
        seen += len(data)
        if seen > READ_AGAIN:
            window, seen = WINDOW, 0
        write_all(1, data)


class _Keyboard:
    """The terminal of the user: raw inside the `with`, and as it was afterwards, whatever happens."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._changed = True
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> _Keyboard:
        self._before = termios.tcgetattr(self._fd)
        actions: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGWINCH: self._on_change,
            signal.SIGCONT: self._on_continue,
            signal.SIGTSTP: self._on_stop,
            signal.SIGTERM: self._on_end,
            signal.SIGHUP: self._on_end,
        }
        try:
            for number, action in actions.items():
                self._handlers[number] = signal.signal(number, action)
            self._raw()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._restore()

    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        columns, rows = os.get_terminal_size(self._fd)
        return rows or SandboxSpawn.ROWS, columns or SandboxSpawn.COLUMNS

    def resized(self) -> bool:
        """Whether the size may have changed since the last call."""
        changed, self._changed = self._changed, False
        return changed

    def read(self, size: int) -> bytes | None:
        """What was typed; None when nothing was, empty when the terminal is gone."""
        if not select.select([self._fd], [], [], 0)[0]:
            return None
        try:
            return os.read(self._fd, size)
        except OSError:  # EIO: it hung up
            return b""

    def _raw(self) -> None:
        tty.setraw(self._fd, termios.TCSADRAIN)

    def _restore(self) -> None:
        with contextlib.suppress(termios.error):  # a terminal that hung up needs nothing
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def _on_change(self, number: int, frame: FrameType | None) -> None:
        self._changed = True

    def _on_continue(self, number: int, frame: FrameType | None) -> None:
        self._raw()  # whoever had the terminal meanwhile left it in another mode, and perhaps another size
        self._changed = True

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._restore()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)  # stops here, and goes on here
        signal.signal(number, self._on_stop)
        self._raw()

    def _on_end(self, number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)


# --- a pipe -----------------------------------------------------------------------------------------------------------


def _lines(sandbox: SupervisedSandbox, timeout: float | None) -> int:
    code = 0
    for line in sys.stdin.buffer:
        result = sandbox.run(line.rstrip(b"\n").decode("utf-8", "surrogateescape"), timeout=timeout)
        for stream, data in ((sys.stdout, result.stdout), (sys.stderr, result.stderr)):
            stream.buffer.write(data)
            stream.flush()
        if result.timed_out:
            print(f"(killed after {result.seconds:.1f} seconds)", file=sys.stderr)
        code = result.exit_code
    return code


# --- files ------------------------------------------------------------------------------------------------------------


def load_folder(folder: Path) -> dict[str, FileEntry]:
    """A folder of the host as files for a workspace; links stay links, devices and the like are left out.

    Raises:
        Mistake: It is no folder, or something in it cannot be read.
    """
    if not folder.is_dir():
        raise Mistake(f"--put {folder}: there is no such folder")
    found: dict[str, FileEntry] = {}
    try:
        for path, entry in _walk(folder, ""):
            found[path] = entry
    except OSError as error:
        raise Mistake(f"--put {folder}: {error}") from error
    return found


def _walk(folder: Path, prefix: str) -> Iterator[tuple[str, FileEntry]]:
    for item in sorted(os.scandir(folder), key=lambda item: item.name):
        path = prefix + item.name
        status = item.stat(follow_symlinks=False)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if stat.S_ISLNK(status.st_mode):
            yield path, FileEntry(EntryKind.SYMLINK, None, target=os.readlink(item.path))
        elif stat.S_ISDIR(status.st_mode):
            yield path, FileEntry(EntryKind.DIR, None, mode | 0o700)
            yield from _walk(Path(item.path), path + "/")
        elif stat.S_ISREG(status.st_mode):
            yield path, FileEntry(content=Path(item.path).read_bytes(), mode=mode)


def _must_be_new(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Mistake(f"--save {folder}: it exists, and nothing is overwritten; name a new folder")
    if not folder.absolute().parent.is_dir():
        raise Mistake(f"--save {folder}: there is no folder {folder.absolute().parent}")


def _save(sandbox: SupervisedSandbox, folder: Path) -> None:
    """Write directories and regular files. A link is not saved: outside it would point at the host's files.

    Raises:
        SandboxError: The sandbox was lost, or the host refuses a file.
    """
    try:
        left = _write_files(sandbox, folder)
    except OSError as error:
        raise SandboxError(f"--save {folder}: {error}; what was written so far stays there") from error
    print(f"the workspace was saved in {folder}", file=sys.stderr)
    if left:
        shown = ", ".join(ascii(path) for path in left[:5])
        print(f"left out, because they are no regular files: {shown}{', ...' * (len(left) > 5)}", file=sys.stderr)


def _write_files(sandbox: SupervisedSandbox, folder: Path) -> list[str]:
    """Write what may be written; returns the paths that were left out."""
    folder.mkdir(exist_ok=True)
    left: list[str] = []
    for path, entry in sandbox.snapshot().items():
        try:
            target = folder.joinpath(*path_parts(path))
        except BadPath:
            left.append(path)
            continue
        if entry.kind is EntryKind.DIR:
            target.mkdir()
        elif entry.kind is EntryKind.FILE:
            content = sandbox.read(path) if entry.content is None else entry.content
            with open(target, "xb") as file:
                file.write(content)
            target.chmod(entry.mode & 0o777)
        else:
            left.append(path)
    return left
