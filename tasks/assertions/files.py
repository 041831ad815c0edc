"""The kinds on files and folders: what stands where, and what a file says."""

from __future__ import annotations

import fnmatch
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator, model_validator

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import AssertionKind, AssertionResult, Outcome
from tasks.assertions.on_files import (
    UNSEEN,
    WORDS,
    FileAssertion,
    OnFiles,
    Pattern,
    TextAssertion,
    TooSlow,
    as_list,
    find,
    search,
    shorten,
    stands_at,
    too_large,
)
from tasks.model import Items, Mode, StrictModel, Text, clean_path, fault

# -- The five kinds that every task needs: what stands where, and what a file says ------------------------------------


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


# ---------------------------------------------------------------------------------------------------------------------
# Kinds that look at one file or folder closer: its exact text, its lines, its hash, its mode; and how many match.


class Counted(StrictModel):
    """How many there must be: `equals`, or `min` and/or `max`.

    Attributes:
        equals: Exactly so many.
        min: At least so many.
        max: At most so many.
    """

    equals: int | None = Field(default=None, ge=0)
    min: int | None = Field(default=None, ge=0)
    max: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _says_how_many(self) -> Counted:
        if self.equals is None and self.min is None and self.max is None:
            raise fault("needs equals, min or max")
        if self.equals is not None and (self.min is not None or self.max is not None):
            raise fault("equals leaves nothing for min and max to say: give the one or the others")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise fault(f"min is {self.min}, which is more than max, {self.max}")
        return self

    def fits(self, count: int) -> bool:
        """Whether a count is as asked."""
        if self.equals is not None:
            return count == self.equals
        return (self.min is None or count >= self.min) and (self.max is None or count <= self.max)

    def wanted(self) -> str:
        """Return what is asked, in words."""
        if self.equals is not None:
            return str(self.equals)
        parts = [
            f"at least {self.min}" if self.min is not None else "",
            f"at most {self.max}" if self.max is not None else "",
        ]
        return " and ".join(part for part in parts if part)


