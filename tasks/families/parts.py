"""What a family makes: the parts of a task before it becomes one, and short constructors for its checks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

CheckKind = Literal["file_exists", "file_not_exists", "file_contains", "file_matches", "file_unchanged"]


@dataclass(frozen=True, slots=True)
class Check:
    """One assertion to be: its kind, the path it looks at, and the texts or the pattern that it wants there."""

    kind: CheckKind
    path: str
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskParts:
    """One generated task, as plain values.

    Attributes:
        intent: What the agent is asked to do: one lower-case sentence that names every file it needs.
        files: Path to text, what the workspace holds at the start.
        commands: The oracle: one short line a turn.
        checks: What must hold at the end. At least one fails at the start, all hold after the oracle.
    """

    intent: str
    files: dict[str, str]
    commands: tuple[str, ...]
    checks: tuple[Check, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """A procedural family: tasks that ask for the same thing with other names, words and contents.

    Attributes:
        name: How sources, ids and reports call it.
        summary: What must be done, in a few words.
        make: Draws one task; takes all its randomness from the generator given.
    """

    name: str
    summary: str
    make: Callable[[Random], TaskParts]


def exists(path: str) -> Check:
    """A file stands at `path`."""
    return Check("file_exists", path)


def gone(path: str) -> Check:
    """Nothing stands at `path`."""
    return Check("file_not_exists", path)


def kept(path: str) -> Check:
    """The file at `path` is as it was at the start."""
    return Check("file_unchanged", path)


def contains(path: str, *texts: str) -> Check:
    """The file at `path` holds each of `texts`."""
    return Check("file_contains", path, texts)


def exactly(path: str, text: str) -> Check:
    """The file at `path` holds `text` and nothing else (the last newline may be missing)."""
    lines = [re.escape(line).replace("\\ ", " ") for line in text.removesuffix("\n").split("\n")]
    return Check("file_matches", path, (r"\A" + r"\n".join(lines) + r"\n?\Z",))
