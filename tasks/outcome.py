"""What an assertion may look at: the workspace before and after, what was said, and a way to run a grader's command."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from sandboxes.sandbox import CommandResult, FileEntry, Files, Snapshot


class GraderHandle(Protocol):
    """Runs commands of a grader where the agent worked, after the agent has ended. Never given to a turn's grade."""

    @property
    def task_hash(self) -> str | None:
        """Content hash of the task; None where the task is not known, and so no untouched workspace."""

    def run(
        self,
        command: str,
        files: Mapping[str, str] | None = None,
        timeout: float | None = None,
        *,
        private: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run one command in clean state, in the workspace, out of reach of what the agent wrote.

        Args:
            command: Bash text.
            files: Path to text. They are laid in a folder that `$GRADER` names for the command, which programs of the
                agent's can neither read nor write, and are gone when this returns.
            timeout: Seconds that count (waiting for a busy machine does not); the default is the sandbox's own.
            private: What is printed is a verdict: programs of the agent's print nothing to it.
            env: Variables beside those of a new shell.

        Raises:
            SandboxError: The machinery failed. Never a verdict.
        """

    def beside(self, files: Files | None = None) -> AbstractContextManager[GraderHandle]:
        """A handle on a fresh sandbox of the same kind, with these files; the default is what the task lays.

        Raises:
            SandboxError: It could not be opened.
        """


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an episode (or the state after a turn), as plain data taken out of the sandbox.

    Attributes:
        files: Snapshot of the workspace now.
        initial: Snapshot of the workspace as the task laid it, before the agent's first turn.
        final_message: The agent's submitting reply; `None` where it never submitted.
        transcript: The conversation so far, records of `role` (`user` or `assistant`) and `content`.
        grader: Runs commands of graders; `None` while the agent still works.
        cut_short: `files` may lack paths, because there were too many: nothing can be said to be absent.
    """

    files: Mapping[str, FileEntry]
    initial: Mapping[str, FileEntry]
    final_message: str | None = None
    transcript: tuple[Mapping[str, object], ...] = ()
    grader: GraderHandle | None = None
    cut_short: bool = False


def cut_short(files: Mapping[str, FileEntry]) -> bool:
    """Whether a snapshot lacks paths, as who took it says (`Snapshot.cut`). A plain mapping lacks none."""
    return isinstance(files, Snapshot) and files.cut
