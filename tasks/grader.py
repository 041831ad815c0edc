"""Running a grader's commands on an episode that is over.

What the agent wrote must not decide how it is judged. The sandbox keeps the grader's files, processes and verdict out
of its reach (`Sandbox.judge`). What is decided here is where a command runs: in the sandbox of the episode, or, where
its outcome leaves a doubt, beside it in a fresh one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandboxes.sandbox import CommandResult, Files, Sandbox

if TYPE_CHECKING:
    from tasks.task import Task

# No cache of compiled code, no site of the user's, and the same order of sets in every run.
_ENV = {"PYTHONNOUSERSITE": "1", "PYTHONHASHSEED": "0"}


class SandboxGrader:
    """The `GraderHandle` of an open sandbox.

    Args:
        sandbox: Where the agent worked. Its shell state is neither used nor changed.
        task: What the agent worked on; without it there is no untouched workspace to compare with.
    """

    def __init__(self, sandbox: Sandbox, task: Task | None = None) -> None:
        self._sandbox, self._task = sandbox, task

    @property
    def task_hash(self) -> str | None:
        """See `GraderHandle.task_hash`."""
        return None if self._task is None else self._task.content_hash

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
            env={**_ENV, **(env or {})},
            private=private,
        )

    @contextmanager
    def beside(self, files: Files | None = None) -> Iterator[SandboxGrader]:
        """See `GraderHandle.beside`."""
        if files is None:
            assert self._task is not None
            files = self._task.files()
        with self._sandbox.twin() as twin:
            twin.open(files, workdir=None if self._task is None else self._task.workdir)
            yield SandboxGrader(twin, self._task)
