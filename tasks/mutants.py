"""Wrong ends of an episode, made from the right one: damaged results, and cheap cheats. No task may pass with one.

A damaged result is the oracle's with one thing wrong: a file that it made or changed is emptied, has junk at its
end, is missing, holds what another one should hold, or is as it was at the start; members of archives likewise. A
cheap cheat is what a policy finds that does not do the work: delete all, touch the files, fill them with an input or
with words of the request.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from sandboxes.sandbox import EntryKind, FileEntry

JUNK = b"junk 7f3a\n"
"""What is appended: a line that no request asks for."""

NOWHERE = "no/such/place"
"""Where a damaged link leads."""

MAX_CONSTANTS = 40
"""Words and numbers of a request that are tried as contents, the first ones."""

MAX_UNPACKED = 64 * 1024 * 1024
"""Bytes that an archive may unpack to for its members to be damaged; a larger one is a file like others."""

_QUOTED = re.compile(r"'([^'\n]{1,80})'|\"([^\"\n]{1,80})\"|`([^`\n]{1,80})`")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_BLANK_ENDS = re.compile(rb"[ \t\r]*(?:\n|\Z)")

T = TypeVar("T")

Tree = Mapping[str, FileEntry]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong end.

    Attributes:
        name: What is wrong, in the words that `oracle.may_survive` takes, such as `report.txt: emptied`.
        files: The workspace then.
        path: Which file is damaged; empty for a cheat.
    """

    name: str
    files: dict[str, FileEntry]
    path: str = ""


def damaged(initial: Tree, end: Tree) -> Iterator[Mutant]:
    """Yield every damaged result.

    Args:
        initial: Snapshot before the oracle.
        end: Snapshot after it.
    """
    made = _changed(initial, end)
    for path in made:
        entry = end[path]
        yield Mutant(f"{path}: deleted", _without(end, path), path)
        if entry.kind is EntryKind.SYMLINK:
            yield Mutant(f"{path}: leads nowhere", {**end, path: replace(entry, target=NOWHERE)}, path)
        elif entry.content is not None:
            if entry.content:
                yield Mutant(f"{path}: emptied", {**end, path: _holding(entry, b"")}, path)
            yield Mutant(f"{path}: junk appended", {**end, path: _holding(entry, entry.content + JUNK)}, path)
            for name, content in _damaged_members(entry.content):
                yield Mutant(f"{path}: {name}", {**end, path: _holding(entry, content)}, path)
    contents = {path: end[path].content for path in made if end[path].content is not None}
    targets = {path: end[path].target for path in made if end[path].target is not None}
    for path, other in (*_neighbours(contents), *_neighbours(targets)):
        yield Mutant(f"{path}: swapped with {other}", {**end, path: end[other], other: end[path]}, path)
    for path, entry in initial.items():
        if entry.kind in (EntryKind.FILE, EntryKind.SYMLINK) and end.get(path) != entry:
            parents = {folder: initial[folder] for folder in _parents(path) if folder not in end}
            back = dict(sorted({**_without(end, path), **parents, path: entry}.items()))
            yield Mutant(f"{path}: left as it was", back, path)


def cheats(request: str, initial: Tree, end: Tree, aside: Collection[str] = ()) -> Iterator[Mutant]:
    """Yield what cheap policies leave behind, but for what comes to the same as the right end.

    Args:
        request: What the agent is asked.
        initial: Snapshot before the oracle.
        end: Snapshot after it, which says what the files to be made are called.
        aside: Paths that need not be made.
    """
    yield Mutant(DELETE_ALL, {})
    made = [path for path in _changed(initial, end) if end[path].kind is EntryKind.FILE and path not in aside]
    named = {path: FileEntry() for path in made if path not in initial}
    if any(end[path].content for path in named):
        yield Mutant("touch the files", _laid(initial, named, end))
    contents = {f"copy {path}": entry.content for path, entry in initial.items() if entry.content}
    contents |= {f"write {word!r}": f"{word}\n".encode() for word in _constants(request)}
    seen: set[bytes] = set()
    for name, content in contents.items():
        if not made or not content or content in seen:
            continue
        seen.add(content)
        if all(_same_text(content, end[path].content) for path in made):
            continue  # that is the work
        filled = {path: _holding(end[path], content) for path in made}
        yield Mutant(name, _laid(initial, filled, end))
        yield Mutant(f"{name}, all else done", {**end, **filled})


DELETE_ALL = "delete all"
"""Name of the cheat that leaves an empty workspace."""


def deletes_something(initial: Tree, end: Tree) -> bool:
    """Whether the right end lacks a path of the start: then deleting all may earn a part of the reward."""
    return any(path not in end for path in initial)


def _changed(initial: Tree, end: Tree) -> list[str]:
    """Return the paths whose file, link or empty folder is new or holds something else, sorted."""
    found = []
    for path, entry in end.items():
        before = initial.get(path)
        if entry.kind is EntryKind.DIR:
            if before is None and not any(other.startswith(f"{path}/") for other in end):
                found.append(path)
        elif before is None or (before.kind, before.content, before.target) != (
            entry.kind,
            entry.content,
            entry.target,
        ):
            found.append(path)
    return sorted(found)


Members = Mapping[str, bytes]
"""Files of an archive: name to content, in the archive's order."""


def _damaged_members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the damages of an archive's members, each with the bytes of the archive then; nothing for other files."""
    archive = _read_archive(content)
    if archive is None:
        return
    members, write = archive
    for name, data in members.items():
        yield f"{name} deleted in it", write({other: kept for other, kept in members.items() if other != name})
        if data:
            yield f"{name} emptied in it", write({**members, name: b""})
        yield f"junk appended to {name} in it", write({**members, name: data + JUNK})
    for name, other in _neighbours(members):
        swapped = {name: members[other], other: members[name]}
        yield f"{name} swapped with {other} in it", write({**members, **swapped})


