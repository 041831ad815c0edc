"""How an assertion looks at the workspace: paths and links, texts, sizes, and regular expressions with a time limit."""

from __future__ import annotations

import posixpath
import time
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import regex
from pydantic import AfterValidator

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import AssertionResult, BaseAssertion, Outcome
from tasks.model import Text, WorkspacePath, fault

# -- Finding a path in a snapshot of a workspace: links are followed inside it only, Unicode in either normal form ----

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


# -- What assertions on the workspace share: one path, its bytes or text, caps, and words for what stands there -------

WORDS = {
    EntryKind.FILE: "file",
    EntryKind.DIR: "folder",
    EntryKind.SYMLINK: "symbolic link",
    EntryKind.OTHER: "special file",
}
"""How an entry is called in details."""


UNSEEN = "the workspace holds more than a snapshot shows, so nothing in it can be said to be absent"
"""Detail where a check on absence fails because the agent made too many paths."""


class OnFiles(BaseAssertion):
    """A check that snapshots alone decide."""

    @property
    def on_files(self) -> bool:
        """True."""
        return True


class FileAssertion(OnFiles):
    """A check on one path of the workspace."""

    path: WorkspacePath

    def default_name(self) -> str:
        """Return `<kind>:<path>`."""
        return f"{self.kind}:{self.path}"


class TextAssertion(FileAssertion):
    """A check on what one file holds."""

    def content(self, outcome: Outcome) -> bytes | AssertionResult:
        """Return the bytes of the file; a result if there are none to judge."""
        found = find(outcome.files, self.path)
        if found.entry is None:
            return self.failed(f"{self.path}: {found.problem}")
        if found.entry.kind is not EntryKind.FILE:
            return self.failed(f"{self.path}: is a {WORDS[found.entry.kind]}, not a file")
        if found.entry.content is None:
            laid = find(outcome.initial, self.path).entry
            if laid is not None and laid.content is None and laid.kind is EntryKind.FILE:
                return self.erred(too_large(self.path, found.entry))
            # The agent made it this large. An error would let it out of a bad grade: an episode that errs has none.
            return self.broken(too_large(self.path, found.entry))
        return found.entry.content

    def too_slow(self, outcome: Outcome, detail: str) -> AssertionResult:
        """Judge a file on which a search ran out of time: the agent's doing, unless the file is as the task laid it.

        An error would let the agent out of a bad grade: an episode that errs has none.
        """
        now, laid = find(outcome.files, self.path).entry, find(outcome.initial, self.path).entry
        same = now is not None and laid is not None and now.content == laid.content
        return self.erred(f"{self.path}: {detail}") if same else self.broken(f"{self.path}: {detail}")

    def text(self, outcome: Outcome) -> str | AssertionResult:
        """Return the text of the file: UTF-8, invalid bytes replaced, line endings as they are."""
        content = self.content(outcome)
        return content if isinstance(content, AssertionResult) else content.decode("utf-8", "replace")


def too_large(path: str, entry: FileEntry) -> str:
    """Word that the content of a file is not known."""
    size = f"{entry.size} bytes" if entry.size is not None else "unknown size"
    return f"{path}: content not in the snapshot ({size}, over the cap of the sandbox), so it cannot be judged"


def shorten(text: str, limit: int = 60) -> str:
    """Return a text in quotes, cut where it is long."""
    shown = repr(text[: limit + 1])
    return shown if len(shown) <= limit else f"{shown[: limit - 4]}...{shown[-1]}"


def as_list(value: object) -> object:
    """Let one text stand for a list of one."""
    return [value] if isinstance(value, str) else value


# ---------------------------------------------------------------------------------------------------------------------
# Regular expressions that people write, searched in text that an agent wrote: checked first, and with a time limit.

REGEX_SECONDS = 2.0
"""Processor time that one regular expression may search."""
_TRIES = 4


class TooSlow(Exception):
    """A search ran out of time; the message names the pattern."""


def search(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text.

    Raises:
        TooSlow: not within `REGEX_SECONDS`.
    """
    return _searched(pattern, text) is not None


def first_group(pattern: str, text: str) -> str | None:
    """Return what the first group of the pattern holds where it is found first; None where it is not found.

    Raises:
        TooSlow: not within `REGEX_SECONDS`.
    """
    match = _searched(pattern, text)
    return None if match is None else match[1]


def groups(pattern: str) -> int:
    """Return how many groups a pattern that compiles has."""
    return int(regex.compile(pattern).groups)


def _searched(pattern: str, text: str) -> regex.Match[str] | None:
    for number in range(_TRIES):
        start = time.thread_time()
        try:
            return regex.search(pattern, text, timeout=REGEX_SECONDS * 2**number)
        except TimeoutError:  # counted for all threads of the process, so others may have used it up
            if time.thread_time() - start > REGEX_SECONDS / 2:
                break
    raise TooSlow(f"the pattern {shorten(pattern)} took longer than {REGEX_SECONDS:g} s")


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise fault(f"the pattern {shorten(pattern)} is no regular expression: {error}") from error
    return pattern


Pattern = Annotated[Text, AfterValidator(_compiles)]
"""A regular expression in the syntax of the `regex` package, which takes that of `re`; no flags are set."""
