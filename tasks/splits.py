"""Tasks to train on and tasks to measure on, with nothing in common, and the lock file that proves it later."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any

from tasks.model import Problem, TaskError, atomic_file, counted, unknown_key
from tasks.task import SplitName, Task

# -- Tasks to train on and tasks to measure on, with nothing in common ------------------------------------------------


class Choice(StrEnum):
    """How it was decided which tasks are held out."""

    SEED = "seed"
    """By a seeded draw over contents (and by what files say under `split:`), before anything was measured."""
    OUTCOME = "outcome"
    """By how an agent did on them. The sides then differ by design, and a gap between them says nothing."""


@dataclass(frozen=True)
class Split:
    """Lists of tasks that share no id and no problem; those that `split_tasks` draws share no meaning either.

    Attributes:
        pool: Tasks trained on.
        held_out: Tasks only measured on, of families that are also trained on.
        unseen: Tasks only measured on, of families that are never trained on; empty unless asked for.
        choice: How it was decided.
        confirm: Tasks that nothing is trained or chosen on: what training chose is measured on them once, at its end;
            empty unless asked for.
        sets: Further tasks only measured on, each list a set of its own, by its name.
    """

    pool: tuple[Task, ...]
    held_out: tuple[Task, ...]
    unseen: tuple[Task, ...] = ()
    choice: Choice = Choice.SEED
    confirm: tuple[Task, ...] = ()
    sets: Mapping[str, tuple[Task, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse overlap.

        Raises:
            TaskError: a task stands on two sides, by id or by content, or an unseen family is trained on.
        """
        known = _Known(self.pool)
        sides = (("held-out", self.held_out), ("unseen", self.unseen), ("confirmation", self.confirm))
        for side, tasks in (*sides, *((f"held-out ({name})", tasks) for name, tasks in self.sets.items())):
            shared = [task.id for task in tasks if known.holds(task)]
            if shared:
                raise TaskError(f"{len(shared)} {side} tasks are also in the pool: {', '.join(shared[:5])}")
        twice = [task.id for task in self.unseen if _Known(self.held_out).holds(task)] if self.unseen else []
        if twice:
            raise TaskError(f"{len(twice)} unseen tasks are also held out: {', '.join(twice[:5])}")
        measured = [*self.held_out, *self.unseen]
        for name, tasks in self.sets.items():
            twice = [task.id for task in tasks if _Known(measured).holds(task)]
            if twice:
                raise TaskError(f"{len(twice)} tasks of {name} are also held out elsewhere: {', '.join(twice[:5])}")
            measured += tasks
        chosen = _Known(measured) if self.confirm else None
        used = [task.id for task in self.confirm if chosen and chosen.holds(task)]
        if used:
            raise TaskError(f"{len(used)} confirmation tasks are also held out: {', '.join(used[:5])}")
        seen = {task.family for task in self.pool if task.family is not None}
        trained = sorted({task.family for task in self.unseen if task.family is not None} & seen)
        if trained:
            raise TaskError(f"families that should be unseen are in the pool: {', '.join(trained)}")

    @property
    def sides(self) -> dict[str, tuple[Task, ...]]:
        """The lists by name; `unseen` and `confirm` only where there is one, further sets as `held_out:NAME`."""
        more = {name: tasks for name, tasks in (("unseen", self.unseen), ("confirm", self.confirm)) if tasks}
        sets = {SET + name: tasks for name, tasks in self.sets.items()}
        return {"pool": self.pool, "held_out": self.held_out, **more, **sets}

    def twins_across(self) -> list[tuple[tuple[str, Task], tuple[str, Task]]]:
        """Return the exact twins on different sides, one pair of side and task per meaning.

        Only lock files and lists that were made otherwise hold any: the rule of version 0.6 and before let a task stand
        opposite a copy of it with another persona, name, weight, order of assertions, letter case or blank.
        """
        first: dict[str, tuple[str, Task]] = {}
        found: dict[str, tuple[tuple[str, Task], tuple[str, Task]]] = {}
        for side, tasks in self.sides.items():
            for task in tasks:
                before = first.setdefault(task.meaning_hash, (side, task))
                if before[0] != side:
                    found.setdefault(task.meaning_hash, (before, (side, task)))
        return list(found.values())

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of the lists of ids and contents; the order within a side does not count."""
        text = json.dumps(self.lock(), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def lock(self) -> dict[str, dict[str, str]]:
        """Return id -> content hash of each side, JSON-able: what a run keeps to prove what it used."""
        return {side: {task.id: task.content_hash for task in tasks} for side, tasks in self.sides.items()}


Sameness = Callable[[Task], str]
"""What two tasks that must stand on one side have in common."""


def meaning(task: Task) -> str:
    """Exact twins are the same: see `tasks.task.Meaning`."""
    return task.meaning_hash


def problem(task: Task) -> str:
    """The rule of version 0.6 and before, with which runs of then resume: any other word makes another task."""
    return task.problem_hash


def split_tasks(
    tasks: Sequence[Task],
    *,
    held_out_fraction: float = 0.2,
    seed: int = 0,
    unseen_families: int | Sequence[str] = 0,
    same: Sameness = meaning,
) -> Split:
    """Split tasks by a seeded draw; each family (and the hand-written tasks) is split in about the same proportion.

    Exact twins go to the same side together. A task whose file says `split:` goes where it says, and takes its twins
    along. The draw is by content, not by position: the order of `tasks` does not matter.

    Args:
        tasks: Tasks with unique ids.
        held_out_fraction: Share of the undecided tasks to hold out, in [0, 1]. Strictly between, and with at least
            two such tasks, neither side gets none.
        seed: Any integer, 0 included.
        unseen_families: Whole families that are only measured on: their names, or how many to draw. They are `unseen`
            of the result; the fraction then applies to the rest.
        same: What makes twins.

    Raises:
        TaskError: a fraction outside [0, 1], two tasks with one id, twins that ask for different sides, a family that
            is not there, or no family left to train on.
    """
    if not 0 <= held_out_fraction <= 1:
        raise TaskError(f"held_out_fraction is {held_out_fraction}: it must lie between 0 and 1")
    _refuse_double_ids(tasks)
    left_out = _unseen(tasks, unseen_families, seed)
    unseen = _select(tasks, lambda task: task.family in left_out)
    hidden = {same(task) for task in unseen}
    rest = [task for task in tasks if task.family not in left_out]
    stray = [task.id for task in rest if same(task) in hidden]
    if stray:
        raise TaskError(f"{', '.join(stray[:5])}: the same task stands in a family that should stay unseen")
    twins: dict[str, list[Task]] = {}
    for task in rest:
        twins.setdefault(same(task), []).append(task)
    held_out: set[str] = set()
    undecided: dict[str, list[tuple[str, str]]] = {}
    for shared, group in twins.items():
        wanted = {task.split for task in group if task.split is not None}
        if len(wanted) > 1:
            names = " and ".join(task.id for task in group)
            raise TaskError(f"{names} are the same task, but ask for different sides of the split")
        if not wanted:
            # Drawn by the least problem hash among twins: where there are none, the draw is that of every version.
            drawn_by, family = min((task.problem_hash, task.family or "") for task in group)
            undecided.setdefault(family, []).append((drawn_by, shared))
        elif wanted == {SplitName.HELD_OUT}:
            held_out.add(shared)
    for family, share in _shares(
        {name: len(group) for name, group in undecided.items()}, held_out_fraction, seed
    ).items():
        order = sorted(undecided[family])
        Random(f"split:{seed}:{family}").shuffle(order)
        held_out.update(shared for _, shared in order[:share])
    return Split(
        pool=_select(rest, lambda task: same(task) not in held_out),
        held_out=_select(rest, lambda task: same(task) in held_out),
        unseen=unseen,
    )


def take_confirm(split: Split, wanted: int, seed: int = 0, same: Sameness = meaning) -> Split:
    """Move tasks of the pool to a side of their own, by a seeded draw like that of `split_tasks`.

    The sides that are measured stay as they are. Exact twins move together, and a task whose file says `split:` stays.

    Args:
        split: What was drawn or locked before.
        wanted: How many tasks to move; about so many are moved, where twins do not fit exactly.
        seed: Any integer; with that of the split the draw is another one.
        same: What makes twins.

    Raises:
        TaskError: a number that leaves no pool, or the split has such a side already.
    """
    if split.confirm:
        raise TaskError("the split has tasks for a confirmation already")
    if not 0 <= wanted < max(1, len(split.pool)):
        raise TaskError(f"{wanted} tasks for the confirmation leave nothing of a pool of {len(split.pool)}")
    if not wanted:
        return split
    free = sum(task.split is None for task in split.pool)
    if not free:
        return split
    drawn = split_tasks(
        split.pool,
        held_out_fraction=min(wanted / free, 1.0),
        seed=Random(f"confirm:{seed}").getrandbits(62),
        same=same,
    )
    return replace(split, pool=drawn.pool, confirm=drawn.held_out)


def split_by_outcome(tasks: Sequence[Task], hold_out: Callable[[Task], bool], *, allow_outcome: bool = False) -> Split:
    """Split tasks by a rule that looks at results, such as "the base policy never solved it".

    The sides of such a split are not exchangeable: held-out tasks that were chosen for being hard stay behind the pool
    whatever is learned, and the gap is no overfitting. So it is refused unless asked for by name.

    Args:
        tasks: Tasks with unique ids.
        hold_out: Whether to hold a task out.
        allow_outcome: Says that this is meant. The split, and its lock file, carry `choice: outcome`.

    Raises:
        TaskError: not allowed, two tasks with one id, or twins on both sides.
    """
    if not allow_outcome:
        raise TaskError(
            "a split chosen by outcome is refused: its sides differ by design, so a gap between them is no sign of "
            "overfitting. Use split_tasks(seed=...), or say allow_outcome=True if this is meant"
        )
    _refuse_double_ids(tasks)
    chosen = {task.id for task in tasks if hold_out(task)}
    split = Split(
        pool=_select(tasks, lambda task: task.id not in chosen),
        held_out=_select(tasks, lambda task: task.id in chosen),
        choice=Choice.OUTCOME,
    )
    if pairs := [f"{one.id} and {other.id}" for (_, one), (_, other) in split.twins_across()]:
        raise TaskError(f"the rule parts {counted(len(pairs), 'pair')} of exact twins: {', '.join(pairs[:5])}")
    return split


def disjoint(pool: Sequence[Task], held_out: Sequence[Task], same: Sameness = meaning) -> tuple[Task, ...]:
    """Return the tasks of `held_out` that are not in `pool`, neither by id nor as the twin of another."""
    known = _Known(pool, same)
    return _select(held_out, lambda task: not known.holds(task))


class _Known:
    """Ids of some tasks, and what makes their twins."""

    def __init__(self, tasks: Sequence[Task], same: Sameness = problem) -> None:
        self._same = same
        self._ids = {task.id for task in tasks}
        self._kept = {same(task) for task in tasks}

    def holds(self, task: Task) -> bool:
        return task.id in self._ids or self._same(task) in self._kept


def _refuse_double_ids(tasks: Sequence[Task]) -> None:
    counts = Counter(task.id for task in tasks)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise TaskError(f"two tasks have the id '{twice[0]}'")


def _unseen(tasks: Sequence[Task], wanted: int | Sequence[str], seed: int) -> frozenset[str]:
    """Return the families to leave out of training: those named, or so many drawn by the seed."""
    families = sorted({task.family for task in tasks if task.family is not None})
    if isinstance(wanted, str):
        wanted = [wanted]
    if not families and (not isinstance(wanted, int) or wanted > 0):
        raise TaskError("no family can stay unseen: the tasks have none (only generated tasks do); leave unseen out")
    if not isinstance(wanted, int):
        for name in wanted:
            if name not in families:
                raise TaskError(unknown_key(name, families, "family"))
        chosen = frozenset(wanted)
    elif wanted < 0:
        raise TaskError(f"unseen_families is {wanted}: a number of families cannot be negative")
    else:
        if wanted > len(families):
            raise TaskError(f"unseen_families is {wanted}, but the tasks have {len(families)} families")
        chosen = frozenset(Random(f"unseen:{seed}").sample(families, wanted))
    if chosen and all(task.family in chosen for task in tasks):
        raise TaskError("every family would be unseen: nothing is left to train on")
    return chosen


def _select(tasks: Sequence[Task], wanted: Callable[[Task], bool]) -> tuple[Task, ...]:
    return tuple(task for task in tasks if wanted(task))


def _shares(sizes: Mapping[str, int], fraction: float, seed: int) -> dict[str, int]:
    """Return how many to hold out of each family: whole numbers whose sum is the rounded total (largest remainder).

    Families with equal claims are drawn: by name, the first of the alphabet would always be held out.
    """
    everything = sum(sizes.values())
    total = round(fraction * everything)
    if 0 < fraction < 1 and everything > 1:
        total = min(max(total, 1), everything - 1)
    shares = {family: int(fraction * size) for family, size in sizes.items()}
    drawn = sorted(sizes)
    Random(f"shares:{seed}").shuffle(drawn)
    by_remainder = sorted(drawn, key=lambda family: (shares[family] - fraction * sizes[family], -sizes[family]))
    for family in by_remainder:
        if sum(shares.values()) < total and shares[family] < sizes[family]:
            shares[family] += 1
    return dict(sorted(shares.items()))


# -- A split as a file: ids and content hashes of each side, so that what was held out can be proven later ------------
# A lock is as trustworthy as its file: its hash finds accidents, but whoever can write the file can write the hash
# too.

VERSION = 1
SUFFIX = ".lock"
"""How names of lock files end."""
SIDES = ("pool", "held_out", "unseen", "confirm")
"""Names of the sides in a lock file."""
MAY_LACK = ("unseen", "confirm")
"""Those that may be absent."""
SET = "held_out:"
"""Begins the sides that are further sets: `held_out:NAME`."""
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
    for side in dict.fromkeys((*SIDES, *locked, *sides)):
        for name, what in _differences(locked.get(side, {}), sides.get(side, {})):
            before = next((other for other in locked if name in locked[other]), None)
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
    sets = {side.removeprefix(SET): found for side, found in chosen.items() if side.startswith(SET)}
    return Split(chosen["pool"], chosen["held_out"], chosen.get("unseen", ()), choice, chosen.get("confirm", ()), sets)


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
    for side in (*SIDES, *(key for key in record if key.startswith(SET))):
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
