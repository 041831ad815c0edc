"""What an office family makes, what it draws from, and short constructors for assertions and commands."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from shlex import quote
from typing import Any

from tasks.assertions.files import (
    DirExists,
    FileContains,
    FileCount,
    FileEquals,
    FileMatches,
    FileMode,
    FileNotExists,
    FileUnchanged,
)
from tasks.assertions.grade import AllOf
from tasks.assertions.tables import CsvRows
from tasks.task import Assertion, Budget, Difficulty, Oracle, Persona, Task
from tasks.workspace import Workspace

# -- What office families draw from: who asks, names, topics, dates ---------------------------------------------------

PERSONAS: dict[str, tuple[str, ...]] = {
    "developer": ("looks after a small product with two others", "tidies up before a release"),
    "bookkeeper": ("closes the books of a month", "prepares the papers for the tax adviser"),
    "system administrator": ("runs a handful of servers alone", "takes over from a colleague"),
    "office assistant": ("keeps the shared folder of a team in order", "covers for somebody on leave"),
    "writer": ("works on a long text with an editor", "publishes a small magazine"),
    "student": ("hands in a project on Friday", "learns to work at the command line"),
    "photographer": ("delivers to three customers this week", "sorts a year of work"),
    "shop keeper": ("runs a shop with a small stock room", "sells in a store and on the web"),
}
"""The eight who ask: role, and sentences about their situation."""

TECHNICAL = ("developer", "system administrator", "student")
"""Roles that ask for work on code, servers and permissions."""

PEOPLE: tuple[str, ...] = (
    "Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Leo", "Mira",
    "Nils", "Olga", "Pavel", "Rosa", "Sven",
)  # fmt: skip
CITIES: tuple[str, ...] = (
    "Bergen", "Cadiz", "Dublin", "Essen", "Ghent", "Graz", "Lyon", "Malmo", "Nantes", "Porto", "Riga", "Split",
    "Turin", "Vaasa", "York",
)  # fmt: skip
TOPICS: tuple[str, ...] = (
    "anchor", "basket", "bridge", "candle", "carpet", "cellar", "copper", "desert", "engine", "falcon", "garden",
    "hammer", "island", "jacket", "kettle", "ladder", "lantern", "marble", "meadow", "mirror", "needle", "orchard",
    "paddle", "pebble", "pillow", "quarry", "ribbon", "saddle", "sailor", "silver", "spring", "tunnel", "turbine",
    "valley", "velvet", "violin", "walnut", "window", "winter",
)  # fmt: skip
SERVICES: tuple[str, ...] = (
    "auth", "billing", "cache", "export", "gateway", "indexer", "mailer", "orders", "queue", "reports", "search",
    "uploads",
)  # fmt: skip
FOLDERS: tuple[str, ...] = (
    "inbox", "papers", "records", "shared", "stuff", "transfer", "desk", "material",
)  # fmt: skip


def persona(rng: Random, roles: tuple[str, ...] = ()) -> Persona:
    """Draw who asks, from `roles` or from all."""
    role = rng.choice(roles or tuple(PERSONAS))
    return Persona(role=role, context=rng.choice(PERSONAS[role]))


def say(rng: Random, *phrasings: str, **values: object) -> str:
    """Return one of several phrasings of the same request, filled in."""
    return rng.choice(phrasings).format(**values)


def topics(rng: Random, count: int) -> list[str]:
    """Return `count` different topics."""
    return rng.sample(TOPICS, count)


def dates(rng: Random, count: int, *years: int) -> list[str]:
    """Return `count` different days of the given years, as 2024-03-09, in no order."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[f"{rng.choice(years or (2024,))}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"] = None
    return list(found)


def money(rng: Random, most: int = 900) -> int:
    """Return an amount in cents."""
    return rng.randint(500, most * 100)


def cents(amount: int) -> str:
    """Write cents as 12.50."""
    return f"{amount // 100}.{amount % 100:02}"


def prose(rng: Random, lines: int = 3) -> str:
    """Return some lines of words, as a text file holds them."""
    return "".join(" ".join(rng.sample(TOPICS, 4)) + "\n" for _ in range(lines))


# -- What an office family makes, and short constructors for its assertions and for commands with here-documents ------

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
        return named_by_content(task)


def named_by_content(task: Task) -> Task:
    """Return the task with its family's name and the start of its content hash as the id."""
    return task.model_copy(update={"id": f"{task.family}-{task.content_hash[:8]}"})


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
