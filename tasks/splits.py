"""Tasks to train on and tasks to measure on, with nothing in common."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from tasks.problems import TaskError
from tasks.task import SplitName, Task


@dataclass(frozen=True)
class Split:
    """Two lists of tasks that share no id and no problem.

    Attributes:
        pool: Tasks trained on.
        held_out: Tasks only measured on.
    """

    pool: tuple[Task, ...]
    held_out: tuple[Task, ...]

    def __post_init__(self) -> None:
        """Refuse overlap.

        Raises:
            TaskError: a task stands on both sides, by id or by content.
        """
        known = _Known(self.pool)
        shared = [task.id for task in self.held_out if known.holds(task)]
        if shared:
            raise TaskError(f"{len(shared)} held-out tasks are also in the pool: {', '.join(shared[:5])}")

    @cached_property
    def hash(self) -> str:
        """SHA-256 (hex) of both lists of ids and contents; the order within a side does not count."""
        text = json.dumps(self.lock(), sort_keys=True)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def lock(self) -> dict[str, dict[str, str]]:
        """Return id -> content hash of each side, JSON-able: what a run keeps to prove what it used."""
        return {
            "pool": {task.id: task.content_hash for task in self.pool},
            "held_out": {task.id: task.content_hash for task in self.held_out},
        }


def split_tasks(tasks: Sequence[Task], *, held_out_fraction: float = 0.2, seed: int = 0) -> Split:
    """Split tasks by a seeded draw; each family (and the hand-written tasks) is split in about the same proportion.

    Tasks with the same problem go to the same side together. A task whose file says `split:` goes where it says, and
    takes its twins along. The draw is by content, not by position: the order of `tasks` does not matter.

    Args:
        tasks: Tasks with unique ids.
        held_out_fraction: Share of the undecided tasks to hold out, in [0, 1]. Strictly between, and with at least
            two such tasks, neither side gets none.
        seed: Any integer, 0 included.

    Raises:
        TaskError: a fraction outside [0, 1], two tasks with one id, or twins that ask for different sides.
    """
    if not 0 <= held_out_fraction <= 1:
        raise TaskError(f"held_out_fraction is {held_out_fraction}: it must lie between 0 and 1")
    twins: dict[str, list[Task]] = {}
    ids: set[str] = set()
    for task in tasks:
        if task.id in ids:
            raise TaskError(f"two tasks have the id '{task.id}'")
        ids.add(task.id)
        twins.setdefault(task.problem_hash, []).append(task)
    held_out: set[str] = set()
    undecided: dict[str, list[str]] = {}
    for problem, group in twins.items():
        wanted = {task.split for task in group if task.split is not None}
        if len(wanted) > 1:
            names = " and ".join(task.id for task in group)
            raise TaskError(f"{names} are the same task, but ask for different sides of the split")
        if not wanted:
            undecided.setdefault(group[0].family or "", []).append(problem)
        elif wanted == {SplitName.HELD_OUT}:
            held_out.add(problem)
    for family, share in _shares({name: len(group) for name, group in undecided.items()}, held_out_fraction).items():
        order = sorted(undecided[family])
        Random(f"split:{seed}:{family}").shuffle(order)
        held_out.update(order[:share])
    return Split(
        pool=_select(tasks, lambda task: task.problem_hash not in held_out),
        held_out=_select(tasks, lambda task: task.problem_hash in held_out),
    )


def disjoint(pool: Sequence[Task], held_out: Sequence[Task]) -> tuple[Task, ...]:
    """Return the tasks of `held_out` that are not in `pool`, neither by id nor by content."""
    known = _Known(pool)
    return _select(held_out, lambda task: not known.holds(task))


class _Known:
    """Ids and problems of some tasks."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.ids = {task.id for task in tasks}
        self.problems = {task.problem_hash for task in tasks}

    def holds(self, task: Task) -> bool:
        return task.id in self.ids or task.problem_hash in self.problems


def _select(tasks: Sequence[Task], wanted: Callable[[Task], bool]) -> tuple[Task, ...]:
    return tuple(task for task in tasks if wanted(task))


def _shares(sizes: Mapping[str, int], fraction: float) -> dict[str, int]:
    """Return how many to hold out of each family: whole numbers whose sum is the rounded total (largest remainder)."""
    everything = sum(sizes.values())
    total = round(fraction * everything)
    if 0 < fraction < 1 and everything > 1:
        total = min(max(total, 1), everything - 1)
    shares = {family: int(fraction * size) for family, size in sizes.items()}
    by_remainder = sorted(sizes, key=lambda family: (shares[family] - fraction * sizes[family], -sizes[family], family))
    for family in by_remainder:
        if sum(shares.values()) < total and shares[family] < sizes[family]:
            shares[family] += 1
    return dict(sorted(shares.items()))
