"""How the folders of a sandbox are named, where a backend cannot mount them under the names that tasks use."""

from __future__ import annotations

import os
import re

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


def check_workdir(path: str) -> str:
    """An absolute path where a workspace may be mounted.

    Raises:
        ValueError: Relative, not in normal form, the root, /tmp itself, or inside a system folder.
    """
    if not path.startswith("/") or os.path.normpath(path) != path or path in ("/", "/tmp", "/var", "/var/tmp"):
        raise ValueError(f"workdir {path!r} must be an absolute path in normal form, such as /workspace")
    if any(path == folder or path.startswith(folder + "/") for folder in _SYSTEM):
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
