"""How a supervisor gets into its sandbox: its sources go in through the pipe, so nothing of the checkout is readable.

`python3 -I -S -B -c BOOTSTRAP` reads eight hexadecimal digits of length and that many bytes of marshalled data: for
each module its name, source and compiled code. The compiled code is used where that Python has the same byte code as
ours, which saves most of the start. The modules keep their names, so the same imports work on both sides. The first
frame after that carries the settings.
"""

from __future__ import annotations

import importlib.util
import marshal
import shutil
import sys
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from sandboxes.inside.frames import pack
from sandboxes.sandbox import Limits, SandboxUnavailable

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

_MODULES = (
    *("kernel", "frames", "wiping", "files", "processes", "state", "watch", "shell", "terminal", "warden", "judge"),
)


@cache
def bundle() -> bytes:
    """Everything the bootstrap reads, as bytes."""
    here = Path(__file__).parent
    sources = [("sandboxes", ""), ("sandboxes.inside", "")]
    sources += [(f"sandboxes.inside.{name}", (here / "inside" / f"{name}.py").read_text("utf-8")) for name in _MODULES]
    sources += [("sandboxes.supervisor", (here / "supervisor.py").read_text("utf-8"))]
    modules = []
    for name, source in sources:
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
        env: Environment of a new shell.
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
    filter: str = "none"

    def frame(self) -> bytes:
        """The first frame."""
        values = asdict(self)
        limits = values.pop("limits")
        return pack({**limits, **values})


def environment(workspace: str, tmp: str) -> dict[str, str]:
    """Environment of a new shell. The same on every backend, except for the two folders."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": workspace,
        "TMPDIR": tmp,
        "LC_CTYPE": "C.UTF-8",  # not LANG: the other categories are the same, and every program would load them
        "TERM": "dumb",
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
        "PAGER": "cat",
        "HISTFILE": "/dev/null",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


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
