"""Short ways to build an assertion and an outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter

from sandboxes.sandbox import Backend, CommandResult, EntryKind, FileEntry, Files
from tasks.assertions import AssertionResult, BaseAssertion
from tasks.assertions.base import Outcome
from tasks.judged_in import JudgedIn
from tasks.task import Assertion

_ADAPTER: TypeAdapter[Any] = TypeAdapter(Assertion)


def build(kind: str, **keys: Any) -> BaseAssertion:
    found = _ADAPTER.validate_python({"kind": kind, **keys})
    assert isinstance(found, BaseAssertion)
    return found


def state(files: Mapping[str, bytes | str | FileEntry | None]) -> dict[str, FileEntry]:
    """`None` is a folder; a text that starts with `->` is a link."""
    found: dict[str, FileEntry] = {}
    for path, given in files.items():
        if isinstance(given, FileEntry):
            found[path] = given
        elif given is None:
            found[path] = FileEntry(EntryKind.DIR, None, 0o755)
        elif isinstance(given, str) and given.startswith("->"):
            found[path] = FileEntry(EntryKind.SYMLINK, None, 0o777, target=given[2:])
        else:
            found[path] = FileEntry(content=given.encode() if isinstance(given, str) else given)
    return found


def judge(assertion: BaseAssertion, files: Mapping[str, bytes | str | FileEntry | None]) -> AssertionResult:
    return assertion.check(Outcome(state(files), {}))


def verdict(assertion: BaseAssertion, files: Mapping[str, bytes | str | FileEntry | None]) -> str:
    return str(judge(assertion, files).verdict)


class FakeHandle:
    """A grader handle that answers with what it was given, and remembers what it was asked."""

    def __init__(self, stdout: bytes | str = b"", exit_code: int = 0, **facts: Any) -> None:
        out = stdout.encode() if isinstance(stdout, str) else stdout
        self.result = CommandResult(exit_code, out, facts.pop("stderr", b""), **facts)
        self.raises: Exception | None = None
        self.untouched: FakeHandle | None = None
        self.again: FakeHandle | None = None
        self.asked: list[tuple[str, dict[str, str], float | None]] = []
        self.env: dict[str, str] = {}
        self.rooms: list[FakeHandle] = []
        self.carried: list[Files | None] = []

    task_hash: str | None = None
    backend = Backend.DOCKER

    @contextmanager
    def fresh(self, judged_in: JudgedIn, files: Files | None = None) -> Iterator[FakeHandle]:
        """The next of `rooms`; `carried` remembers what each got."""
        self.carried.append(files)
        yield self.rooms.pop(0)

    @contextmanager
    def beside(self, files: Files | None = None) -> Iterator[FakeHandle]:
        """Another handle, where one is given: `untouched`, or `again` on files as the agent left them."""
        other = self.untouched if files is None else self.again
        yield other or self

    def run(
        self,
        command: str,
        files: Mapping[str, str] | None = None,
        timeout: float | None = None,
        *,
        private: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        self.asked.append((command, dict(files or {}), timeout))
        self.env = dict(env or {})
        if self.raises is not None:
            raise self.raises
        return self.result