class FileEquals(TextAssertion):
    """The file's text is the given one.

    Attributes:
        equals: The text.
        loose: Blanks at the end of lines, empty lines at the end and CRLF instead of LF make no difference.
    """

    kind: Literal[AssertionKind.FILE_EQUALS] = AssertionKind.FILE_EQUALS
    equals: str
    loose: bool = False

    def check(self, outcome: Outcome) -> AssertionResult:
        """Compare, and name the first line that differs."""
        text = self.text(outcome)
        if isinstance(text, AssertionResult):
            return text
        found, wanted = (_loose(text), _loose(self.equals)) if self.loose else (text, self.equals)
        if found == wanted:
            return self.passed()
        ours, theirs = found.split("\n"), wanted.split("\n")
        for number, (line, other) in enumerate(zip(ours, theirs, strict=False), start=1):
            if line != other:
                return self.failed(f"{self.path}: line {number} is {shorten(line)} instead of {shorten(other)}")
        if {found, wanted} == {found.rstrip("\n"), found.rstrip("\n") + "\n"}:
            return self.failed(f"{self.path}: differs in the line end after the last line")
        return self.failed(f"{self.path}: has {len(ours)} lines instead of {len(theirs)}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} is {shorten(self.equals)}"


class DirExists(FileAssertion):
    """A folder stands at the path; a link counts if it leads to one in the workspace.

    Attributes:
        empty: True: nothing may be in it. False: something must be.
    """

    kind: Literal[AssertionKind.DIR_EXISTS] = AssertionKind.DIR_EXISTS
    empty: bool | None = None

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the path leads to a folder."""
        found = find(outcome.files, self.path)
        if found.entry is None:
            return self.failed(f"{self.path}: {found.problem}")
        if found.entry.kind is not EntryKind.DIR:
            return self.failed(f"{self.path}: is a {WORDS[found.entry.kind]}, not a folder")
        if self.empty is not None:
            prefix = f"{found.path}/" if found.path else ""
            full = any(path.startswith(prefix) for path in outcome.files)
            if self.empty and not full and outcome.cut_short:
                return self.broken(UNSEEN)
            if full is self.empty:
                return self.failed(f"{self.path}: {'is not empty' if full else 'is empty'}")
        return self.passed()

    def describe(self) -> str:
        """Return the condition in words."""
        kind = {None: "a folder", True: "an empty folder", False: "a folder with something in it"}[self.empty]
        return f"{self.path} is {kind}"


def _clean_glob(pattern: str) -> str:
    if any("**" in part and part != "**" for part in clean_path(pattern).split("/")):
        raise fault(f"in '{pattern}', '**' must be a whole part: write for example 'docs/**/*.md'")
    return clean_path(pattern)


class FileCount(Counted, OnFiles):
    """So many files of the workspace match a glob. Folders and links are not counted.

    Attributes:
        glob: `*`, `?` and `[...]` match within one part of the path, names that start with a dot too; `**` as a whole
            part matches any number of folders, also none.
    """

    kind: Literal[AssertionKind.FILE_COUNT] = AssertionKind.FILE_COUNT
    glob: Annotated[str, AfterValidator(_clean_glob)]

    def check(self, outcome: Outcome) -> AssertionResult:
        """Count and compare."""
        parts = [part if part == "**" else re.compile(fnmatch.translate(part)) for part in self.glob.split("/")]
        hits = [
            path
            for path, entry in outcome.files.items()
            if entry.kind is EntryKind.FILE and _matches(path.split("/"), parts)
        ]
        if outcome.cut_short:
            return self.broken(UNSEEN)
        if self.fits(len(hits)):
            return self.passed()
        some = f" ({', '.join(hits[:5])}{', ...' if len(hits) > 5 else ''})" if hits else ""
        return self.failed(f"{self.glob}: {len(hits)} files{some} instead of {self.wanted()}")

    def default_name(self) -> str:
        """Return the kind and the glob."""
        return f"{self.kind}:{self.glob}"

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.wanted()} files match {self.glob}"


class FileMode(FileAssertion):
    """The permission bits of a file or folder are the given ones.

    Attributes:
        mode: Octal text such as "0755".
    """

    kind: Literal[AssertionKind.FILE_MODE] = AssertionKind.FILE_MODE
    mode: Mode

    def check(self, outcome: Outcome) -> AssertionResult:
        """Compare all nine bits."""
        found = find(outcome.files, self.path)
        if found.entry is None:
            return self.failed(f"{self.path}: {found.problem}")
        mode = f"{found.entry.mode & 0o777:04o}"
        return self.passed() if mode == self.mode else self.failed(f"{self.path}: mode {mode} instead of {self.mode}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} has mode {self.mode}"


class LineCount(Counted, TextAssertion):
    """The file has so many lines; a last line without a line end counts, too.

    Attributes:
        loose: Empty lines at the end do not count.
    """

    kind: Literal[AssertionKind.LINE_COUNT] = AssertionKind.LINE_COUNT
    loose: bool = False

    def check(self, outcome: Outcome) -> AssertionResult:
        """Count and compare."""
        content = self.content(outcome)
        if isinstance(content, AssertionResult):
            return content
        if self.loose:
            content = content.rstrip()
        count = content.count(b"\n") + (not content.endswith(b"\n") and content != b"")
        return (
            self.passed() if self.fits(count) else self.failed(f"{self.path}: {count} lines instead of {self.wanted()}")
        )

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} has {self.wanted()} lines"


class Sha256(TextAssertion):
    """The file's bytes have the given SHA-256.

    Attributes:
        sha256: 64 hexadecimal digits.
    """

    kind: Literal[AssertionKind.SHA256] = AssertionKind.SHA256
    sha256: str

    @field_validator("sha256")
    @classmethod
    def _hexadecimal(cls, digest: str) -> str:
        if not re.fullmatch(r"[0-9a-fA-F]{64}", digest):
            raise fault("a SHA-256 is 64 hexadecimal digits, as `sha256sum FILE` prints them")
        return digest.lower()

    def check(self, outcome: Outcome) -> AssertionResult:
        """Compare."""
        content = self.content(outcome)
        if isinstance(content, AssertionResult):
            return content
        digest = hashlib.sha256(content).hexdigest()
        return self.passed() if digest == self.sha256 else self.failed(f"{self.path}: its SHA-256 is {digest}")

    def describe(self) -> str:
        """Return the condition in words."""
        return f"{self.path} has the SHA-256 {self.sha256[:12]}..."


def _loose(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.split("\n")).rstrip("\n")


def _matches(path: list[str], parts: list[str | re.Pattern[str]]) -> bool:
    """Whether a path matches a glob, part by part; linear in both, whatever stands in them."""
    reached = {0}  # how many parts of the glob may be used up
    for name in path:
        reached = _skip(reached, parts)
        following = set()
        for at in reached:
            part = parts[at] if at < len(parts) else None
            if part == "**":
                following.add(at)
            elif isinstance(part, re.Pattern) and part.match(name):
                following.add(at + 1)
        reached = following
    return len(parts) in _skip(reached, parts) and not (parts[-1] == "**" and not path)


def _skip(reached: set[int], parts: list[str | re.Pattern[str]]) -> set[int]:
    """Also pass over `**`, which may stand for no folder."""
    found = set(reached)
    for at in range(len(parts)):
        if at in found and parts[at] == "**":
            found.add(at + 1)
    return found
