"""What goes into a sandbox: the supervisor's sources, its settings, and paths and files on their way in and out."""

from __future__ import annotations

import importlib.util
import marshal
import os
import re
import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sandboxes.inside.files import BadPath, path_parts
from sandboxes.inside.frames import pack
from sandboxes.sandbox import EntryKind, FileEntry, Files, Limits, SandboxUnavailable, Snapshot

# ---------------------------------------------------------------------------------------------------------------------
# What crosses the wall of a sandbox: folders that a backend cannot mount under the names of tasks, text, and files.

WORKSPACE = "/workspace"
"""Where commands work, unless a task names another place."""
_SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/proc",
    "/dev",
    "/sys",
    "/boot",
    "/run",
    "/turngym-grader",
)
_TEMPORARY = ("/tmp", "/var/tmp")
"""A reset empties such folders, and cannot remove a workspace that is mounted inside."""


def check_workdir(path: str) -> str:
    """An absolute path where a workspace may be mounted.

    Raises:
        ValueError: Relative, not in normal form, the root, /var, inside a system folder or one for temporary files.
    """
    if not path.startswith("/") or os.path.normpath(path) != path or path in ("/", "/var"):
        raise ValueError(f"workdir {path!r} must be an absolute path in normal form, such as /workspace")
    if f"{path}/".startswith(tuple(f"{folder}/" for folder in _TEMPORARY)):
        raise ValueError(f"workdir {path!r} lies in a folder for temporary files; use a path such as /workspace")
    if f"{path}/".startswith(tuple(f"{folder}/" for folder in _SYSTEM)):
        raise ValueError(
            f"workdir {path!r} lies in a system folder; use a path such as /workspace or /home/user/project"
        )
    return path


