"""The workspace as data: put, walk, snapshot, read, wipe. No link is followed; only regular files are opened."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from sandboxes.inside.frames import write_all

# ---------------------------------------------------------------------------------------------------------------------
# Emptying a directory, whatever stands in it: any depth, any number of entries, any mode, and a bound on the time.

DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
WIPE_SECONDS = 20.0
"""What a reset may take. The host waits longer."""
_BATCH = 1 << 16


class Unfinished(Exception):
    """A directory could not be emptied in its time."""


def wipe(root: str, mode: int = 0o755, seconds: float = float("inf")) -> None:
    """Empty a directory, whatever stands in it, and give it back its mode.

    Raises:
        Unfinished: It took more than `seconds`.
    """
    if os.stat(root).st_uid == os.geteuid():  # else it is the system's, and no command can have changed it
        os.chmod(root, mode)
    top = os.open(root, DIR_FLAGS)
    try:
        empty(top, time.monotonic() + seconds)
    finally:
        os.close(top)


def empty(top: int, limit: float = float("inf")) -> None:
    """Remove everything below an open directory, by the monotonic time `limit`.

    Depth costs neither recursion, PATH_MAX nor open files: one directory is open at a time, and `..` leads back up,
    which is checked. To move deep directories up first would do, too, but costs a disk more than emptying them.

    Raises:
        Unfinished: The time is over.
        OSError: Something cannot be removed, or directories move meanwhile.
    """
    fd = os.dup(top)
    above: list = []  # for each directory on the way: who it is, what of it remains, the name of the next
    try:
        remaining, whole = _strip(fd, limit)
        while True:
            if remaining:
                name = remaining.pop()
                above.append((_identity(fd), remaining, whole, name))
                os.chmod(name, 0o700, dir_fd=fd)
                child = os.open(name, DIR_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = child
            elif not whole:
                pass  # too many entries for one look
            elif above:
                identity, remaining, whole, name = above.pop()
                parent = os.open("..", DIR_FLAGS, dir_fd=fd)
                os.close(fd)
                fd = parent
                if _identity(fd) != identity:
                    raise OSError("a directory was moved while it was emptied")
                os.rmdir(name, dir_fd=fd)
                continue
            else:
                return
            remaining, whole = _strip(fd, limit)
    finally:
        os.close(fd)


def _identity(fd: int) -> tuple:
    found = os.fstat(fd)
    return found.st_dev, found.st_ino


def _strip(fd: int, limit: float) -> tuple:
    """Remove files and empty directories; the names of the others, and whether that was all there was."""
    with os.scandir(fd) as entries:
        batch = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, _BATCH)]
    remaining = []
    for name, is_directory in batch:
        if time.monotonic() > limit:
            raise Unfinished("what the commands left behind is too much to be removed in time")
        if not is_directory:
            os.unlink(name, dir_fd=fd)
            continue
        try:
            os.rmdir(name, dir_fd=fd)
        except OSError:  # not empty; what else may be wrong with it, the caller meets again
            remaining.append(name)
    return remaining, len(batch) < _BATCH


# ---------------------------------------------------------------------------------------------------------------------
# The workspace as data: put, walk, snapshot, read, wipe. Follows no symbolic link and opens nothing but regular
# files.
#
# Callers guarantee that no process of the sandbox runs meanwhile (the supervisor ends all of them first), so a tree
# does not change while it is walked. Paths are still opened part by part with O_NOFOLLOW, because what a command left
# behind may be a trap: a link to a file outside, a fifo that never answers, a sparse file of 40 GB, a directory of
# mode 000.

FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_DEPTH = 128
"""Directories deeper than this are listed, not entered (each level costs one open file)."""
MAX_VISITED = 200_000
"""Entries that one look takes note of: several times what a workspace may hold, because links cost no file."""
MAX_TEXT = 6 << 20
"""Bytes of names and targets of links that one look tells, `ROW` more for each entry. A byte that is no UTF-8 takes six
in a frame, so that every answer fits into one (`frames.MAX_HEAD`)."""
ROW = 32
DIGESTED = 4
"""Times the size of a workspace: bytes of files that `Tree.digests` reads, so that holes without end cost no time."""


class BadPath(Exception):
    """A path that is absolute, empty, or leaves the workspace."""


def path_parts(path: str) -> list:
    """The parts of a relative path.

    Raises:
        BadPath: Absolute, empty, with `.`/`..` parts, with a NUL, or with letters that no file name can hold.
    """
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise BadPath(f"{path!r} cannot be the name of a file") from error
    parts = path.rstrip("/").split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in parts):
        raise BadPath(f"{path!r} is not a relative path inside the workspace")
    return parts


def kind_of(mode: int) -> str:
    """Name of a file type: file, dir, symlink or other."""
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "dir"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def put(root: str, entries: list, body: bytes) -> None:
    """Add or replace paths. Whatever stands in the way of a path is removed; links are replaced, never followed.

    Args:
        root: The workspace.
        entries: `[path, kind, mode, target, size]` each; contents of the files stand in `body` in the same order.
        body: Contents of all files, one after the other.
    """
    root_mode = stat.S_IMODE(os.lstat(root).st_mode)
    if root_mode & 0o700 != 0o700:
        os.chmod(root, root_mode | 0o700)
    top = parent = os.open(root, DIR_FLAGS)
    here: list = []  # the parts of `parent`, kept open for the next entry of the same directory
    offset = 0
    modes = []
    try:
        for path, kind, mode, target, size in entries:
            *above, name = path_parts(path)
            if above != here:
                if parent != top:
                    os.close(parent)
                parent, here = top, []
                parent = _open_parent(top, above)
                here = above
            if kind == "dir":
                os.close(_enter(parent, name))
                modes.append(([*above, name], mode))
                continue
            _clear(parent, name)
            if kind == "symlink":
                os.symlink(target, name, dir_fd=parent)
                continue
            _write_new(parent, name, mode, memoryview(body)[offset : offset + size])
            offset += size
        for parts, mode in sorted(modes, key=lambda item: -len(item[0])):
            fd = _open_parent(top, parts)
            os.fchmod(fd, mode & 0o777)
            os.close(fd)
    finally:
        if parent != top:
            os.close(parent)
        os.close(top)
        if root_mode & 0o700 != 0o700:
            os.chmod(root, root_mode)


def _write_new(parent: int, name: str, mode: int, view: memoryview) -> None:
    """Write a file that does not exist yet."""
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
    try:
        write_all(fd, view)
        os.fchmod(fd, mode & 0o777)
    finally:
        os.close(fd)


def _open_parent(top: int, parts: list) -> int:
    """Open (and make) the directory at `parts`; returns `top` itself for no parts."""
    fd = top
    for part in parts:
        following = _enter(fd, part)
        if fd != top:
            os.close(fd)
        fd = following
    return fd


def _enter(parent: int, name: str) -> int:
    """Open the directory `name`, replacing what is no directory, unlocking it when its mode forbids writing."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        os.mkdir(name, 0o755, dir_fd=parent)
        os.chmod(name, 0o755, dir_fd=parent)
    else:
        if not stat.S_ISDIR(found.st_mode):
            os.unlink(name, dir_fd=parent)
            os.mkdir(name, 0o755, dir_fd=parent)
            os.chmod(name, 0o755, dir_fd=parent)
        elif found.st_mode & 0o700 != 0o700:
            os.chmod(name, stat.S_IMODE(found.st_mode) | 0o700, dir_fd=parent)
    return os.open(name, DIR_FLAGS, dir_fd=parent)


