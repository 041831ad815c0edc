"""What a finished test of many sandboxes may have left on this machine. Other tests may run beside it.

So each scan looks only for what can be told to be of this test: descendants of this process and those that were seen
to be (by process id and start time), the marker that every command of the test carries, the test's own temporary
folder, the ids of its containers, and the token of this process.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from sandboxes.inside.processes import descendants_of
from sandboxes.owner import owner

GROUPS = Path("/sys/fs/cgroup")


def started(pid: int) -> str:
    """When a process started; empty when there is none (a zombie counts: somebody has to reap it)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def parent_of(pid: int) -> int:
    """Parent of a process; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def children_of(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in os.listdir(f"/proc/{pid}/task"):
            found += [int(word) for word in Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def arguments(pid: int) -> bytes:
    """The argument vector of a process, NUL after each; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def descriptors() -> Counter[str]:
    """Kinds of the open descriptors of this process that a transport uses: pipes and memory files."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            target = os.readlink(f"/proc/self/fd/{name}")
            found["pipe" if target.startswith("pipe:") else "memfd" if target.startswith("/memfd:sandbox") else ""] += 1
    del found[""]
    return found


def mounts() -> set[str]:
    """Mount points of this process's namespace, without those a container engine makes for its containers."""
    found = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        kind = words[words.index("-") + 1]
        if kind not in ("overlay", "nsfs") and "/containers/" not in words[4]:
            found.add(f"{words[4]} {kind}")
    return found


@dataclass
class Watched:
    """State before the test, and what was seen of it while it ran.

    Attributes:
        marker: Text that stands in the argument vector of every process the test's commands leave behind, in the names
            of their files in /dev/shm, and in nothing else.
        segment: Size in bytes of every System V segment that they make; no other program asks for that size.
        folder: The temporary folder of this process while the test runs.
    """

    marker: str
    segment: int
    folder: Path
    processes: dict[int, str] = field(default_factory=dict)
    containers: dict[str, str] = field(default_factory=dict)
    """Where the root of each container is mounted, by its id."""
    more: Callable[[], list[str]] = list
    """Asked last, for what only the test can find."""

    def __post_init__(self) -> None:
        self.children = set(descendants_of(os.getpid()))
        self.mounts = mounts()
        self.descriptors = descriptors()
        self.threads = {thread.ident for thread in threading.enumerate()}

    def look(self) -> None:
        """Remember the processes that live now."""
        for pid in descendants_of(os.getpid()):
            if pid not in self.children and pid not in self.processes:
                self.processes[pid] = started(pid)

    def left(self) -> list[str]:
        """One line for each thing that is still there."""
        return [
            *(f"child {pid} {_arguments(pid)}" for pid in descendants_of(os.getpid()) if pid not in self.children),
            *(
                f"orphan {pid} {_arguments(pid)}"
                for pid, start in self.processes.items()
                if start == started(pid) != ""
            ),
            *(f"process {line}" for line in self._marked()),
            *(f"file {path}" for path in self.folder.rglob("*")),
            *(f"shared memory file {path}" for path in Path("/dev/shm").glob(f"*{self.marker}*")),
            *(f"shared memory segment {line}" for line in self._segments()),
            *(f"mount {line}" for line in mounts() - self.mounts),
            *(f"mount of container {line}" for line in self._container_mounts()),
            *(f"cgroup {path}" for path in self._groups()),
            *(f"descriptor {name}" for name in (descriptors() - self.descriptors).elements()),
            *(f"thread {thread.name}" for thread in threading.enumerate() if self._is_left(thread)),
            *self.more(),
        ]

    def _is_left(self, thread: threading.Thread) -> bool:
        return thread.ident not in self.threads and thread.name.startswith(("sandbox-pool", "soak"))

    def _marked(self) -> list[str]:
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and int(path.name) != os.getpid() and self.marker in _arguments(int(path.name)):
                found.append(f"{path.name} {_arguments(int(path.name))}")
        return found

    def _segments(self) -> list[str]:
        try:
            lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        except FileNotFoundError:
            return []  # a kernel without System V objects
        return [line for line in lines if int(line.split()[3]) == self.segment]

    def _container_mounts(self) -> list[str]:
        text = Path("/proc/self/mountinfo").read_text()
        return [name for name, root in self.containers.items() if name in text or (root and root in text)]

    def _groups(self) -> list[str]:
        names = (owner(), *self.containers)
        return [path for path, _, _ in os.walk(GROUPS) if any(name in os.path.basename(path) for name in names)]


def _arguments(pid: int) -> str:
    return arguments(pid).replace(b"\0", b" ").decode("utf-8", "replace")[:200]
