"""Where a grader's commands run once an episode is over: in its sandbox, or beside it in a fresh one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from sandboxes.boot import WORKSPACE
from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry, Files, Sandbox
from tasks.judged_in import JudgedIn, mounted
from tasks.model import Problem
from tasks.place import CannotBegin, begin, lay, no_network, open_for_judge, start_of, terms_of

if TYPE_CHECKING:
    from tasks.task import Task

# What the agent wrote must not decide how it is judged. The sandbox keeps the grader's files, processes and verdict
# out of its reach (`Sandbox.judge`). What is decided here is where a command runs: in the sandbox of the episode, or,
# where its outcome leaves a doubt, beside it in a fresh one.

# No cache of compiled code, no site of the user's, and the same order of sets in every run.
_ENV = {"PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}
_INSTALLS = {"HOME": "/root", "TMPDIR": "/var/tmp"}
"""For a judge that installs packages: places on the disk, which hold more than those in memory."""


def _installing(workdir: str) -> dict[str, str]:
    """Variables of a judge that installs packages, for itself as well (`pip install --user`).

    Unless what the agent left lies where the user's own packages would.
    """
    home = f"{_INSTALLS['HOME']}/"
    agents = f"{workdir}/"
    return _INSTALLS if agents.startswith(home) or home.startswith(agents) else {**_INSTALLS, "PYTHONNOUSERSITE": ""}


class SandboxGrader:
    """The `GraderHandle` of an open sandbox.

    Args:
        sandbox: Where the agent worked. Its shell state is neither used nor changed.
        task: What the agent worked on; without it there is no untouched workspace to compare with.
        network: The engine's network that judges may have which need one.
        variables: More variables of every command.
        twin: Makes another sandbox of the same kind; the default is `sandbox.twin`.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        task: Task | None = None,
        *,
        network: str | None = None,
        variables: Mapping[str, str] | None = None,
        twin: Callable[[], AbstractContextManager[Sandbox]] | None = None,
    ) -> None:
        self._sandbox, self._task, self._network = sandbox, task, network
        self._variables = {} if variables is None else variables
        self._twin = twin or sandbox.twin

    @property
    def backend(self) -> Backend:
        """See `GraderHandle.backend`."""
        return self._sandbox.backend

    @property
    def task_hash(self) -> str | None:
        """See `GraderHandle.task_hash`."""
        return None if self._task is None else self._task.content_hash

    @property
    def _workdir(self) -> str:
        return WORKSPACE if self._task is None else self._task.workdir or WORKSPACE

    def run(
        self,
        command: str,
        files: Mapping[str, str] | None = None,
        timeout: float | None = None,
        *,
        private: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See `GraderHandle.run`."""
        return self._sandbox.judge(
            'export WORKSPACE="$PWD"\n' + command,
            files or {},
            timeout=self._sandbox.limits.command_seconds if timeout is None else timeout,
            env={**_ENV, **self._variables, **(env or {})},
            private=private,
        )

    @contextmanager
    def beside(self, files: Files | None = None) -> Iterator[SandboxGrader]:
        """See `GraderHandle.beside`."""
        with self._twin() as twin:
            if files is not None:
                lay(self._task, twin, files)
            else:
                assert self._task is not None
                begin(self._task, twin)
            yield SandboxGrader(twin, self._task)

    @contextmanager
    def fresh(self, judged_in: JudgedIn, files: Files | None = None) -> Iterator[SandboxGrader]:
        """See `GraderHandle.fresh`."""
        if judged_in.network and self._network is None:
            assert self._task is not None
            raise CannotBegin(Problem(no_network(judged_in.network), self._task.id))
        if files is None:
            assert self._task is not None
            files = start_of(self._task, self._sandbox)
        kept = {path: self._read(path, entry) for path, entry in files.items()}
        network = self._network if judged_in.network else None
        terms = replace(terms_of(self._task), folders=mounted(judged_in, self.backend), network=network)
        with self._twin() as twin:
            open_for_judge(self._task, twin, terms)
            twin.put({path: entry for path, entry in kept.items() if entry is not None})
            yield SandboxGrader(twin, self._task, variables=_installing(self._workdir) if terms.network else {})

    def _read(self, path: str, entry: FileEntry | bytes | str) -> FileEntry | bytes | str | None:
        """What is laid for a judge in another sandbox; None for fifos and the like."""
        if not isinstance(entry, FileEntry) or entry.kind is not EntryKind.FILE or entry.content is not None:
            return None if isinstance(entry, FileEntry) and entry.kind is EntryKind.OTHER else entry
        return replace(entry, content=self._sandbox.read(path))
