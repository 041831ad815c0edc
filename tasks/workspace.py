"""The workspace of a task: which files, folders and links the agent finds."""

from __future__ import annotations

import base64
import binascii
import posixpath
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.model import Items, Mode, StrictModel, Text, WorkspacePath, fault

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Largest file that `size:` may ask for."""

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
                raise fault(f"the link '{path}' leaves the workspace: '{spec.symlink}'", "files", path)
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
