"""What `python -m sandboxes` doctor, build, sweep, conformance and shell do."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import select
import shlex
import signal
import stat
import subprocess
import sys
import termios
import tty
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from pexpect import EOF, TIMEOUT
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sandboxes import cgroup
from sandboxes.boot import check_workdir, system_python
from sandboxes.client import SupervisedSandbox
from sandboxes.guard import plain
from sandboxes.inside.files import BadPath, path_parts
from sandboxes.inside.frames import write_all
from sandboxes.inside.kernel import landlock_abi
from sandboxes.opening import AUTO, LACKS, Probe, choose, open_sandbox, probe
from sandboxes.sandbox import Backend, EntryKind, FileEntry, Limits, SandboxError, SandboxUnavailable
from sandboxes.terminal import SandboxSpawn

# -- What `python -m sandboxes build`, `sweep` and `conformance` do ---------------------------------------------------


class Mistake(Exception):
    """Something in the command line cannot be; one line that says what."""


def build(options: Namespace) -> int:
    """Make the image, with lines of progress. Raises Mistake, SandboxError, ImageError."""
    from sandboxes.docker.image import build_image

    try:
        image = build_image(
            options.host,
            options.tag,
            offline=options.offline,
            base=options.base,
            suite=options.suite,
            cache=options.cache,
            mirror=options.mirror,
            network=options.network,
            say=lambda line: print(line, flush=True),
        )
    except ValueError as error:
        raise Mistake(error) from error
    print(f"done: {image}; `python -m sandboxes doctor` shows whether it runs")
    return 0


def sweep(options: Namespace) -> int:
    """Remove orphans, or all of one run, and count. Raises Mistake, SandboxError."""
    from sandboxes import opening as module

    if options.run_id is not None and not re.fullmatch(r"[A-Za-z0-9_.-]+", options.run_id):
        raise Mistake(f"--run {options.run_id}: no run has such an id; it has only letters, digits, '_', '.' and '-'")
    done = module.sweep(options.run_id)
    kinds = (
        ("folder", done.folders), ("control group", done.cgroups), ("container", done.containers),
        ("process", done.processes),
    )  # fmt: skip
    many = {"process": "processes"}
    said = (f"{count} {word if count == 1 else many.get(word, word + 's')}" for word, count in kinds)
    print("removed " + ", ".join(said))
    return 0


def conformance(options: Namespace) -> int:
    """Run checks, one line each; 0 when none is wrong and none failed. Raises Mistake, SandboxError."""
    from sandboxes.conformance import conform, passed, select, summary

    try:
        wanted = select(options.only)
    except ValueError as error:
        raise Mistake(error) from error
    if options.list:
        if options.json:
            print(json.dumps([{"name": c.name, "group": c.group, "about": c.about} for c in wanted], indent=1))
            return 0
        for group, checks in groupby(wanted, key=lambda check: check.group):
            print(group)
            for check in checks:
                print(f"  {check.name}: {plain(check.about)}")
        return 0
    backend = choose(options.backend)
    verdicts = []
    for verdict in conform(backend, only=options.only):
        verdicts.append(verdict)
        if not options.json:
            print(plain(str(verdict)), flush=True)
    if options.json:
        rows = [
            {
                "name": verdict.check.name,
                "group": verdict.check.group,
                "status": str(verdict.status),
                "detail": verdict.detail,
                "seconds": round(verdict.seconds, 3),
            }
            for verdict in verdicts
        ]
        print(json.dumps({"backend": str(backend), "passed": passed(verdicts), "checks": rows}, indent=1))
    else:
        print(f"{backend}: {summary(verdicts)}")
    return 0 if passed(verdicts) else 1


# -- What `python -m sandboxes doctor` does: run a command in every backend, and say what stands behind the answers ---

WIDE = 1000
"""Columns outside a terminal, where a program may read the lines: none is wrapped."""


def doctor(*, as_json: bool = False) -> int:
    """Print a table of the backends, and facts. Returns 0 if a safe backend works, else 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the local backend is unsafe stands in the table
        probes = [probe(backend) for backend in Backend]
    chosen = next((backend for backend in AUTO for found in probes if found.backend is backend and found.ok), None)
    known = facts()
    if as_json:
        rows = [
            {
                "backend": str(p.backend),
                "ok": p.ok,
                "safe": p.backend in AUTO,
                "reason": p.reason,
                "remedy": p.remedy,
                "lacks": LACKS.get(p.backend, ""),
            }
            for p in probes
        ]
        auto = None if chosen is None else str(chosen)
        print(json.dumps({"auto": auto, "backends": rows, "facts": known}, indent=1))
    else:
        _show(_backends(probes))
        print()
        _show(_facts(known))
        print(f"\nauto would use: {chosen or 'nothing: no safe backend works here'}")
    return 0 if chosen else 1


