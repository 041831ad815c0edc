"""The workspace as data: put, walk, snapshot, read, wipe. Follows no symbolic link and opens nothing but regular files.

Callers guarantee that no process of the sandbox runs meanwhile (the supervisor ends all of them first), so a tree does
not change while it is walked. Paths are still opened part by part with O_NOFOLLOW, because what a command left behind
may be a trap: a link to a file outside, a fifo that never answers, a sparse file of 40 GB, a directory of mode 000.
"""

from __future__ import annotations

import os
import stat

from sandboxes.inside.frames import write_all

DIR_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
MAX_DEPTH = 128
"""Directories deeper than this are listed, not entered (each level costs one open file)."""
MAX_VISITED = 500_000


class BadPath(Exception):
    """A path that is absolute, empty, or leaves the workspace."""


def path_parts(path: str) -> list:
    """The parts of a relative path.

    Raises:
        BadPath: Absolute, empty, with `.`/`..` parts, or with a NUL.
    """
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


def wipe(root: str, mode: int = 0o755) -> None:
    """Empty a directory, whatever stands in it, and give it back its mode.

    Sub-directories are renamed up to the root before they are emptied, so depth costs neither recursion nor PATH_MAX.
    """
    if os.stat(root).st_uid == os.geteuid():  # else it is the system's, and no command can have changed it
        os.chmod(root, mode)
    top = os.open(root, DIR_FLAGS)
    try:
        while True:
            names = os.listdir(top)
            if not names:
                return
            for name in names:
                _remove(top, name)
    finally:
        os.close(top)


def _remove(top: int, name: str) -> None:
    """Remove one entry of `top`; sub-directories of a directory are moved into `top` for the next round."""
    if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
        os.unlink(name, dir_fd=top)
        return
    os.chmod(name, 0o700, dir_fd=top)
    fd = os.open(name, DIR_FLAGS, dir_fd=top)
    try:
        for child in os.listdir(fd):
            if stat.S_ISDIR(os.lstat(child, dir_fd=fd).st_mode):
                os.chmod(child, 0o700, dir_fd=fd)
                os.rename(child, ".wipe-" + os.urandom(12).hex(), src_dir_fd=fd, dst_dir_fd=top)
            else:
                os.unlink(child, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(name, dir_fd=top)


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
    """Remove what stands at `name`, if anything."""
    try:
        found = os.lstat(name, dir_fd=parent)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=parent)
        return
    while True:  # sub-directories move next to `name`, under random names; they are emptied one by one
        before = set(os.listdir(parent))
        _remove(parent, name)
        new = sorted(set(os.listdir(parent)) - before)
        if not new:
            return
        for extra in new[1:]:
            _clear(parent, extra)
        name = new[0]


