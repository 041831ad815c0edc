"""What an assertion may look at: the workspace before and after, and what the agent said last."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxes.sandbox import FileEntry


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of an episode (or the state after a turn), as plain data taken out of the sandbox.

    Attributes:
        files: Snapshot of the workspace now.
        initial: Snapshot of the workspace as the task laid it, before the agent's first turn.
        final_message: The agent's submitting reply; `None` where it never submitted.
    """

    files: Mapping[str, FileEntry]
    initial: Mapping[str, FileEntry]
    final_message: str | None = None