def _backends(probes: list[Probe]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("backend", "works", "what was seen", "remedy"):
        table.add_column(title, overflow="fold", header_style="bold")
    for found in probes:
        seen = "; ".join(filter(None, (found.reason, LACKS.get(found.backend) if found.ok else None)))
        seen += " (unsafe: no confinement, never chosen by auto)" if found.backend not in AUTO else ""
        answer = Text("yes", "green") if found.ok else Text("no", "red" if found.backend in AUTO else "yellow")
        table.add_row(Text(found.backend), answer, Text(seen), Text(found.remedy))
    return table


def _facts(known: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, fact in known.items():
        table.add_row(Text(name), Text(fact))
    return table


def _show(table: Table) -> None:
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=WIDE, color_system=None)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        print(line.rstrip())


def facts() -> dict[str, str]:
    """What the backends stand on, by name."""
    abi = landlock_abi()
    known = {
        "kernel": f"Linux {platform.release()} on {platform.machine()}",
        "user": "root" if os.geteuid() == 0 else f"user {os.geteuid()}",
        "Landlock": f"ABI {abi}" if abi else "absent, or switched off",
        "user namespaces": _namespaces(),
        "bubblewrap": _bubblewrap(),
        "python": _python(),
        "memory of a sandbox": f"looked at every 50 ms while a command runs; {cgroup.explain()}",
    }
    return known | _engines()


def _namespaces() -> str:
    """What the settings say; whether it is so, the probe of bubblewrap shows."""
    settings = (
        ("user.max_user_namespaces", "0"),
        ("kernel.unprivileged_userns_clone", "0"),
        ("kernel.apparmor_restrict_unprivileged_userns", "1"),
    )
    refusing = []
    for name, value in settings:
        path = Path("/proc/sys") / name.replace(".", "/")
        if path.exists() and path.read_text().strip() == value:
            refusing.append(f"{name}={value}")
    return f"refused by {' and '.join(refusing)}" if refusing else "no setting refuses them"


def _bubblewrap() -> str:
    try:
        done = subprocess.run(["bwrap", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bwrap does not run: {error}"
    return done.stdout.strip() or done.stderr.strip()


def _python() -> str:
    try:
        return str(system_python())
    except SandboxError as error:
        return str(error)


def _engines() -> dict[str, str]:
    """The engines that answer, and whether the image is there; else why none does."""
    from sandboxes.docker.engines import find_engines

    try:
        engines = find_engines()
    except (SandboxUnavailable, ValueError) as error:
        return {"engine": str(error).splitlines()[0].rstrip(":")}  # each address stands with the docker backend
    known = {}
    for number, engine in enumerate(engines, 1):
        name = "engine" if len(engines) == 1 else f"engine {number}"
        known[name] = f"{engine.kind} {engine.version} at {engine.url} ({engine.source})"
        known[name.replace("engine", "image")] = _image(engine)
    return known


def _image(engine: object) -> str:
    from docker.errors import ImageNotFound

    from sandboxes.docker.engines import Engine, client, engine_errors, explain
    from sandboxes.docker.launcher import default_image

    assert isinstance(engine, Engine)
    name = default_image()
    try:
        found = client(engine).api.inspect_image(name)
    except ImageNotFound:
        return f"{name} is not there; python -m sandboxes build makes it"
    except engine_errors() as error:
        return f"{name}: {explain(error)}"
    return f"{name} is there, {found['Size'] / 1e6:.0f} MB, made {found['Created'][:10]}"


# -- What `python -m sandboxes shell` does: bash in a sandbox, for people and for pipes -------------------------------
# In a terminal the shell has a terminal of its own inside the sandbox, spoken to through `SandboxSpawn`. Everything
# that is typed goes inside, Ctrl-C, Ctrl-D and Ctrl-Z too; Ctrl-] ends the session from outside. When stdin is no
# terminal, each of its lines is a command of its own, as agents run them.

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