class Tree:
    """One look at a workspace: unlocks what its mode closes, and gives every mode back at the end."""

    def __init__(self, root: str) -> None:
        self._locked: list = []
        mode = stat.S_IMODE(os.lstat(root).st_mode)
        if mode & 0o500 != 0o500:
            os.chmod(root, mode | 0o700)
            self._locked.append((root, None, mode))
        self._root = root
        self._top = os.open(root, DIR_FLAGS)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *exc: object) -> None:
        for path, parts, mode in reversed(self._locked):
            if parts is None:
                os.chmod(path, mode)
                continue
            parent = self.open_dir(parts[:-1])
            try:
                os.chmod(parts[-1], mode, dir_fd=parent)
            finally:
                os.close(parent)
        os.close(self._top)

    def open_dir(self, parts: list) -> int:
        """A new descriptor of the directory at `parts`, no link followed."""
        fd = os.dup(self._top)
        for part in parts:
            following = os.open(part, DIR_FLAGS, dir_fd=fd)
            os.close(fd)
            fd = following
        return fd

    def walk(self, limit: int) -> list:
        """`(path, stat, target)` of every entry, sorted by path.

        With more than `limit` entries the shallowest (then first by name) are kept, so that junk deep in a tree cannot
        push out the files a task asks for.
        """
        found: list = []
        stack = [(os.dup(self._top), "", iter(self._names(self._top)))]
        try:
            while stack:
                fd, prefix, names = stack[-1]
                name = next(names, None)
                if name is None or len(found) >= MAX_VISITED:
                    os.close(fd)
                    stack.pop()
                    continue
                status = os.lstat(name, dir_fd=fd)
                target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
                path = prefix + name
                found.append((path, status, target))
                if stat.S_ISDIR(status.st_mode) and len(stack) < MAX_DEPTH:
                    mode = stat.S_IMODE(status.st_mode)
                    if mode & 0o500 != 0o500:
                        os.chmod(name, mode | 0o700, dir_fd=fd)
                        self._locked.append((None, path.split("/"), mode))
                    child = os.open(name, DIR_FLAGS, dir_fd=fd)
                    stack.append((child, path + "/", iter(self._names(child))))
        finally:
            for fd, _, _ in stack:
                os.close(fd)
        if len(found) > limit:
            found.sort(key=lambda item: (item[0].count("/"), item[0]))
            del found[limit:]
        found.sort(key=lambda item: item[0])
        return found

    @staticmethod
    def _names(fd: int) -> list:
        return sorted(os.listdir(fd))

    def open_file(self, path: str) -> int:
        """Open one regular file for reading.

        Raises:
            FileNotFoundError: Nothing stands there, or a part on the way is no directory.
            BadPath: The path leaves the workspace, or what stands there is no regular file.
        """
        parts = path_parts(path)
        try:
            parent = self.open_dir(parts[:-1])
        except (NotADirectoryError, OSError) as error:
            raise FileNotFoundError(f"{path}: {error.strerror}") from error
        try:
            status = os.lstat(parts[-1], dir_fd=parent)
            if not stat.S_ISREG(status.st_mode):
                raise BadPath(f"{path!r} is a {kind_of(status.st_mode)}, not a regular file")
            mode = stat.S_IMODE(status.st_mode)
            if not mode & 0o400:
                os.chmod(parts[-1], mode | 0o400, dir_fd=parent)
            try:
                return os.open(parts[-1], FILE_FLAGS, dir_fd=parent)
            finally:
                if not mode & 0o400:
                    os.chmod(parts[-1], mode, dir_fd=parent)
        finally:
            os.close(parent)

    def content(self, path: str, size: int) -> bytes:
        """Up to `size` bytes of a regular file."""
        fd = self.open_file(path)
        try:
            chunks = []
            while size > 0:
                chunk = os.read(fd, min(size, 1 << 20))
                if not chunk:
                    break
                chunks.append(chunk)
                size -= len(chunk)
            return b"".join(chunks)
        finally:
            os.close(fd)

    def snapshot(self, limit: int, file_bytes: int, total_bytes: int) -> tuple:
        """Every entry as `[path, kind, mode, size, target, length]`, and all contents in one body.

        `length` is -1 for what has no content: a file above `file_bytes`, files after `total_bytes`, and non-files.
        """
        rows, chunks, total = [], [], 0
        for path, status, target in self.walk(limit):
            kind = kind_of(status.st_mode)
            length = -1
            if kind == "file" and status.st_size <= file_bytes and total + status.st_size <= total_bytes:
                try:
                    data = self.content(path, status.st_size)
                except OSError:
                    data = None  # too deep for one path, or the disk refuses: named, without content
                if data is not None:
                    chunks.append(data)
                    length = len(data)
                    total += length
            rows.append([path, kind, stat.S_IMODE(status.st_mode) & 0o777, status.st_size, target, length])
        return rows, b"".join(chunks)

    def digests(self, limit: int, hash_bytes: int) -> list:
        """Every entry as `[path, kind, mode, target, digest]`; beyond `hash_bytes` of a file only its size counts."""
        import hashlib

        rows = []
        for path, status, target in self.walk(limit):
            kind = kind_of(status.st_mode)
            digest = None
            if kind == "file":
                sha = hashlib.sha256(b"" if status.st_size <= hash_bytes else b"%d\n" % status.st_size)
                fd = self.open_file(path)
                try:
                    left = min(status.st_size, hash_bytes)
                    while left > 0:
                        chunk = os.read(fd, min(left, 1 << 20))
                        if not chunk:
                            break
                        sha.update(chunk)
                        left -= len(chunk)
                finally:
                    os.close(fd)
                digest = sha.hexdigest()
            rows.append([path, kind, stat.S_IMODE(status.st_mode) & 0o777, target, digest])
        return rows
