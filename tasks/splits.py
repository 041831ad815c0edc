"""Tasks to train on and tasks to measure on, with nothing in common."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from random import Random

from tasks.model import unknown_key
from tasks.problems import TaskError, counted
from tasks.task import SplitName, Task


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
    """

    pool: tuple[Task, ...]
    held_out: tuple[Task, ...]
    unseen: tuple[Task, ...] = ()
    choice: Choice = Choice.SEED
    confirm: tuple[Task, ...] = ()

    def __post_init__(self) -> None:
        """Refuse overlap.

        Raises:
            TaskError: a task stands on two sides, by id or by content, or an unseen family is trained on.
        """
        known = _Known(self.pool)
        for side, tasks in (("held-out", self.held_out), ("unseen", self.unseen), ("confirmation", self.confirm)):
            shared = [task.id for task in tasks if known.holds(task)]
            if shared:
                raise TaskError(f"{len(shared)} {side} tasks are also in the pool: {', '.join(shared[:5])}")
        twice = [task.id for task in self.unseen if _Known(self.held_out).holds(task)] if self.unseen else []
        if twice:
            raise TaskError(f"{len(twice)} unseen tasks are also held out: {', '.join(twice[:5])}")
        chosen = _Known((*self.held_out, *self.unseen)) if self.confirm else None
        used = [task.id for task in self.confirm if chosen and chosen.holds(task)]
        if used:
            raise TaskError(f"{len(used)} confirmation tasks are also held out: {', '.join(used[:5])}")
        seen = {task.family for task in self.pool if task.family is not None}
        trained = sorted({task.family for task in self.unseen if task.family is not None} & seen)
        if trained:
            raise TaskError(f"families that should be unseen are in the pool: {', '.join(trained)}")

    @property
    def sides(self) -> dict[str, tuple[Task, ...]]:
        """The lists by name; `unseen` and `confirm` only where there is one."""
        more = {name: tasks for name, tasks in (("unseen", self.unseen), ("confirm", self.confirm)) if tasks}
        return {"pool": self.pool, "held_out": self.held_out, **more}

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
