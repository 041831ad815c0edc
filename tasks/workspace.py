"""The workspace of a task: which files, folders and links the agent finds, written out or read from a folder."""

from __future__ import annotations

import base64
import binascii
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sandboxes.sandbox import EntryKind, FileEntry, Limits
from tasks.model import Items, Mode, StrictModel, Text, WorkspacePath, fault

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Largest file that `size:` may ask for, and largest one of a folder that `from:` names."""

_MAX_LINKS = 40
"""Links that the kernel follows before it gives up on a path."""

_SCRIPT_SUFFIXES = (".sh", ".bash", ".py", ".pl", ".rb", ".awk", ".sed")


class FileSpec(StrictModel):
    """One entry under `files:`. Exactly one of `text`, `base64`, `size` and `symlink` is given.

    Attributes:
        text: Content as UTF-8 text.
        base64: Content as base64, for bytes that are no text.
        size: That many zero bytes.
        symlink: Target of a symbolic link, inside the workspace, relative to the link's folder.
        mode: Permission bits as octal text, such as "0755".
    """

    text: str | None = None
    base64: str | None = None
    size: int | None = Field(default=None, ge=0, le=MAX_FILE_BYTES)
    symlink: Text | None = None
    mode: Mode = "0644"

    @field_validator("base64")
    @classmethod
    def _decodes(cls, text: str | None) -> str | None:
        if text is not None:
            try:
                base64.b64decode("".join(text.split()), validate=True)
            except (binascii.Error, ValueError) as error:
                raise fault(f"not valid base64: {error}") from error
        return text

    @model_validator(mode="after")
    def _one_content(self) -> FileSpec:
        given = [key for key in ("text", "base64", "size", "symlink") if getattr(self, key) is not None]
        if len(given) != 1:
            what = "nothing" if not given else " and ".join(given)
            raise fault(f"a file needs exactly one of text, base64, size or symlink, but has {what}")
        if self.symlink is not None and "\0" in self.symlink:
            raise fault("the target of a link cannot hold a NUL character", "symlink")
        if self.symlink is not None and self.mode != "0644":
            raise fault("a link has no mode of its own: leave it out", "mode")
        return self

    def entry(self) -> FileEntry:
        """Return the file as it goes into a sandbox."""
        if self.symlink is not None:
            return FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=self.symlink)
        content = self._content()
        return FileEntry(content=content, mode=int(self.mode, 8), size=len(content))

    def _content(self) -> bytes:
        if self.text is not None:
            return self.text.encode("utf-8")
        if self.base64 is not None:
            return base64.b64decode("".join(self.base64.split()), validate=True)
        return bytes(self.size or 0)


def _file_spec(value: Any) -> Any:
    return {"text": value} if isinstance(value, str) else value


class Workspace(StrictModel):
    """What the agent finds.

    Attributes:
        files: Path to content; a plain text stands for `{text: ...}`.
        dirs: Folders that exist although they may be empty. Folders of files need not be listed.
    """

    only_in_files: ClassVar[tuple[str, ...]] = ("from",)
    """Keys of a task file that are gone once it is read: what lies there then stands under `files` and `dirs`."""

    files: dict[WorkspacePath, Annotated[FileSpec, BeforeValidator(_file_spec)]] = Field(default_factory=dict)
    dirs: Items[WorkspacePath] = ()

    @field_validator("files", mode="before")
    @classmethod
    def _spelt_once(cls, files: Any) -> Any:
        seen: dict[str, str] = {}
        for path in files if isinstance(files, dict) else ():
            normal = posixpath.normpath(path) if isinstance(path, str) else path
            if normal in seen:
                raise fault(f"'{seen[normal]}' and '{path}' are the same path", path)
            seen[normal] = path
        return files

    @model_validator(mode="after")
    def _consistent(self) -> Workspace:
        for folder in self.dirs:
            if folder in self.files:
                raise fault(f"'{folder}' is listed as a file and as a folder", "dirs", self.dirs.index(folder))
        for path, spec in self.files.items():
            _check_file(path, spec)
            if spec.symlink is not None and not _stays_inside(path, self.files):
                raise fault(
                    f"the link '{path}' leaves the workspace: '{spec.symlink}': give one in it, relative to the link",
                    "files",
                    path,
                )
        for path in (*self.files, *self.dirs):
            for parent in parents(path):
                if parent in self.files:
                    where = ("files", path) if path in self.files else ("dirs", self.dirs.index(path))
                    raise fault(f"'{parent}' is a file, so '{path}' cannot be in it", *where)
        return self

    def entries(self) -> dict[str, FileEntry]:
        """Return every path that the workspace holds, sorted, the folders of files included."""
        found = {path: spec.entry() for path, spec in self.files.items()}
        for path in (*self.files, *self.dirs):
            for folder in (*parents(path), *(() if path in self.files else (path,))):
                found[folder] = FileEntry(kind=EntryKind.DIR, content=None, mode=0o755)
        return dict(sorted(found.items()))


def parents(path: str) -> list[str]:
    """Return the folders that `path` lies in, outermost first, the workspace itself left out."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def looks_like_script(path: str, text: str, mode: str = "0644") -> bool:
    """Whether a file is one that a shell or interpreter will read, where a carriage return breaks it."""
    return text.startswith("#!") or path.endswith(_SCRIPT_SUFFIXES) or bool(int(mode, 8) & 0o111)


