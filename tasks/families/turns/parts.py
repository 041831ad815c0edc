"""What a family of tasks that need turns makes: pages that reveal the next step, and the task with its oracle."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from shlex import quote
from string import Formatter
from typing import Any

from tasks.assertions.files import FileMatches
from tasks.families.office.parts import LEVELS, contains, csv_table, equals, gone, kept, named_by_content, persona
from tasks.families.turns import sealing
from tasks.task import Assertion, Budget, Oracle, Task
from tasks.workspace import Workspace

LOOKS = 6
"""Turns that the budget leaves beside the oracle's, to look around and to mend a slip."""


@dataclass(frozen=True, slots=True)
class Told:
    """What an observation says, and how the oracle reads it.

    Attributes:
        text: As the agent sees it.
        reads: Name to a regular expression with one group that finds the revealed word in the text.
        said: What the family called it, to the name in braces that stands for it in the oracle's commands.
    """

    text: str
    reads: Mapping[str, str]
    said: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        """Return what stands for a revealed word in a command."""
        return self.said[name]


def page(rng: Random, number: int, templates: Sequence[str], reveals: Mapping[str, object], **others: object) -> Told:
    """Word what a step reveals, in one of several ways.

    Args:
        rng: Chooses the template.
        number: Of the step, for names that no other step has.
        templates: Texts with `{name}` for what is revealed and for all else.
        reveals: What the oracle reads out, by name; each follows some literal text in its line.
        **others: What also stands in the text: decoys, or what the request said already.

    Raises:
        ValueError: A template from which a word cannot be read.
    """
    template = rng.choice(list(templates))
    text = template.format(**reveals, **others)
    reads = {f"{name}{number}": _around(template, name) for name in reveals}
    for name, value in reveals.items():
        found = re.search(reads[f"{name}{number}"], text)
        if found is None or found[1] != str(value):
            raise ValueError(f"'{name}' cannot be read from: {template}")
    return Told(text, reads, {name: f"{{{{{name}{number}}}}}" for name in reveals})


def _around(template: str, name: str) -> str:
    """Return the pattern that finds what stands for a name, by the rest of its line; what varies there may be anything.

    Raises:
        StopIteration: The template does not have it.
    """
    line = next(line for line in template.split("\n") if f"{{{name}}}" in line)
    pattern, seen = "", False
    for literal, field_name, _, _ in Formatter().parse(line):
        pattern += re.escape(literal).replace("\\ ", " ")
        if seen and literal:
            return pattern
        if field_name is not None:
            pattern += ".+?" if field_name != name or seen else "(.+?)"
            seen |= field_name == name
    return pattern.removesuffix("(.+?)") + "(.+)"


@dataclass(slots=True)
class Chain:
    """A task in the making: the workspace as the oracle changes it, the pages, the oracle's commands, what must hold.

    Attributes:
        program: Name of the program that reads the pages out.
        purpose: What its source says about it.
        files: Workspace at the start, path to text; `act` changes a copy of it.
        nothing: What the program prints when no page opens.
    """

    program: str
    purpose: str
    files: dict[str, str]
    nothing: str = "Nothing."
    now: dict[str, str] = field(init=False)
    pages: list[sealing.Page] = field(default_factory=list)
    commands: list[str | dict[str, Any]] = field(default_factory=list)
    checks: list[Assertion] = field(default_factory=list)
    _act: str = ""

    def __post_init__(self) -> None:
        """Start with the workspace as it is laid."""
        self.now = dict(self.files)

    def tell(self, said: Told | str, *rules: str, call: str = "", words: Sequence[str] = (), into: str = "") -> None:
        """Add the page that the program shows now; the command of the last step ends with the call that shows it.

        Args:
            said: The page; a text reveals nothing that the oracle needs.
            *rules: What opens it, as the workspace is now (see `sealing.fact`).
            call: How the oracle calls the program; by default without words.
            words: Words of the call, in plain, that open it.
            into: The file it goes to; by default it is printed.
        """
        text = said if isinstance(said, str) else said.text
        reads = {} if isinstance(said, str) else dict(said.reads)
        found = tuple(sealing.fact(rule, words, self._read) for rule in rules or ("",))
        self.pages.append(sealing.Page(rules or ("",), found, text, into))
        run = " && ".join(part for part in (self._act, call or f"./{self.program}") if part)
        if into:
            self.now[into] = text + "\n"
            run += f" && cat {quote(into)}"
        self.commands.append({"run": run, "reads": reads} if reads else run)
        self._act = ""

    def act(self, command: str, changes: Mapping[str, str | None], *checks: Assertion) -> None:
        """Do what the last page asked for.

        Args:
            command: What the oracle runs; revealed words stand in it in braces.
            changes: Paths to their new text; None: the file is gone.
            *checks: What holds from now on.
        """
        self._act = command
        for path, text in changes.items():
            self.now.pop(path, None)
            if text is not None:
                self.now[path] = text
        self.checks += checks

    def end(self) -> None:
        """Let the last step stand without a look at the program."""
        if self._act:
            self.commands.append(self._act)
            self._act = ""

    def laid(self) -> dict[str, Any]:
        """Return the workspace's files with the program among them."""
        source = sealing.program(self.purpose, self.pages, self.nothing)
        return {**self.files, self.program: {"text": source, "mode": "0755"}}

    def _read(self, path: str) -> str | None:
        if path.endswith("/"):
            inside = {name.removeprefix(path).split("/")[0] for name in self.now if name.startswith(path)}
            return "\n".join(sorted(inside))
        return self.now.get(path)


