"""The five kinds that every task needs: what stands where, and what a file says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import AssertionKind, AssertionResult
from tasks.assertions.on_files import UNSEEN, WORDS, FileAssertion, TextAssertion, as_list, shorten, too_large
from tasks.assertions.paths import find, stands_at
from tasks.assertions.patterns import Pattern, TooSlow, search
from tasks.model import Items, Text
from tasks.outcome import Outcome


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
            return self.broken(UNSEEN) if outcome.cut_short else self.passed()
        return self.failed(f"{self.path}: a {WORDS[found.entry.kind]} stands there")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} does not exist"


class FileContains(TextAssertion):
    """The file's text holds each of the given texts, case and line breaks as written."""

    kind: Literal[AssertionKind.FILE_CONTAINS] = AssertionKind.FILE_CONTAINS
    contains: Annotated[Items[Text], BeforeValidator(as_list)] = Field(min_length=1)

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if every text is found."""
        text = self.text(outcome)
        if isinstance(text, AssertionResult):
            return text
        missing = [wanted for wanted in self.contains if wanted not in text]
        if not missing:
            return self.passed()
        hint = " (the file has CRLF line endings)" if "\r\n" in text and any("\n" in item for item in missing) else ""
        return self.failed(f"{self.path}: does not contain {', '.join(shorten(item) for item in missing)}{hint}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} contains {', '.join(shorten(item) for item in self.contains)}"


class FileMatches(TextAssertion):
    """The regular expression is found somewhere in the file's text.

    Syntax of the `regex` package, which takes that of `re`; no flags are set, so `^` and `$` mean the ends of the
    whole text unless the pattern starts with `(?m)`.
    """

    kind: Literal[AssertionKind.FILE_MATCHES] = AssertionKind.FILE_MATCHES
    pattern: Pattern

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the pattern is found; a search that takes too long fails, too."""
        text = self.text(outcome)
        if isinstance(text, AssertionResult):
            return text
        try:
            found = search(self.pattern, text)
        except TooSlow as error:
            return self.too_slow(outcome, str(error))
        return self.passed() if found else self.failed(f"{self.path}: no match for {shorten(self.pattern)}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} matches {shorten(self.pattern)}"


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
            if outcome.cut_short:
                return self.broken(UNSEEN)
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
            return self.failed(f"{path}: was a {WORDS[before.kind]}, is a {WORDS[after.kind]}")
        if before.kind is EntryKind.SYMLINK:
            same = before.target == after.target
            return None if same else self.failed(f"{path}: link to '{before.target}' now leads to '{after.target}'")
        if before.kind is not EntryKind.FILE or (before.content is not None and before.content == after.content):
            return None
        sizes = _size(before), _size(after)
        if None not in sizes and sizes[0] != sizes[1]:
            return self.failed(f"{path}: changed (was {sizes[0]} bytes, is {sizes[1]})")
        if before.content is None or after.content is None:
            detail = too_large(path, after if after.content is None else before)
            return self.erred(detail) if before.content is None else self.broken(detail)
        return self.failed(f"{path}: changed (same size, other bytes)")


def _size(entry: FileEntry) -> int | None:
    return len(entry.content) if entry.content is not None else entry.size


def _below(files: Mapping[str, FileEntry], folder: str) -> dict[str, FileEntry]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): entry for path, entry in files.items() if path.startswith(prefix)}