def _check_file(path: str, spec: FileSpec) -> None:
    if spec.text is not None and "\r\n" in spec.text and looks_like_script(path, spec.text, spec.mode):
        line = spec.text[: spec.text.index("\r\n")].count("\n") + 1
        raise fault(
            f"'{path}' is a script with CRLF line endings (its line {line}): bash would say \"$'\\r': command not "
            'found". Write it with plain line ends, or as base64 if the CRLF is the point of the task',
            "files",
            path,
        )


def _stays_inside(path: str, files: Mapping[str, FileSpec]) -> bool:
    """Whether the link at `path` leads to a place in the workspace, other links on the way followed as the kernel does.

    A loop of links leads nowhere, and so not outside.
    """
    waiting = path.split("/")[::-1]
    at: list[str] = []
    followed = 0
    while waiting:
        part = waiting.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        at.append(part)
        spec = files.get("/".join(at))
        if spec is not None and spec.symlink is not None:
            followed += 1
            if spec.symlink.startswith("/"):
                return False
            if followed > _MAX_LINKS:
                return True
            at.pop()
            waiting += spec.symlink.split("/")[::-1]
    return True


def spelt_out(entries: Mapping[str, FileEntry]) -> dict[str, Any]:
    """Return what lies somewhere as a task file has it under `workspace`: files, links, and folders without content."""
    files: dict[str, Any] = {}
    for path, entry in entries.items():
        if entry.kind is EntryKind.SYMLINK:
            files[path] = {"symlink": entry.target}
        elif entry.kind is EntryKind.FILE:
            files[path] = {**spelt_content(entry.content or b""), "mode": f"{entry.mode:04o}"}
    full = {path.rpartition("/")[0] for path in entries}
    dirs = [path for path, entry in entries.items() if entry.kind is EntryKind.DIR and path not in full]
    return {"files": files, "dirs": dirs}


def spelt_content(content: bytes) -> dict[str, str]:
    """Return a file's content as a task file has it: as text where nothing is lost or refused by that, else base64."""
    if b"\r" not in content and b"\0" not in content:  # scripts with carriage returns are refused as text
        try:
            return {"text": content.decode("utf-8")}
        except UnicodeDecodeError:
            pass
    return {"base64": base64.b64encode(content).decode("ascii")}


# -- `from:`: a folder that lies beside the task file, laid as if all in it were written under `files` and `dirs` -----


class NotLaid(ValueError):
    """A folder cannot be laid; the text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What a folder holds.

    Attributes:
        files: Files and links by path, sorted.
        dirs: Folders with nothing in them, sorted.
    """

    files: Mapping[str, FileSpec]
    dirs: tuple[str, ...]

    def under(self, files: Iterable[str], dirs: Iterable[str]) -> Laid:
        """Leave out what gives way to other files and folders: those paths, what they lie in, and what lies in them."""
        taken = set(files)
        folders = {folder for path in (*taken, *dirs) for folder in parents(path)} | set(dirs)

        def stays(path: str) -> bool:
            return path not in taken and not any(parent in taken for parent in parents(path))

        kept = {path: spec for path, spec in self.files.items() if stays(path) and path not in folders}
        return Laid(kept, tuple(path for path in self.dirs if stays(path) and path not in folders))