class PathAlias:
    """Rewrites shown paths to real ones on the way in, and real ones to shown ones on the way out.

    Commands and link targets are rewritten on the way in; output, link targets and contents of files on the way out. A
    path that a command puts together at run time is not seen, and a byte count inside the sandbox counts the real path.

    Args:
        shown: Path of the workspace as a task names it, such as `/workspace`.
        real: Where it is.
        others: More (shown, real) pairs, such as the folder for temporary files.
    """

    def __init__(self, shown: str, real: str, others: tuple[tuple[str, str], ...] = ()) -> None:
        self.shown, self.real = shown, real
        pairs = [(os.fsencode(a), os.fsencode(b)) for a, b in ((shown, real), *others) if a != b]
        self._to_real = dict(pairs)
        self._to_shown = [(b, a) for a, b in sorted(pairs, key=lambda pair: -len(pair[1]))]
        names = b"|".join(re.escape(a) for a, _ in sorted(pairs, key=lambda pair: -len(pair[0])))
        self._in = re.compile(rb"(?<![\w.})/-])(?:" + names + rb")(?![\w.-])") if pairs else None

    def inward(self, data: bytes) -> bytes:
        """Replace shown paths by real ones, where they stand as whole paths."""
        return data if self._in is None else self._in.sub(lambda match: self._to_real[match[0]], data)

    def outward(self, data: bytes) -> bytes:
        """Replace real paths by shown ones."""
        for real, shown in self._to_shown:
            data = data.replace(real, shown)
        return data

    def outward_text(self, text: str) -> str:
        """`outward` for the target of a link."""
        return self.outward(text.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    """Text as bytes; lone surrogates that stand for bytes are given back, others replaced."""
    return text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace")


def _escaped(text: str) -> bool:
    """Whether lone surrogates stand for bytes (as the file system's names do), so that they can be given back."""
    return any("\udc80" <= letter <= "\udcff" for letter in text) and not any(
        "\ud800" <= letter < "\udc80" or "\udcff" < letter <= "\udfff" for letter in text
    )


def check_path(path: str) -> None:
    """Raise ValueError unless a path is relative and stays in the workspace."""
    try:
        path_parts(path)
    except BadPath as error:
        raise ValueError(str(error)) from None


def rows_of(files: Files, alias: PathAlias) -> tuple[list[list[Any]], bytes]:
    """Files as the rows and the body of a `put` request.

    Raises:
        ValueError: A path leaves the workspace, or an entry cannot be put.
    """
    rows: list[list[Any]] = []
    chunks: list[bytes] = []
    for path, value in files.items():
        check_path(path)
        if isinstance(value, str):
            value = value.encode("utf-8")
        entry = value if isinstance(value, FileEntry) else FileEntry(content=value)
        content, target = b"", None
        if entry.kind is EntryKind.FILE:
            if entry.content is None:
                raise ValueError(f"{path!r}: a file without content cannot be put")
            content = entry.content
        elif entry.kind is EntryKind.SYMLINK:
            if not entry.target:
                raise ValueError(f"{path!r}: a symbolic link needs a target")
            target = alias.inward(entry.target.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        elif entry.kind is not EntryKind.DIR:
            raise ValueError(f"{path!r}: only files, directories and symbolic links can be put")
        rows.append(
            [
                path,
                str(entry.kind),
                0o755 if entry.kind is EntryKind.DIR and entry.mode == 0o644 else entry.mode,
                target,
                len(content),
            ]
        )
        chunks.append(content)
    return rows, b"".join(chunks)


def snapshot_of(rows: list[list[Any]], body: bytes | bytearray, cut: bool, alias: PathAlias) -> Snapshot:
    """The rows and the body that `inside.files.Tree.snapshot` gives, as a snapshot; `cut`: paths are missing."""
    found = Snapshot(cut=cut)
    offset = 0
    for path, kind, mode, size, target, length in rows:
        content = None
        if length >= 0:
            content = alias.outward(bytes(body[offset : offset + length]))
            offset += length
        found[path] = FileEntry(
            kind=EntryKind(kind),
            content=content,
            mode=mode,
            target=None if target is None else alias.outward_text(target),
            size=(size if content is None else len(content)) if kind == "file" else None,
        )
    return found


# ---------------------------------------------------------------------------------------------------------------------
# How a supervisor gets into its sandbox: its sources go in through the pipe, so nothing of the checkout is readable.
#
# `python3 -I -S -B -c BOOTSTRAP` reads eight hexadecimal digits of length and that many bytes of marshalled data: for
# each module its name, source and compiled code. The compiled code is used where that Python has the same byte code as
# ours, which saves most of the start. The modules keep their names, so the same imports work on both sides. The first
# frame after that carries the settings.

UID = 1000
"""User and group of commands, where the sandbox has users of its own."""
SHM_MB = 16
"""Size of /dev/shm, where the sandbox has one."""
GRADER = "/turngym-grader"
"""Where the files of a grader lie while it runs, as commands see it."""
GRADER_MB = 32
"""Size of that folder, where it is a file system of its own."""
BOOTSTRAP = """
import sys, os, marshal
def take(n):
    data = b""
    while len(data) < n:
        more = os.read(0, n - len(data))
        if not more:
            os._exit(3)
        data += more
    return data
magic, modules = marshal.loads(take(int(take(8), 16)))
same = magic == sys.modules["_frozen_importlib_external"].MAGIC_NUMBER
for name, source, code in modules:
    module = sys.modules[name] = type(sys)(name)
    module.__path__ = []
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)
    exec(marshal.loads(code) if same else compile(source, "<" + name + ">", "exec"), module.__dict__)
sys.modules["sandboxes.supervisor"].main()
""".strip()
"""What `python3 -c` runs."""

_MODULES = ("kernel", "frames", "files", "processes", "variables", "shell", "terminal", "judge")


def sources() -> list[tuple[str, str]]:
    """The modules that run inside a sandbox, by name, in the order in which they are loaded there."""
    here = Path(__file__).parent
    inside = [(f"sandboxes.inside.{name}", (here / "inside" / f"{name}.py").read_text("utf-8")) for name in _MODULES]
    supervisor = (here / "supervisor.py").read_text("utf-8")
    return [("sandboxes", ""), ("sandboxes.inside", ""), *inside, ("sandboxes.supervisor", supervisor)]


@cache
def bundle() -> bytes:
    """Everything the bootstrap reads, as bytes. They differ between processes: marshal marks what has many users."""
    modules = []
    for name, source in sources():
        modules.append((name, source, marshal.dumps(compile(source, f"<{name}>", "exec", dont_inherit=True))))
    data = marshal.dumps((importlib.util.MAGIC_NUMBER, modules), 2)  # a version that every Python reads
    return b"%08x" % len(data) + data


@dataclass(frozen=True, slots=True)
class Settings:
    """What one supervisor needs to know. Sent as JSON in the first frame.

    Attributes:
        workspace: The workspace, as the supervisor sees it.
        tmp: The folder for temporary files.
        grader: The folder of a grader's files; empty while no grader runs.
        wipe: Directories that a reset empties; all that commands may write to.
        limits: What commands may use.
        env: Environment of a new shell; graders get of it what `sandboxes.inside.variables.graders_part` says.
        user_processes: Limit of processes for the user the commands run as (`Limits.processes`, or more where other
            processes of the same user count too).
        disk_roots: Directories on a disk without a size of its own, watched while a command runs.
        own_ipc: The sandbox has an IPC namespace, so System V objects can be cleared.
        die_with_parent: Ask the kernel for a signal when the host ends.
        landlock: Commands enter a Landlock domain.
        guardian: Nothing else tells the processes of this sandbox (no PID namespace, no user of its own): leave one
            that ends them when the supervisor is killed.
        readable: Paths a landlocked command may read and execute.
        devices: Devices a landlocked command may use.
        folders: Folders beside `grader` that judges alone have.
        background: What commands leave running runs on beside judges, so commands never see the folders of judges.
        filter: Which seccomp filter: `none`, `namespaces`, or `sockets` (for sandboxes without namespaces).
    """

    workspace: str
    tmp: str
    grader: str
    wipe: tuple[str, ...]
    limits: Limits
    env: dict[str, str]
    user_processes: int
    disk_roots: tuple[str, ...] = ()
    own_ipc: bool = False
    die_with_parent: bool = False
    landlock: bool = False
    guardian: bool = False
    readable: tuple[str, ...] = ()
    devices: tuple[str, ...] = field(default=())
    folders: tuple[str, ...] = ()
    background: bool = False
    filter: str = "none"

    def frame(self) -> bytes:
        """The first frame."""
        values = asdict(self)
        limits = values.pop("limits")
        return pack({**limits, **values})


def command_line(python: str) -> list[str]:
    """The argument vector of a supervisor."""
    return [python, "-I", "-S", "-B", "-c", BOOTSTRAP]


@cache
def system_python() -> str:
    """A Python that any user may run: of the system, not of a virtual environment or somebody's home.

    Raises:
        SandboxUnavailable: None found.
    """
    for folder in ("/usr/bin", "/usr/local/bin", "/bin"):
        found = shutil.which("python3", path=folder)
        if found:
            return found
    base = Path(sys.base_prefix) / "bin" / "python3"
    if base.exists():
        return str(base)
    raise SandboxUnavailable("no python3 in /usr/bin or /usr/local/bin; remedy: install the system's python3")
