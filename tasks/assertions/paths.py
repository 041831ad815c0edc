"""Finding a path in a snapshot of a workspace: links are followed inside it only, Unicode in either normal form."""

from __future__ import annotations

import posixpath
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass

from sandboxes.sandbox import EntryKind, FileEntry

MAX_LINKS = 40
"""Links followed for one path before it counts as a loop, as the Linux kernel does."""


@dataclass(frozen=True, slots=True)
class Found:
    """What stands at a path.

    Attributes:
        path: The path as it is spelt in the snapshot, after links.
        entry: What stands there; None if nothing does or a link could not be followed.
        problem: Why there is no entry, in words; empty if there is one.
    """

    path: str
    entry: FileEntry | None
    problem: str = ""


def same_path(files: Mapping[str, FileEntry], path: str) -> str | None:
    """Return the spelling under which `path` stands in the snapshot: exact, or equal after Unicode normalisation."""
    if path in files:
        return path
    if path.isascii():
        return None
    wanted = unicodedata.normalize("NFC", path)
    matches = (other for other in files if not other.isascii() and unicodedata.normalize("NFC", other) == wanted)
    return min(matches, default=None)


def stands_at(files: Mapping[str, FileEntry], path: str) -> Found:
    """Find the entry at `path` itself: a link as the last part is reported as the link it is."""
    parent, _, last = path.rpartition("/")
    if not parent:
        return _lookup(files, last)
    folder = find(files, parent)
    if folder.entry is None:
        return Found(path, None, folder.problem)
    return _lookup(files, f"{folder.path}/{last}" if folder.path else last)


def find(files: Mapping[str, FileEntry], path: str) -> Found:
    """Find what `path` leads to, following links as long as they stay in the snapshot."""
    waiting = path.split("/")[::-1]
    here = ""
    links = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return Found(path, None, "a symbolic link leaves the workspace and is not followed")
            here = posixpath.dirname(here)
            continue
        step = _lookup(files, f"{here}/{part}" if here else part)
        if step.entry is None:
            after = "" if not links else " (a symbolic link on the way leads nowhere)"
            return Found(path, None, step.problem + after)
        if step.entry.kind is not EntryKind.SYMLINK:
            if waiting and step.entry.kind is not EntryKind.DIR:
                return Found(path, None, f"'{step.path}' is no folder")
            here = step.path
            continue
        links += 1
        target = step.entry.target or ""
        if links > MAX_LINKS:
            return Found(path, None, "symbolic links go round in a circle")
        if target.startswith("/"):
            why = f"'{step.path}' is a symbolic link to '{target}'; absolute links leave the workspace"
            return Found(path, None, f"{why} and are not followed")
        waiting.extend(target.split("/")[::-1])
    if not here:
        return Found("", FileEntry(kind=EntryKind.DIR, content=None, mode=0o755))
    return Found(here, files[here])


def _lookup(files: Mapping[str, FileEntry], path: str) -> Found:
    spelt = same_path(files, path)
    if spelt is None:
        return Found(path, None, "nothing there")
    return Found(spelt, files[spelt])