def read_folders(base: Path, names: Iterable[str]) -> Laid:
    """Read folders for a workspace; what a later one holds wins over an earlier one.

    Files keep their bytes and whether their owner may execute them (mode 0755, else 0644), links their target.

    Args:
        base: Where the task file lies.
        names: The folders, relative to it.

    Raises:
        NotLaid: No such folder, one outside of `base`, or something in it that no workspace can hold.
    """
    laid = Laid({}, ())
    for name in names:
        new = _read_folder(base, name)
        old = laid.under(new.files, new.dirs)
        laid = Laid({**old.files, **new.files}, (*old.dirs, *new.dirs))
    return laid


def _read_folder(base: Path, name: str) -> Laid:
    normal = posixpath.normpath(name)
    if name.startswith(("/", "~")) or ".." in name.split("/") or normal == "." or "\0" in name:
        raise NotLaid(f"'{name}' is no folder below this file's: write its path from there, such as fixtures/orders")
    files: dict[str, FileSpec] = {}
    dirs: list[str] = []
    size = 0
    try:
        _check_folder(base, base / normal, name)
        for path, entry in _walk(base / normal):
            if entry is None:
                dirs.append(path)
            else:
                files[path] = _spec(f"{normal}/{path}", entry)
                size += 0 if entry.is_symlink() else entry.stat(follow_symlinks=False).st_size
            _check_sum(name, size, len(files) + len(dirs))
    except OSError as error:
        where = os.path.relpath(error.filename, base) if error.filename else name
        raise NotLaid(f"'{where}' cannot be read ({error.strerror}): check path and permissions") from error
    return Laid(dict(sorted(files.items())), tuple(sorted(dirs)))


def _check_folder(base: Path, folder: Path, name: str) -> None:
    if not folder.exists():
        raise NotLaid(f"there is no folder '{name}' beside this file: make it, or correct the path")
    if not folder.is_dir():
        raise NotLaid(f"'{name}' is no folder: name the one that it lies in, or write its content under files")
    if not folder.resolve().is_relative_to(base.resolve()):
        raise NotLaid(f"'{name}' leads out of this file's folder by a link: put the folder itself there")


def _walk(folder: Path) -> Iterator[tuple[str, os.DirEntry[str] | None]]:
    """Yield files, links and whatever else lies in a folder, and empty folders (without an entry)."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(folder / below) as listing:
            entries = list(listing)
        if not entries and below:
            yield below, None
        for entry in entries:
            path = posixpath.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            else:
                yield path, entry


def _spec(shown: str, entry: os.DirEntry[str]) -> FileSpec:
    try:
        shown.encode("utf-8")
    except UnicodeEncodeError as error:
        raise NotLaid(f"{shown!r} has a name that is not UTF-8: rename it") from error
    if entry.is_symlink():
        return FileSpec(symlink=os.readlink(entry.path))
    status = entry.stat(follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise NotLaid(f"'{shown}' is neither file, folder nor link (a fifo, a socket or a device): remove it")
    if status.st_size > MAX_FILE_BYTES:
        raise NotLaid(f"'{shown}' has {status.st_size} bytes, and a file may have {MAX_FILE_BYTES}: make it smaller")
    content = Path(entry.path).read_bytes()
    mode = "0755" if status.st_mode & stat.S_IXUSR else "0644"
    try:
        return FileSpec(text=content.decode("utf-8"), mode=mode)
    except UnicodeDecodeError:
        return FileSpec(base64=base64.b64encode(content).decode("ascii"), mode=mode)


def _check_sum(name: str, size: int, entries: int) -> None:
    limits = Limits()
    if size > limits.workspace_mb * 1024 * 1024:
        raise NotLaid(f"'{name}' holds more than the {limits.workspace_mb} MiB of a workspace: make it smaller")
    if entries > limits.snapshot_entries:
        raise NotLaid(f"'{name}' holds more than the {limits.snapshot_entries} paths of a workspace: make it smaller")
