"""What an assertion may look at: the workspace before and after, what was said, and a way to run a grader's command."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from sandboxes.sandbox import CommandResult, FileEntry, Limits


class GraderHandle(Protocol):
    """Runs commands of a grader where the agent worked, after the agent has ended. Never given to a turn's grade."""

    def run(self, command: str, files: Mapping[str, str] | None = None, timeout: float | None = None) -> CommandResult:
        """Run one command in clean state, in the workspace.

        Args:
            command: Bash text.
            files: Path to text. They are laid in a folder whose name nobody can know before, which `$GRADER` names
                for the command, and are gone when this returns.
            timeout: Seconds; the default is the sandbox's own.

        Raises:
            NoRoom: The agent left no room for the files.
            SandboxError: The machinery failed. Never a verdict.
        """


class NoRoom(Exception):
    """What the agent left in the sandbox takes all the room that the grader's files need."""


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


DEEPEST = 127
"""Slashes in a path below which a snapshot does not look."""


def cut_short(files: Mapping[str, FileEntry], limits: Limits) -> bool:
    """Whether a snapshot taken under `limits` may lack paths."""
    return len(files) >= limits.snapshot_entries or any(path.count("/") >= DEEPEST for path in files)
