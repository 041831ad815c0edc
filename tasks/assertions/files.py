"""The five kinds of file assertion. They read snapshots only, never the file system of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import regex
from pydantic import BeforeValidator, Field, field_validator

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion
from tasks.assertions.paths import find, stands_at
from tasks.model import Items, Text, WorkspacePath, fault
from tasks.outcome import Outcome

REGEX_SECONDS = 2.0
"""How long one regular expression may search before the verdict is an error."""


class FileAssertion(BaseAssertion):
    """A check on one path of the workspace."""

    path: WorkspacePath

    def default_name(self) -> str:
        """Return `<kind>:<path>`."""
        return f"{self.kind.value}:{self.path}"


class FileExists(FileAssertion):
    """Something stands at the path: a file or a folder. A link counts if it leads to something in the workspace."""

    kind: Literal[AssertionKind.FILE_EXISTS] = AssertionKind.FILE_EXISTS

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the path leads to a file or folder."""
        found = find(outcome.files, self.path)
        return self.passed() if found.entry is not None else self.failed(f"{self.path}: {found.problem}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} exists"


class FileNotExists(FileAssertion):
    """Nothing stands at the path. A link that leads nowhere still stands there."""

    kind: Literal[AssertionKind.FILE_NOT_EXISTS] = AssertionKind.FILE_NOT_EXISTS

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the path is free."""
        found = stands_at(outcome.files, self.path)
        if found.entry is None:
            return self.passed()
        return self.failed(f"{self.path}: a {_WORDS[found.entry.kind]} stands there")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} does not exist"


class _TextAssertion(FileAssertion):
    """A check on the text of one file: UTF-8, invalid bytes replaced, line endings as they are."""

    def _text(self, outcome: Outcome) -> str | AssertionResult:
        found = find(outcome.files, self.path)
        if found.entry is None:
            return self.failed(f"{self.path}: {found.problem}")
        if found.entry.kind is not EntryKind.FILE:
            return self.failed(f"{self.path}: is a {_WORDS[found.entry.kind]}, not a file")
        if found.entry.content is None:
            laid = find(outcome.initial, self.path).entry
            if laid is not None and laid.content is None and laid.kind is EntryKind.FILE:
                return self.erred(_too_large(self.path, found.entry))
            # The agent made it this large. An error would let it out of a bad grade: an episode that errs has none.
            return self.failed(_too_large(self.path, found.entry))
        return found.entry.content.decode("utf-8", "replace")


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class FileContains(_TextAssertion):
    """The file's text holds each of the given texts, case and line breaks as written."""

    kind: Literal[AssertionKind.FILE_CONTAINS] = AssertionKind.FILE_CONTAINS
    contains: Annotated[Items[Text], BeforeValidator(_as_list)] = Field(min_length=1)

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if every text is found."""
        text = self._text(outcome)
        if isinstance(text, AssertionResult):
            return text
        missing = [wanted for wanted in self.contains if wanted not in text]
        if not missing:
            return self.passed()
        hint = " (the file has CRLF line endings)" if "\r\n" in text and any("\n" in item for item in missing) else ""
        return self.failed(f"{self.path}: does not contain {', '.join(_shorten(item) for item in missing)}{hint}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} contains {', '.join(_shorten(item) for item in self.contains)}"


class FileMatches(_TextAssertion):
    """The regular expression is found somewhere in the file's text.

    Syntax of the `regex` package, which takes that of `re`; no flags are set, so `^` and `$` mean the ends of the
    whole text unless the pattern starts with `(?m)`.
    """

    kind: Literal[AssertionKind.FILE_MATCHES] = AssertionKind.FILE_MATCHES
    pattern: Text

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            regex.compile(pattern)
        except regex.error as error:
            raise fault(f"the pattern {_shorten(pattern)} is no regular expression: {error}") from error
        return pattern

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the pattern is found; a search that takes too long is an error."""
        text = self._text(outcome)
        if isinstance(text, AssertionResult):
            return text
        try:
            match = regex.search(self.pattern, text, timeout=REGEX_SECONDS)
        except TimeoutError:
            return self.erred(f"{self.path}: the pattern {_shorten(self.pattern)} took longer than {REGEX_SECONDS:g} s")
        return self.passed() if match else self.failed(f"{self.path}: no match for {_shorten(self.pattern)}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} matches {_shorten(self.pattern)}"


class FileUnchanged(FileAssertion):
    """What stands at the path is what the task laid there: bytes of a file, target of a link, a folder with all in it.

    Permission bits are not compared. The path must be part of the task's workspace.
    """

    kind: Literal[AssertionKind.FILE_UNCHANGED] = AssertionKind.FILE_UNCHANGED

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if nothing differs between the initial snapshot and this one."""
        before = stands_at(outcome.initial, self.path)
        if before.entry is None:
            return self.erred(f"{self.path}: not in the workspace as the task laid it, so there is nothing to compare")
        after = stands_at(outcome.files, self.path)
        if after.entry is None:
            return self.failed(f"{self.path}: gone")
        if before.entry.kind is EntryKind.DIR and after.entry.kind is EntryKind.DIR:
            return self._compare_folders(_below(outcome.initial, before.path), _below(outcome.files, after.path))
        return self._compare(self.path, before.entry, after.entry) or self.passed()

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} is as it was"

    def _compare_folders(self, before: Mapping[str, FileEntry], after: Mapping[str, FileEntry]) -> AssertionResult:
        for path in sorted(before.keys() | after.keys()):
            shown = f"{self.path}/{path}"
            if path not in after:
                return self.failed(f"{shown}: gone")
            if path not in before:
                return self.failed(f"{shown}: added")
            problem = self._compare(shown, before[path], after[path])
            if problem is not None:
                return problem
        return self.passed()

    def _compare(self, path: str, before: FileEntry, after: FileEntry) -> AssertionResult | None:
        """Compare one entry; None if nothing differs."""
        if before.kind is not after.kind:
            return self.failed(f"{path}: was a {_WORDS[before.kind]}, is a {_WORDS[after.kind]}")
        if before.kind is EntryKind.SYMLINK:
            same = before.target == after.target
            return None if same else self.failed(f"{path}: link to '{before.target}' now leads to '{after.target}'")
        if before.kind is not EntryKind.FILE or (before.content is not None and before.content == after.content):
            return None
        sizes = _size(before), _size(after)
        if None not in sizes and sizes[0] != sizes[1]:
            return self.failed(f"{path}: changed (was {sizes[0]} bytes, is {sizes[1]})")
        if before.content is None or after.content is None:
            return self.erred(_too_large(path, after if after.content is None else before))
        return self.failed(f"{path}: changed (same size, other bytes)")


Assertion = Annotated[
    FileExists | FileNotExists | FileContains | FileMatches | FileUnchanged, Field(discriminator="kind")
]
"""Any assertion a task may hold, told apart by `kind`."""

FILE_KINDS = frozenset(
    {
        AssertionKind.FILE_EXISTS,
        AssertionKind.FILE_NOT_EXISTS,
        AssertionKind.FILE_CONTAINS,
        AssertionKind.FILE_MATCHES,
        AssertionKind.FILE_UNCHANGED,
    }
)
"""Kinds that can be judged from snapshots after any turn."""

_WORDS = {
    EntryKind.FILE: "file",
    EntryKind.DIR: "folder",
    EntryKind.SYMLINK: "symbolic link",
    EntryKind.OTHER: "special file",
}


def _size(entry: FileEntry) -> int | None:
    return len(entry.content) if entry.content is not None else entry.size


def _too_large(path: str, entry: FileEntry) -> str:
    size = f"{entry.size} bytes" if entry.size is not None else "unknown size"
    return f"{path}: content not in the snapshot ({size}, over the cap of the sandbox), so it cannot be judged"


def _below(files: Mapping[str, FileEntry], folder: str) -> dict[str, FileEntry]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): entry for path, entry in files.items() if path.startswith(prefix)}


def _shorten(text: str, limit: int = 60) -> str:
    shown = repr(text)
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...{shown[-1]}"
