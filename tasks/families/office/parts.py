"""What an office family makes, and short constructors for its assertions and for commands with here-documents."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from shlex import quote
from typing import Any

from tasks.assertions.compose import AllOf
from tasks.assertions.contents import DirExists, FileCount, FileEquals, FileMode
from tasks.assertions.files import FileContains, FileMatches, FileNotExists, FileUnchanged
from tasks.assertions.kinds import Assertion
from tasks.assertions.tables import CsvRows
from tasks.families.office.pools import persona
from tasks.task import Budget, Difficulty, Oracle, Task
from tasks.workspace import Workspace

LEVELS = {1: Difficulty.EASY, 2: Difficulty.MEDIUM, 3: Difficulty.HARD}
"""Level of a draw: 1 is the plain case, each further level adds size and a pitfall."""

MAX_TURNS = 12
"""Turns an episode may take: some to look around, the oracle's, and the stop."""


@dataclass(frozen=True, slots=True)
class Draft:
    """One task as plain parts.

    Attributes:
        intent: What the agent is asked; says where everything lies and goes.
        files: Path to text, or to the keys of a `FileSpec`.
        assertions: What must hold at the end.
        commands: The oracle, in single lines.
        alternative: Another way to do it, with a here-document.
        roles: Who may ask; empty for anybody.
    """

    intent: str
    files: dict[str, Any]
    assertions: Sequence[Assertion]
    commands: Sequence[str]
    alternative: Sequence[str]
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OfficeFamily:
    """A family of everyday work.

    Attributes:
        name: How sources, ids and reports call it.
        summary: What must be done, in a few words.
        draw: Makes a draft of a level from 1 to 3; takes all its randomness from the generator given.
    """

    name: str
    summary: str
    draw: Callable[[Random, int], Draft]

    def make(self, rng: Random) -> Task:
        """Draw one task of any level; its id is the family's name and the start of its content hash."""
        level = rng.randint(1, 3)
        draft = self.draw(rng, level)
        task = Task(
            id=self.name,
            intent=draft.intent,
            persona=persona(rng, draft.roles),
            tags=("generated", "office"),
            difficulty=LEVELS[level],
            family=self.name,
            workspace=Workspace.model_validate({"files": draft.files}),
            budget=Budget(max_turns=MAX_TURNS),
            assertions=tuple(draft.assertions),
            oracle=Oracle(commands=tuple(draft.commands), alternatives=(tuple(draft.alternative),)),
        )
        return task.model_copy(update={"id": f"{self.name}-{task.content_hash[:8]}"})


def equals(path: str, text: str) -> Assertion:
    """The file holds the text; blanks at line ends and empty lines at the end do not matter."""
    return FileEquals(path=path, equals=text, loose=True)


def csv_table(path: str, text: str) -> Assertion:
    """The file is this CSV table, whatever its line ends and quotes; the order of rows counts."""
    return CsvRows(path=path, equals=text)


def lines_like(path: str, *patterns: str, weight: float = 1.0) -> Assertion:
    """The file's lines match the regular expressions, one each, in order; blank lines at the end do not matter."""
    return FileMatches(path=path, pattern=r"\A" + r"[ \t\r]*\n".join(patterns) + r"\s*\Z", weight=weight)


def contains(path: str, *texts: str) -> Assertion:
    """The file holds each of `texts`."""
    return FileContains(path=path, contains=texts)


def gone(path: str) -> Assertion:
    """Nothing stands at `path`."""
    return FileNotExists(path=path)


def kept(*paths: str) -> list[Assertion]:
    """What stands at each path is as it was at the start: one assertion, or none without paths.

    Together they are one, so that many files which nobody touches do not raise the rate of doing nothing.
    """
    one_by_one = tuple(FileUnchanged(path=path) for path in paths)
    return [AllOf(of=one_by_one, name="the rest is unchanged")] if len(one_by_one) > 1 else list(one_by_one)


def folder(path: str) -> Assertion:
    """A folder stands at `path`."""
    return DirExists(path=path)


def count(glob: str, number: int) -> Assertion:
    """So many files match the glob."""
    return FileCount(glob=glob, equals=number)


def mode(path: str, bits: str) -> Assertion:
    """The permission bits are these."""
    return FileMode(path=path, mode=bits)


def moved(pairs: Iterable[tuple[str, str]], files: dict[str, Any]) -> list[Assertion]:
    """Each file stands, as it was, at its new path."""
    return [equals(new, files[old]) for old, new in pairs]


def write(path: str, text: str) -> str:
    """Command that writes a file out of a here-document."""
    parent = posixpath.dirname(path)
    make = f"mkdir -p {quote(parent)} && " if parent else ""
    return f"{make}cat > {quote(path)} <<'EOF'\n{text.removesuffix(chr(10))}\nEOF"


def move_each(pairs: Iterable[tuple[str, str]], how: str = "mv") -> str:
    """Command that moves (or copies) files along a list in a here-document."""
    lines = "\n".join(f"{old}|{new}" for old, new in pairs)
    loop = f'while IFS="|" read -r old new; do mkdir -p "$(dirname "$new")" && {how} "$old" "$new"; done'
    return f"{loop} <<'EOF'\n{lines}\nEOF"


def per_line(command: str, lines: Iterable[str]) -> str:
    """Command that runs another one for each line of a here-document, with the line as `$x`."""
    return f"while read -r x; do {command}; done <<'EOF'\n" + "\n".join(lines) + "\nEOF"


def rows(*lines: Iterable[object]) -> str:
    """Write lines of cells as a CSV file."""
    return "".join(",".join(map(str, line)) + "\n" for line in lines)


def json_text(value: object) -> str:
    """Write a value as a JSON file."""
    return json.dumps(value, indent=2) + "\n"


def python(code: str) -> str:
    """Command that runs a line of Python, which holds no single quotes."""
    return f"python3 -c '{code}'"


def python_lines(code: str) -> str:
    """Command that runs some lines of Python out of a here-document."""
    return f"python3 - <<'EOF'\n{code}\nEOF"
