"""A split as a file: ids and content hashes of each side, so that what was held out can be proven later.

A lock is as trustworthy as its file: its hash finds accidents, but whoever can write the file can write the hash too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.atomic_file import atomic_file
from tasks.problems import Problem, TaskError, counted
from tasks.splits import Choice, Split
from tasks.task import Task

VERSION = 1
SUFFIX = ".lock"
"""How names of lock files end."""
SIDES = ("pool", "held_out", "unseen", "confirm")
"""Names of the sides in a lock file."""
MAY_LACK = ("unseen", "confirm")
"""Those that may be absent."""
ANEW = "python -m tasks split SPEC --out ANOTHER.lock"
"""How a split is locked beside one that no longer fits."""
SHOWN_TWINS = 5
"""Pairs of exact twins that are named one by one."""


def write_lock(split: Split, path: Path, made_from: Mapping[str, Any] | None = None) -> None:
    """Write the lock file of a split. One that says the same is left alone.

    Args:
        split: What to lock.
        path: The file; its folder is made.
        made_from: What to note beside it for people, such as the seed; it is not compared.

    Raises:
        TaskError: the file is there and says something else, or it cannot be written.
    """
    if path.exists():
        verify_lock(split, path)
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(json.dumps(lock_record(split, made_from), indent=1, ensure_ascii=False) + "\n")
    except OSError as error:
        raise TaskError(Problem(f"cannot be written: {error.strerror or error}", str(path))) from error


def lock_record(split: Split, made_from: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a lock file holds, JSON-able."""
    sides = split.lock()
    return {
        "schema_version": VERSION,
        "choice": split.choice.value,
        **({"made_from": dict(made_from)} if made_from else {}),
        "hash": _digest(split.choice.value, sides),
        **{side: dict(sorted(entries.items())) for side, entries in sides.items()},
    }


def verify_lock(split: Split, path: Path) -> None:
    """Compare a split with its lock file.

    Raises:
        TaskError: the file is damaged, or the split is another one; every difference is listed.
    """
    choice, locked = _read(path)
    sides = split.lock()
    now = {name: side for side, entries in sides.items() for name in entries}
    problems: list[Problem] = []
    for side in SIDES:
        for name, what in _differences(locked.get(side, {}), sides.get(side, {})):
            before = next((other for other in SIDES if name in locked.get(other, {})), None)
            if name in now and before is not None and now[name] != before:
                if side == before:
                    moved = f"{name} is locked here, but stands in {now[name]} now"
                    problems.append(Problem(f"{moved}: apply the lock, or lock anew: {ANEW}", str(path), key=side))
            else:
                problems.append(Problem(f"{name} {what}", str(path), key=side))
    if choice is not split.choice:
        problems.append(Problem(f"is '{choice}', but the split was chosen by {split.choice}", str(path), key="choice"))
    if problems:
        raise TaskError(*_short(problems, path))


def apply_lock(tasks: Sequence[Task], path: Path, *, allow_outcome: bool = False) -> Split:
    """Split tasks as the lock file says.

    Args:
        tasks: Must hold every task that is locked; others are left out.
        path: The lock file. It is taken at its word: exact twins stay on the sides it names (see `parted_twins`).
        allow_outcome: Take a split that was chosen by outcome.

    Raises:
        TaskError: the file is damaged; a task is missing or its content has changed; or the split was chosen by outcome
            and that is not allowed.
    """
    choice, locked = _read(path)
    if choice is Choice.OUTCOME and not allow_outcome:
        raise TaskError(
            Problem(
                "this split was chosen by outcome: say allow_outcome=True if that is meant", str(path), key="choice"
            )
        )
    here = {task.id: task for task in tasks}
    present = {name: task.content_hash for name, task in here.items()}
    problems = [
        Problem(f"{name} {what}", str(path), key=side)
        for side, entries in locked.items()
        for name, what in _differences(entries, {name: present[name] for name in entries if name in present})
    ]
    if problems:
        raise TaskError(*_short(problems, path))
    chosen = {side: tuple(here[name] for name in entries) for side, entries in locked.items()}
    return Split(chosen["pool"], chosen["held_out"], chosen.get("unseen", ()), choice, chosen.get("confirm", ()))


def locked_sides(path: Path) -> tuple[str, ...]:
    """Return the names of the sides that a lock file has.

    Raises:
        TaskError: the file is damaged.
    """
    return tuple(_read(path)[1])


def parted_twins(split: Split, path: Path) -> tuple[Problem, ...]:
    """Return the exact twins on different sides of a split that was locked, with what to do: warnings, not errors.

    The sides of a lock stay as they are, so that what was measured with it can be measured again.
    """
    pairs = split.twins_across()
    shown = [
        Problem(
            f"{other.id} is the exact twin of {one.id} in {first}: its figure measures memory. The sides stay as they "
            f"are locked; leave one of them out of the tasks of the next split, or draw a new one ({ANEW})",
            str(path),
            key=second,
        )
        for (first, one), (second, other) in pairs
    ]
    return tuple(_short(shown, path, limit=SHOWN_TWINS, what="more pair"))


def _differences(locked: dict[str, str], present: dict[str, str]) -> list[tuple[str, str]]:
    gone = f"is locked, but not among the tasks: bring it back, or lock them anew: {ANEW}"
    more = f"is among the tasks, but not locked: leave it out, or lock them anew: {ANEW}"
    found = [(name, gone) for name in locked if name not in present]
    found += [(name, more) for name in present if name not in locked]
    for name, content in locked.items():
        if (now := present.get(name, content)) != content:
            change = f"has changed: {content[:12]} is locked, {now[:12]} is found"
            found.append((name, f"{change}: undo the change, or lock the tasks anew: {ANEW}"))
    return found


def _short(problems: list[Problem], path: Path, limit: int = 20, what: str = "more difference") -> list[Problem]:
    if len(problems) <= limit:
        return problems
    return [*problems[:limit], Problem(f"and {counted(len(problems) - limit, what)}", str(path))]


def _read(path: Path) -> tuple[Choice, dict[str, dict[str, str]]]:
    def refuse(message: str, key: str = "") -> TaskError:
        return TaskError(Problem(message, str(path), key=key))

    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise refuse(f"is no lock file: {error}") from error
    if not isinstance(record, dict) or record.get("schema_version") != VERSION:
        raise refuse(f"is no lock file of a split: it must say {VERSION}", "schema_version")
    sides: dict[str, dict[str, str]] = {}
    for side in SIDES:
        entries = record.get(side)
        if entries is None and side in MAY_LACK:
            continue
        if not isinstance(entries, dict) or not all(isinstance(value, str) for value in entries.values()):
            raise refuse("must map ids to content hashes", side)
        sides[side] = entries
    if record.get("choice") not in list(Choice):
        raise refuse(f"must be one of {', '.join(Choice)}", "choice")
    choice = Choice(record["choice"])
    if record.get("hash") != _digest(choice.value, sides):
        raise refuse("does not fit the rest of the file: it was edited by hand, or cut off", "hash")
    return choice, sides


def _digest(choice: str, sides: dict[str, dict[str, str]]) -> str:
    return hashlib.sha256(json.dumps([choice, sides], sort_keys=True).encode("utf-8")).hexdigest()
