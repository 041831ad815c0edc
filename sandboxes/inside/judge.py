"""Running a command of a grader: its files, its folder, and what keeps them out of reach of what the agent wrote.

Before a judge starts, nothing of the agent's runs, the grader's folder is empty, and nothing stands in the workspace
that could make a judge wait for ever (a fifo, a socket, a device). Neither its command nor its files are ever an
argument of a process. What it starts of the agent's is confined by a `Warden`.
"""

from __future__ import annotations

import os
import stat

from sandboxes.inside import kernel
from sandboxes.inside.files import Tree, put
from sandboxes.inside.processes import Processes
from sandboxes.inside.shell import Shell
from sandboxes.inside.warden import Warden
from sandboxes.inside.wiping import wipe


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
        self._open = [root for root in settings["wipe"] if root != self._root]
        self._places: tuple | None = None

    def run(self, head: dict, body: bytes) -> tuple:
        """Lay the files, run the command, remove the files. Returns (facts, stdout, stderr).

        Args:
            head: `folder` (its name, which nobody can know before), `entries` as for `put`, `env`, `timeout`, `private`
                (stdout is the verdict), `apart` (confine what is the agent's; else nothing keeps it from the files).
            body: Contents of the files, then the command.

        Raises:
            JudgeLost: What the agent wrote could not be confined.
            OSError: The files could not be laid.
        """
        self._shell.stand_down()
        self._processes.end_all()
        for root in (self._settings["workspace"], self._settings["tmp"]):
            _make_room(root)
        wipe(self._root, 0o700)
        folder = f"{self._root}/{head['folder']}"
        os.mkdir(folder, 0o700)
        sizes = sum(entry[4] for entry in head["entries"])
        put(folder, head["entries"], body[:sizes])
        report = os.memfd_create("report", os.MFD_CLOEXEC)
        try:
            apart = self._settings["landlock"] or head["apart"]
            mine, theirs = self._domains() if apart else (None, None)
            warden = Warden(theirs, folder, body, self._open, head["private"]) if head["apart"] else None
            env = {"GRADER": folder, "HOME": folder, **head["env"]}
            start = Start(env, lambda: self._confine(mine), warden, report)
            facts, out, err = self._shell.run(body[sizes:], head["timeout"], True, judge=start)
            why = os.pread(report, 4000, 0)
        finally:
            os.close(report)
            wipe(self._root, 0o700)
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
                tops = [path for path in tops if not os.path.islink(path) and path != self._root]
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