def _clear(parent: int, name: str) -> None:
    """Remove what stands at `name`, if anything. Raises Unfinished."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    os.chmod(name, 0o700, dir_fd=parent)
    fd = os.open(name, DIR_FLAGS, dir_fd=parent)
    try:
        empty(fd, time.monotonic() + WIPE_SECONDS)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=parent)


class _Shallowest:
    """Entries of a tree, the shallowest first and then the first by name, as many as `limit` and `MAX_TEXT` allow.

    So junk deep in a tree cannot push out the files a task asks for, and no more than twice that is ever kept.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows: list = []
        self._text = 0
        self._last: tuple | None = None
        self.visited = 0
        self.cut = False
        """Whether an entry was left out."""

    def reaches(self, depth: int) -> bool:
        """Whether an entry at this depth may still be kept."""
        return self._last is None or depth <= self._last[0]

    def add(self, depth: int, path: str, status: os.stat_result, target: str | None) -> None:
        """One more entry."""
        if self._last is not None and (depth, path) > self._last:
            self.cut = True
            return
        self._rows.append((depth, path, status, target))
        self._text += _cost(path, target)
        if len(self._rows) > 2 * self._limit or self._text > 2 * MAX_TEXT:
            self._trim()

    def _trim(self) -> None:
        if len(self._rows) <= self._limit and self._text <= MAX_TEXT:
            return
        self._rows.sort(key=lambda row: row[:2])
        self._text = kept = 0
        for _, path, _, target in self._rows[: self._limit]:
            cost = _cost(path, target)
            if self._text + cost > MAX_TEXT:
                break
            self._text += cost
            kept += 1
        if kept < len(self._rows):
            del self._rows[kept:]
            self.cut = True
            self._last = self._rows[-1][:2] if self._rows else (-1, "")

    def rows(self) -> list:
        """`(path, stat, target)` of what is kept, sorted by path."""
        self._trim()
        return sorted([row[1:] for row in self._rows], key=itemgetter(0))


