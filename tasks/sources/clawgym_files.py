"""Reading upstream ClawGym task folders, from a directory or straight from a tar archive, each file once."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.problems import Problem, TaskError

ENTRY = "data_entry.json"
INPUTS = "input_files"
REWARD = "reward"
CHECK = "check.py"
ARCHIVES = (".tar", ".tar.xz", ".txz", ".tar.gz", ".tgz", ".tar.bz2")
MAX_BYTES = 2 * 1024**3
"""How far an archive is unpacked; the whole of the upstream training set takes a fortieth of it."""

_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


@dataclass(slots=True)
class Folder:
    """One `task_XXXX` folder, read.

    Attributes:
        place: Where it came from, for messages: `ARCHIVE:task_0000` or a path.
        name: Name of the folder.
        entry: Content of `data_entry.json`; None if there is none.
        inputs: What lies in `input_files`, by path in the workspace.
        reward: What lies in `reward`, by file name.
    """

    place: str
    name: str
    entry: bytes | None = None
    inputs: dict[str, FileEntry] = field(default_factory=dict)
    reward: dict[str, FileEntry] = field(default_factory=dict)


def is_clawgym(path: Path) -> bool:
    """Whether `path` looks like upstream tasks: a tar archive, a task folder, or a folder of task folders."""
    if path.is_file():
        return path.name.lower().endswith(ARCHIVES)
    if not path.is_dir():
        return False
    return (path / ENTRY).is_file() or next(path.glob(f"*/{ENTRY}"), None) is not None


def read_folders(path: Path) -> list[Folder]:
    """Read every task folder in `path`, sorted by name.

    Raises:
        TaskError: nothing there, an archive that is broken, or an entry that is neither file, folder nor link.
    """
    if not path.exists():
        raise TaskError(Problem("there is no such file or folder", str(path)))
    entries = _walk(path) if path.is_dir() else _unpack(path)
    folders: dict[str, Folder] = {}
    try:
        for root, inside, entry in entries:
            folder = folders.get(root)
            if folder is None:
                place = str(path / root) if path.is_dir() else f"{path}:{root}"
                folder = folders[root] = Folder(place, posixpath.basename(root) or path.name)
            _sort_in(folder, inside, entry)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise TaskError(Problem(f"cannot be read: {str(error) or type(error).__name__}", str(path))) from error
    except ValueError as error:  # ours, and names that are no UTF-8
        raise TaskError(Problem(f"cannot be used: {error}", str(path))) from error
    found = [folders[root] for root in sorted(folders)]
    if not found:
        raise TaskError(
            Problem(f"holds no ClawGym tasks (folders task_XXXX with {ENTRY}, {INPUTS}/ and {REWARD}/)", str(path))
        )
    return found


def _sort_in(folder: Folder, inside: str, entry: FileEntry) -> None:
    head, _, rest = inside.partition("/")
    if inside == ENTRY:
        folder.entry = entry.content
    elif head == INPUTS and rest:
        folder.inputs[rest] = entry
    elif head == REWARD and rest and entry.kind is not EntryKind.DIR:
        folder.reward[rest] = entry
    # Anything else in a task folder (notes, oracles of other tools) is not part of the format.


def _split(name: str) -> tuple[str, str] | None:
    """Split an archive name into the task's folder and the path in it; None for what is above the task folders."""
    parts = name.split("/")
    for number, part in enumerate(parts[1:], start=1):
        if part in (ENTRY, INPUTS, REWARD):
            return "/".join(parts[:number]), "/".join(parts[number:])
    return None


def _unpack(path: Path) -> Iterator[tuple[str, str, FileEntry]]:
    raw = _decompressed(path)
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:", encoding="utf-8", errors="strict") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            where = _split(name)
            if where is None:
                continue
            if name.startswith(("../", "/")):
                raise ValueError(f"its entry '{member.name}' leads out of the archive")
            mode = member.mode & 0o777
            if member.isdir():
                yield *where, FileEntry(kind=EntryKind.DIR, content=None, mode=mode)
            elif member.issym():
                yield *where, FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=member.linkname)
            elif member.isreg() and not member.issparse():
                # A slice, not `extractfile`, which takes twice as long for files as small as these.
                content = raw[member.offset_data : member.offset_data + member.size]
                if len(content) != member.size:
                    raise ValueError("the archive ends in the middle of a file: copy it again")
                yield *where, FileEntry(content=content, mode=mode, size=member.size)
            else:
                raise ValueError(f"its entry '{member.name}' is neither a file, a folder nor a symbolic link")


def _decompressed(path: Path) -> bytes:
    """The tar archive in one piece: small files come much faster out of memory than out of a stream."""
    packed = path.read_bytes()
    for magic, open_stream in _COMPRESSED.items():
        if packed.startswith(magic):
            with open_stream(io.BytesIO(packed)) as stream:
                raw: bytes = stream.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
            return raw
    return packed


def _walk(path: Path) -> Iterator[tuple[str, str, FileEntry]]:
    roots = [path] if (path / ENTRY).is_file() else sorted(entry.parent for entry in path.glob(f"*/{ENTRY}"))
    for root in roots:
        prefix = "" if root == path else root.name
        yield prefix, ENTRY, FileEntry(content=(root / ENTRY).read_bytes())
        for part in (INPUTS, REWARD):
            for file in sorted((root / part).rglob("*")):
                yield prefix, file.relative_to(root).as_posix(), _file_entry(file)


def _file_entry(file: Path) -> FileEntry:
    status = file.lstat()
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        return FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=str(file.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return FileEntry(kind=EntryKind.DIR, content=None, mode=mode)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"'{file}' is neither a file, a folder nor a symbolic link")
    content = file.read_bytes()
    return FileEntry(content=content, mode=mode, size=len(content))
