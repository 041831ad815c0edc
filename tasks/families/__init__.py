"""Procedural families: a seed becomes a task with its oracle; the same arguments give the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

from tasks.assertions.files import FileContains, FileExists, FileMatches, FileNotExists, FileUnchanged
from tasks.families.office import OFFICE, OfficeFamily
from tasks.families.office.parts import named_by_content
from tasks.families.quickstart import (
    EDITS_FAMILIES,
    TWO_STEPS_FAMILIES,
    VIEWS_FAMILIES,
    WHOLE_FILES_FAMILIES,
    Check,
    Family,
    TaskParts,
)
from tasks.families.turns import SMALL_TURNS, TURNS, TurnFamily
from tasks.model import TaskError, unknown_key
from tasks.task import Assertion, Budget, Difficulty, Oracle, Task
from tasks.workspace import Workspace

# -- From a family, a number and a seed to tasks: the same arguments give the same bytes ------------------------------

FAMILIES: dict[str, Family] = {
    family.name: family for family in (*WHOLE_FILES_FAMILIES, *EDITS_FAMILIES, *VIEWS_FAMILIES, *TWO_STEPS_FAMILIES)
}
"""Every quickstart family by name: tiny tasks that a small policy can learn."""

MIX = "quickstart"
"""Name of the mix of the quickstart families, the one that the shipped policy knows."""

OFFICE_MIX = "office"
"""Name of the mix of the office families."""

ALL = "all"
"""Name of the mix of the quickstart and the office families: a script can do each of their tasks in one reply."""

TURNS_MIX = "turns"
"""Name of the mix of the families whose tasks need turns."""

SMALL_TURNS_MIX = "quickstart_turns"
"""Name of the mix of those that need turns and are in the words of the quickstart policy."""

ALL_FAMILIES: dict[str, Family | OfficeFamily | TurnFamily] = {**FAMILIES, **OFFICE, **TURNS, **SMALL_TURNS}
"""Every procedural family by name."""

MIXES: dict[str, tuple[Family | OfficeFamily | TurnFamily, ...]] = {
    MIX: (*FAMILIES.values(),),
    OFFICE_MIX: (*OFFICE.values(),),
    TURNS_MIX: (*TURNS.values(),),
    SMALL_TURNS_MIX: (*SMALL_TURNS.values(),),
    ALL: (*FAMILIES.values(), *OFFICE.values()),
}
"""Every mix by name, with its families."""

NAMES = (*MIXES, *ALL_FAMILIES)
"""All that `generate` takes."""

MAX_TURNS = 6
"""Turns an episode of a generated task may take; the longest oracle needs two and the stop."""

_PATIENCE = 1000
"""Draws in a row that may repeat an earlier task before a family counts as exhausted."""


def stream(family: str, rng: Random) -> Iterator[tuple[Family, TaskParts]]:
    """Yield tasks of a quickstart family (or of their mix) without end, as parts, repeats included.

    The mix walks through all families in blocks, each block in a new random order, so that any stretch of it is
    balanced.

    Raises:
        TaskError: no such family.
    """
    if family == MIX:
        block = list(FAMILIES.values())
    elif family in FAMILIES:
        block = [FAMILIES[family]]
    else:
        raise TaskError(unknown_key(family, (MIX, *FAMILIES), "family"))
    while True:
        rng.shuffle(block)
        for member in block:
            yield member, member.make(rng)


def generate(family: str, n: int, seed: int = 0) -> list[Task]:
    """Make `n` different tasks of a family (or of a mix); fewer are always the beginning of more.

    Args:
        family: A key of `ALL_FAMILIES`, or a mix: `quickstart`, `office`, `turns` or `all`.
        n: How many tasks; no two have the same problem or the same id.
        seed: Any integer; another seed gives other tasks.

    Raises:
        TaskError: no such family, a negative number, or more tasks than the family can make.
    """
    if n < 0:
        raise TaskError(f"generated:{family}: n is {n}, but a number of tasks cannot be negative")
    return list(islice(_distinct(family, seed, n), n))


def source(family: str, seed: int) -> Random:
    """Return the generator that the tasks of `generated:<family>?seed=..` are drawn from."""
    return Random(f"{family}:{seed}")


def build(family: Family, parts: TaskParts) -> Task:
    """Make the task out of its parts; its id is the family's name and the start of its content hash."""
    draft = Task(
        id=family.name,
        intent=parts.intent,
        tags=("generated",),
        difficulty=Difficulty.EASY if len(parts.commands) == 1 else Difficulty.MEDIUM,
        family=family.name,
        workspace=Workspace.model_validate({"files": parts.files}),
        budget=Budget(max_turns=MAX_TURNS),
        assertions=tuple(_assertion(check) for check in parts.checks),
        oracle=Oracle(commands=parts.commands),
    )
    return named_by_content(draft)


def _distinct(family: str, seed: int, n: int) -> Iterator[Task]:
    problems: set[str] = set()
    ids: set[str] = set()
    repeats = 0
    for task in _draws(family, source(family, seed)):
        if task.problem_hash in problems or task.id in ids:
            repeats += 1
            if repeats >= _PATIENCE:
                raise TaskError(f"generated:{family}: made {len(ids)} of {n} tasks, then only repeats: ask for fewer")
            continue
        repeats = 0
        problems.add(task.problem_hash)
        ids.add(task.id)
        yield task


def _draws(family: str, rng: Random) -> Iterator[Task]:
    """Yield tasks of any family or mix without end, repeats included; mixes in blocks, as `stream` has them."""
    if family not in NAMES:
        raise TaskError(unknown_key(family, NAMES, "family"))
    if family == MIX or family in FAMILIES:
        yield from (build(member, parts) for member, parts in stream(family, rng))
        return
    block = [*MIXES.get(family, ())] or [ALL_FAMILIES[family]]
    while True:
        rng.shuffle(block)
        for member in block:
            yield build(member, member.make(rng)) if isinstance(member, Family) else member.make(rng)


def _assertion(check: Check) -> Assertion:
    match check.kind:
        case "file_exists":
            return FileExists(path=check.path)
        case "file_not_exists":
            return FileNotExists(path=check.path)
        case "file_contains":
            return FileContains(path=check.path, contains=check.wanted)
        case "file_matches":
            return FileMatches(path=check.path, pattern=check.wanted[0])
        case "file_unchanged":
            return FileUnchanged(path=check.path)


__all__ = [
    "ALL",
    "ALL_FAMILIES",
    "FAMILIES",
    "Family",
    "MAX_TURNS",
    "MIX",
    "MIXES",
    "NAMES",
    "OFFICE",
    "OFFICE_MIX",
    "OfficeFamily",
    "SMALL_TURNS",
    "SMALL_TURNS_MIX",
    "TURNS",
    "TURNS_MIX",
    "TaskParts",
    "TurnFamily",
    "build",
    "generate",
    "source",
    "stream",
]
