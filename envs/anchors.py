"""The anchor: the state before a turn, as turn groups compare it.

Two turns of one task stand at the same anchor when the workspace is equal (paths, kinds, modes, contents, link targets)
and the last observation was of the same class. Of the observation only the class enters, so volatile text (times,
process ids, temporary names) needs no normalising. The shell's own state (directory, variables) does not enter.
Anchors are compared within one task only; the method is GiGPO's (Feng et al., 2025, arXiv 2505.10978).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum

from sandboxes.sandbox import CommandResult, FileEntry


class ObservationClass(StrEnum):
    """What the last observation was."""

    START = "start"
    """The task; no turn yet."""
    OK = "ok"
    """A command with exit code 0."""
    FAIL = "fail"
    """A command with another exit code."""
    TIMEOUT = "timeout"
    """A command that ran out of time."""
    MALFORMED = "malformed"
    """Feedback on a reply that asked for nothing."""
    REVISE = "revise"
    """An answer that did not pass and may be revised."""

    @classmethod
    def of(cls, result: CommandResult) -> ObservationClass:
        """The class of a command's result."""
        if result.timed_out:
            return cls.TIMEOUT
        return cls.OK if result.exit_code == 0 else cls.FAIL


def workspace_hash(files: Mapping[str, FileEntry]) -> str:
    """16 hex digits: equal workspaces, equal hashes, whatever the order of the paths.

    Every field is written with its length or as a number, so that no two workspaces spell the same bytes.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        entry = files[path]
        name = path.encode("utf-8", "surrogateescape")
        target = (entry.target or "").encode("utf-8", "surrogateescape")
        size = -1 if entry.content is None else len(entry.content)
        digest.update(f"{len(name)} {entry.kind} {entry.mode:o} {len(target)} {size} {entry.size}\n".encode())
        digest.update(name + target + (entry.content or b""))
    return digest.hexdigest()[:16]


def anchor(files_hash: str, last: ObservationClass) -> str:
    """The anchor as it stands in `info` and in trajectories: `<16 hex>:<class>`."""
    return f"{files_hash}:{last}"