def _cost(path: str, target: str | None) -> int:
    size = ROW + (len(path) if path.isascii() else len(os.fsencode(path)))
    return size if target is None else size + len(os.fsencode(target))


class Tree:
    """One look at a workspace: unlocks what its mode closes, and gives every mode back.

    Args:
        root: The workspace.
        unlock: False: no mode is changed, for a folder that is not ours; what may not be read is named, no more.

    Attributes:
        cut: The last `walk`, `snapshot` or `digests` left paths out: there were too many, too long or too deep ones, or
            they lie in directories that may not be read.
        closed: Paths of the last look that may not be read.
    """

    def __init__(self, root: str, unlock: bool = True) -> None:
        self.cut = False
        self.closed: list = []
        self._unlock = unlock
        self._chain: list = []  # names, descriptors and closed modes of the directories on the way to the last file
        mode = stat.S_IMODE(os.lstat(root).st_mode)
        self._mode = None if not unlock or mode & 0o500 == 0o500 else mode
        if self._mode is not None:
            os.chmod(root, mode | 0o700)
        self._top = os.open(root, DIR_FLAGS)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *exc: object) -> None:
        self._leave(0)
        if self._mode is not None:
            os.fchmod(self._top, self._mode)
        os.close(self._top)

    def _open_dir(self, name: str, parent: int) -> tuple:
        """A descriptor of a directory, no link followed, and the mode to give back to it; None if it was not closed."""
        mode = None
        try:
            fd = os.open(name, DIR_FLAGS, dir_fd=parent)
        except PermissionError:
            if not self._unlock:
                raise
            mode = stat.S_IMODE(os.lstat(name, dir_fd=parent).st_mode)
            os.chmod(name, mode | 0o700, dir_fd=parent)
            return os.open(name, DIR_FLAGS, dir_fd=parent), mode
        if not self._unlock:
            try:
                os.stat(".", dir_fd=fd)  # refused where names may be listed, and nothing be reached
            except PermissionError:
                os.close(fd)
                raise
            return fd, None
        found = stat.S_IMODE(os.fstat(fd).st_mode)
        if found & 0o500 != 0o500:  # it may be read, and nothing in it be reached
            mode = found
            os.fchmod(fd, mode | 0o700)
        return fd, mode

    @staticmethod
    def _close_dir(fd: int, mode: int | None) -> None:
        if mode is not None:
            os.fchmod(fd, mode)
        os.close(fd)

    def _leave(self, level: int) -> None:
        while len(self._chain) > level:
            _, fd, mode = self._chain.pop()
            self._close_dir(fd, mode)

    def _parent(self, parts: list) -> int:
        """A descriptor of the directory at `parts`; it and those above stay open for the next file."""
        same = 0
        while same < min(len(parts), len(self._chain)) and self._chain[same][0] == parts[same]:
            same += 1
        self._leave(same)
        for part in parts[same:]:
            self._chain.append((part, *self._open_dir(part, self._chain[-1][1] if self._chain else self._top)))
        return self._chain[-1][1] if self._chain else self._top

    def walk(self, limit: int) -> list:
        """`(path, stat, target)` of every entry, sorted by path.

        Of more than `limit` entries, or more than `MAX_TEXT` bytes of them, the shallowest (then first by name) are
        kept; `cut` says so. The work is bounded by what is counted, not by a clock, so equal trees give equal answers.
        """
        kept = _Shallowest(limit)
        self.closed = []
        fd = os.dup(self._top)
        stack: list = [(fd, None, "", self._folders(fd, "", 0, kept))]
        try:
            while stack:
                fd, mode, prefix, folders = stack[-1]
                name = next(folders, None)
                if name is None:
                    stack.pop()
                    self._close_dir(fd, mode)
                elif len(stack) < MAX_DEPTH and kept.reaches(len(stack)):
                    try:
                        fd, mode = self._open_dir(name, fd)
                    except PermissionError:
                        if self._unlock:
                            raise
                        kept.cut = True
                        self.closed.append(prefix + name)
                        continue
                    prefix += name + "/"
                    stack.append((fd, mode, prefix, self._folders(fd, prefix, len(stack), kept)))
                else:
                    kept.cut = True
        finally:
            for fd, mode, _, _ in reversed(stack):
                self._close_dir(fd, mode)
        rows = kept.rows()
        self.cut = kept.cut
        return rows

    @staticmethod
    def _folders(fd: int, prefix: str, depth: int, kept: _Shallowest) -> Iterator[str]:
        """Take note of all entries of a directory; then yields the directories among them."""
        with os.scandir(fd) as entries:
            names = [entry.name for entry in islice(entries, MAX_VISITED - kept.visited)]
        names.sort()
        kept.visited += len(names)
        if kept.visited >= MAX_VISITED:
            kept.cut = True
        folders = []
        for name in names:
            status = os.lstat(name, dir_fd=fd)
            target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
            kept.add(depth, prefix + name, status, target)
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
        yield from folders

    def clear_special(self) -> None:
        """Remove fifos, sockets and devices, also from directories that are closed to writing."""
        for path, status, _ in self.walk(MAX_VISITED):
            if kind_of(status.st_mode) != "other":
                continue
            *above, name = path.split("/")
            parent = self._parent(above)
            mode = stat.S_IMODE(os.fstat(parent).st_mode)
            with contextlib.suppress(PermissionError):  # another user's, in the system's own folders
                os.fchmod(parent, mode | 0o300)
                os.unlink(name, dir_fd=parent)
                os.fchmod(parent, mode)

    def open_file(self, path: str) -> int:
        """Open one regular file for reading.

        Raises:
            FileNotFoundError: Nothing stands there, or a part on the way is no directory.
            BadPath: The path leaves the workspace or is too deep, or what stands there is no regular file.
        """
        *above, name = path_parts(path)
        if len(above) >= MAX_DEPTH:
            raise BadPath(f"{path[:80]!r}... is deeper than {MAX_DEPTH} directories")
        try:
            parent = self._parent(above)
        except OSError as error:
            raise FileNotFoundError(f"{path}: {error.strerror}") from error
        status = os.lstat(name, dir_fd=parent)
        if not stat.S_ISREG(status.st_mode):
            raise BadPath(f"{path!r} is a {kind_of(status.st_mode)}, not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        locked = self._unlock and not mode & 0o400
        if locked:
            os.chmod(name, mode | 0o400, dir_fd=parent)
        try:
            return os.open(name, FILE_FLAGS, dir_fd=parent)
        finally:
            if locked:
                os.chmod(name, mode, dir_fd=parent)

    def content(self, path: str, size: int) -> bytes:
        """Up to `size` bytes of a regular file."""
        return b"".join(self._chunks(path, size))

    def _chunks(self, path: str, size: int) -> Iterator[bytes]:
        fd = self.open_file(path)
        try:
            while size > 0:
                chunk = os.read(fd, min(size, 1 << 20))
                if not chunk:
                    return
                yield chunk
                size -= len(chunk)
        finally:
            os.close(fd)

    def snapshot(self, limit: int, file_bytes: int, total_bytes: int) -> tuple:
        """Every entry as `[path, kind, mode, size, target, length]`, and all contents in one body.

        `length` is -1 for what has no content: a file above `file_bytes`, files after `total_bytes`, and non-files.
        """
        rows, body = [], bytearray()
        for path, status, target in self.walk(limit):
            kind = kind_of(status.st_mode)
            length = -1
            if kind == "file" and status.st_size <= file_bytes and len(body) + status.st_size <= total_bytes:
                try:
                    data = self.content(path, status.st_size)
                except PermissionError:
                    self.closed.append(path)
                except OSError:
                    pass  # the disk refuses: named, without content
                else:
                    body += data
                    length = len(data)
            rows.append([path, kind, stat.S_IMODE(status.st_mode) & 0o777, status.st_size, target, length])
        return rows, body

    def digests(self, limit: int, file_bytes: int, total_bytes: int) -> list:
        """Every entry as `[path, kind, mode, target, digest]`.

        Of a file only its size counts beyond `file_bytes`, and where smaller files take up `total_bytes`: what a file
        claims decides, holes included, so equal trees have equal digests.
        """
        import hashlib

        found = self.walk(limit)
        sizes = sorted((status.st_size, path) for path, status, _ in found if stat.S_ISREG(status.st_mode))
        readable = set()
        for size, path in sizes:
            total_bytes -= min(size, file_bytes)
            if total_bytes < 0:
                break
            readable.add(path)
        rows = []
        for path, status, target in found:
            kind = kind_of(status.st_mode)
            digest = None
            if kind == "file":
                whole = path in readable and status.st_size <= file_bytes
                sha = hashlib.sha256(b"" if whole else b"%d\n" % status.st_size)
                for chunk in self._chunks(path, min(status.st_size, file_bytes)) if path in readable else ():
                    sha.update(chunk)
                digest = sha.hexdigest()
            rows.append([path, kind, stat.S_IMODE(status.st_mode) & 0o777, target, digest])
        return rows
