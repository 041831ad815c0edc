"""What crosses the wall of a sandbox: folders that a backend cannot mount under the names of tasks, text, and files."""

from __future__ import annotations

import os
import re
from typing import Any

from sandboxes.inside.files import BadPath, path_parts
from sandboxes.sandbox import EntryKind, FileEntry, Files

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


def encoded(text: str) -> bytes:
    """Text as bytes; lone surrogates that stand for bytes are given back, others replaced."""
    return text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace")


def _escaped(text: str) -> bool:
    """Whether lone surrogates stand for bytes (as the file system's names do), so that they can be given back."""
    return any("\udc80" <= letter <= "\udcff" for letter in text) and not any(
        "\ud800" <= letter < "\udc80" or "\udcff" < letter <= "\udfff" for letter in text
    )


def check_path(path: str) -> None:
    """Raise ValueError unless a path is relative and stays in the workspace."""
    try:
        path_parts(path)
    except BadPath as error:
        raise ValueError(str(error)) from None


def rows_of(files: Files, alias: PathAlias) -> tuple[list[list[Any]], bytes]:
    """Files as the rows and the body of a `put` request.

    Raises:
        ValueError: A path leaves the workspace, or an entry cannot be put.
    """
    rows: list[list[Any]] = []
    chunks: list[bytes] = []
    for path, value in files.items():
        check_path(path)
        if isinstance(value, str):
            value = value.encode("utf-8")
        entry = value if isinstance(value, FileEntry) else FileEntry(content=value)
        content, target = b"", None
        if entry.kind is EntryKind.FILE:
            if entry.content is None:
                raise ValueError(f"{path!r}: a file without content cannot be put")
            content = entry.content
        elif entry.kind is EntryKind.SYMLINK:
            if not entry.target:
                raise ValueError(f"{path!r}: a symbolic link needs a target")
            target = alias.inward(entry.target.encode("utf-8", "surrogateescape")).decode("utf-8", "surrogateescape")
        elif entry.kind is not EntryKind.DIR:
            raise ValueError(f"{path!r}: only files, directories and symbolic links can be put")
        rows.append(
            [
                path,
                str(entry.kind),
                0o755 if entry.kind is EntryKind.DIR and entry.mode == 0o644 else entry.mode,
                target,
                len(content),
            ]
        )
        chunks.append(content)
    return rows, b"".join(chunks)