@dataclass(frozen=True, slots=True)
class Draft:
    """One task as plain parts.

    Attributes:
        intent: What the agent is asked; what it must do in detail is only revealed by observations.
        chain: Workspace, pages, oracle and assertions.
        unchanged: Files of the start that must stay as they are; the program is always one of them.
        roles: Who may ask; empty for anybody.
    """

    intent: str
    chain: Chain
    unchanged: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TurnFamily:
    """A family of tasks that need turns.

    Attributes:
        name: How sources, ids and reports call it.
        summary: What must be done, in a few words.
        reveals: What is revealed, and by which observation.
        draw: Makes a draft of a level from 1 to 3; takes all its randomness from the generator given.
    """

    name: str
    summary: str
    reveals: str
    draw: Callable[[Random, int], Draft]

    def make(self, rng: Random) -> Task:
        """Draw one task of any level; its id is the family's name and the start of its content hash."""
        level = rng.randint(1, 3)
        draft = self.draw(rng, level)
        chain = draft.chain
        chain.end()
        turns = len(chain.commands)
        task = Task(
            schema_version=2,
            id=self.name,
            intent=draft.intent,
            persona=persona(rng, draft.roles),
            tags=("generated", "turns"),
            difficulty=LEVELS[level],
            family=self.name,
            workspace=Workspace.model_validate({"files": chain.laid()}),
            budget=Budget(max_turns=turns + LOOKS),
            turns=turns,
            assertions=(*chain.checks, *kept(*draft.unchanged, chain.program)),
            oracle=Oracle.model_validate({"commands": chain.commands}),
        )
        return named_by_content(task)


# -- Short constructors that the families share -----------------------------------------------------------------------


def setting(path: str, key: str, value: object, quoted: bool = False) -> Assertion:
    """A line of the file sets the key to the value, with `=` or `:` between them."""
    text = rf"[\"']?{re.escape(str(value))}[\"']?" if quoted else re.escape(str(value))
    return FileMatches(path=path, pattern=rf"(?m)^\s*[\"']?{re.escape(key)}[\"']?\s*[=:]\s*{text}\s*,?\s*$")


def starts(path: str, *lines: str) -> Assertion:
    """The file begins with these lines; what else it holds is left to other assertions."""
    return FileMatches(path=path, pattern=r"\A" + "".join(re.escape(line) + r"[ \t\r]*(?:\n|\Z)" for line in lines))


def has_line(path: str, line: str) -> Assertion:
    """One of the file's lines is this one."""
    return FileMatches(path=path, pattern=rf"(?m)^{re.escape(line)}[ \t\r]*$")


def added(text: str, line: str) -> str:
    """Return a file's text with a line at its end."""
    return f"{text}{line}\n"


def swapped(text: str, old: str, new: str) -> str:
    """Return the text with a part that stands in it once exchanged for another.

    Raises:
        ValueError: It stands there never, or more than once.
    """
    if text.count(old) != 1:
        raise ValueError(f"{old!r} stands {text.count(old)} times in the text")
    return text.replace(old, new)


__all__ = [
    "Chain",
    "Draft",
    "Told",
    "TurnFamily",
    "added",
    "contains",
    "csv_table",
    "equals",
    "gone",
    "has_line",
    "kept",
    "page",
    "setting",
    "starts",
    "swapped",
]
