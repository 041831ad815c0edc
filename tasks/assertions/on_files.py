"""What assertions on the workspace share: one path, its bytes or text, caps, and words for what stands there."""

from __future__ import annotations

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import AssertionResult, BaseAssertion
from tasks.assertions.paths import find
from tasks.model import WorkspacePath
from tasks.outcome import Outcome

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