def _read_archive(content: bytes) -> tuple[Members, Callable[[Members], bytes]] | None:
    """Return the files in a tar (packed or not) or zip archive and what writes it anew; None for other files.

    What writes keeps folders, links, modes, times and the order.
    """
    try:
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as zipped:
                infos = [info for info in zipped.infolist() if not info.is_dir()]
                _refuse_bomb(sum(info.file_size for info in infos))
                if any(info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for info in infos):
                    return None  # `zipfile` unpacks the others whole, whatever size they name
                return {info.filename: zipped.read(info) for info in infos}, partial(_write_zip, zipped.infolist())
        raw, pack = _unpacked(content)
        if raw[257:262] == b"ustar":
            with tarfile.open(fileobj=io.BytesIO(raw), mode="r:") as archive:
                every = archive.getmembers()
                _refuse_bomb(sum(member.size for member in every))  # a sparse one is larger than its archive
                found = {member.name: archive.extractfile(member) for member in every if member.isreg()}
                members = {name: file.read() for name, file in found.items() if file is not None}
                return members, lambda kept: pack(_write_tar(every, kept))
    except (
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        lzma.LZMAError,
    ):
        pass  # no archive, whatever its first bytes say: then it is a file like others
    return None


def _unpacked(content: bytes) -> tuple[bytes, Callable[[bytes], bytes]]:
    if content.startswith(b"\x1f\x8b"):
        return _inflated(partial(zlib.decompressobj, wbits=31), content), partial(gzip.compress, mtime=0)
    if content.startswith(b"BZh"):
        return _inflated(bz2.BZ2Decompressor, content), bz2.compress
    if content.startswith(b"\xfd7zXZ"):
        return _inflated(lzma.LZMADecompressor, content), lzma.compress
    return content, bytes


def _inflated(make: Callable[[], Any], content: bytes) -> bytes:
    """Unpack all streams of a file; `make` makes a decompressor of `bz2`, `lzma` or `zlib` for one.

    Raises:
        ValueError: It is cut, or holds more than `MAX_UNPACKED` bytes.
    """
    data = b""
    while content:
        unpacker = make()
        try:
            data += unpacker.decompress(content, MAX_UNPACKED + 1 - len(data))
        except (OSError, lzma.LZMAError):
            if not data:
                raise
            break  # `bz2` and `xz` read what stands before something else
        if not unpacker.eof or len(data) > MAX_UNPACKED:
            raise ValueError(f"is cut, or unpacks to more than {MAX_UNPACKED} bytes")
        content = unpacker.unused_data.lstrip(b"\0")  # zeros fill up the last block
    return data


def _refuse_bomb(size: int) -> None:
    if size > MAX_UNPACKED:
        raise ValueError(f"unpacks to more than {MAX_UNPACKED} bytes")


def _write_tar(infos: list[tarfile.TarInfo], members: Members) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in infos:
            if not info.isreg():
                archive.addfile(info)
            elif info.name in members:
                data = members[info.name]
                resized = copy(info)  # `TarInfo.replace` leaves the size alone
                resized.size = len(data)
                archive.addfile(resized, io.BytesIO(data))
    return out.getvalue()


def _write_zip(infos: list[zipfile.ZipInfo], members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for info in infos:
            if info.is_dir() or info.filename in members:
                fresh = zipfile.ZipInfo(info.filename, info.date_time)
                fresh.compress_type, fresh.external_attr = info.compress_type, info.external_attr
                archive.writestr(fresh, members.get(info.filename, b""))
    return out.getvalue()


def _neighbours(things: Mapping[str, T]) -> Iterator[tuple[str, str]]:
    """Yield each name with the next one, in a circle, that stands for something else; no pair twice."""
    names = list(things)
    seen: set[frozenset[str]] = set()
    for index, name in enumerate(names):
        for other in names[index + 1 :] + names[:index]:
            if things[other] != things[name]:
                if frozenset((name, other)) not in seen:
                    seen.add(frozenset((name, other)))
                    yield name, other
                break


def _constants(request: str) -> list[str]:
    quoted = [next(group for group in match.groups() if group) for match in _QUOTED.finditer(request)]
    return list(dict.fromkeys([*quoted, *_NUMBER.findall(request)]))[:MAX_CONSTANTS]


def _same_text(one: bytes, other: bytes | None) -> bool:
    """Whether two contents differ in nothing but blanks at line ends and empty lines at the end."""
    return other is not None and _bare(one) == _bare(other)


def _bare(content: bytes) -> bytes:
    return _BLANK_ENDS.sub(b"\n", content).rstrip(b"\n")


def _holding(entry: FileEntry, content: bytes) -> FileEntry:
    return replace(entry, kind=EntryKind.FILE, content=content, size=len(content), target=None)


def _without(tree: Tree, path: str) -> dict[str, FileEntry]:
    return {name: entry for name, entry in tree.items() if name != path and not name.startswith(f"{path}/")}


def _laid(initial: Tree, files: Mapping[str, FileEntry], end: Tree) -> dict[str, FileEntry]:
    """Return the start with these files in it, and with the folders that they need, as the right end has them."""
    folders = {folder: end[folder] for path in files for folder in _parents(path) if folder in end}
    return dict(sorted({**initial, **folders, **files}.items()))


def _parents(path: str) -> list[str]:
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]
