"""Which tasks the end of a run is measured on: tasks that nothing was trained and nothing was chosen on.

Generated tasks: fresh ones of the pool's families, from a seed of their own, and no twins of the run's other tasks.
Other tasks: a third side of the split, drawn out of the pool, so that what is held out stays as it was without it. A
lock is taken at its word: its `confirm` side, or none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.seeds import derive_seed
from tasks.problems import TaskError, counted
from tasks.sources import specs
from tasks.sources.generated import GENERATED, read_generated
from tasks.split_lock import ANEW, SUFFIX
from tasks.splits import Sameness, Split, disjoint, meaning, take_confirm
from tasks.task import Task
from trainers.config import EnvArguments

LEAST = 20
"""Tasks below which nothing is confirmed: the interval of a pass rate then spans more than forty points."""
MOST = 500
"""Tasks above which a confirmation costs time and hardly says more: the interval then spans eight points or fewer."""
ROUNDS = 4
"""Times that twice as many tasks are made, where too many were twins, before a family counts as exhausted."""


def with_confirm(env: EnvArguments, split: Split, seed: int, same: Sameness = meaning) -> tuple[Split, str]:
    """Give a split its `confirm` side.

    Args:
        env: Which tasks, and how many to take.
        split: Pool and what is held out, before a limit cuts it.
        seed: Of the run.
        same: What makes twins.

    Returns:
        The split, and one line for people: which tasks they are, or why there are none (the side is then empty).
    """
    if not (split.held_out or split.unseen):
        return replace(split, confirm=()), "none: nothing is held out, so nothing is chosen that could be confirmed"
    if env.confirm == 0:
        return replace(split, confirm=()), "none: confirm=0"
    if split.confirm:
        return split, f"{counted(len(split.confirm), 'task')} of the lock's confirm side"
    parts = [str(part) for part in specs(env.tasks)]
    fresh = all(part.startswith(f"{GENERATED}:") for part in parts)
    if env.held_out.endswith(SUFFIX) and not fresh:
        return split, (
            f"none: {env.held_out} has no confirm side, and the sides of a lock stay as they are. Lock anew "
            f"({ANEW} --confirm 0.1), or measure best/ on other tasks (python -m trainers.evaluate)"
        )
    everything = len(split.pool) + len(split.held_out) + len(split.unseen)
    share = f"confirm={env.confirm:g} of {counted(everything, 'task')}"
    wanted = min(round(env.confirm * everything), MOST)
    if env.held_out_limit and env.held_out_limit < wanted:
        wanted, share = env.held_out_limit, f"held_out_limit={env.held_out_limit}"
    if wanted < LEAST:
        enough = LEAST / everything
        remedy = f"confirm={enough + 0.005:.2f}" if enough < 0.5 and not env.held_out_limit else "more tasks"
        return split, (
            f"none: {share} is {wanted}, and fewer than {LEAST} say too little ({remedy} would do). Measure best/ on "
            "other tasks (python -m trainers.evaluate)"
        )
    if fresh:
        tasks = _fresh(parts, wanted, seed, split, same)
        if len(tasks) < LEAST:
            return split, (
                f"none: {env.tasks} has no {wanted} tasks more that are no twins of the run's ({len(tasks)} were "
                f"found, and fewer than {LEAST} say too little)"
            )
        return replace(split, confirm=tasks), f"{len(tasks)} fresh tasks of the pool's families"
    if wanted >= len(split.pool):
        return split, f"none: {share} is {wanted}, and the pool has {len(split.pool)}"
    drawn = take_confirm(split, wanted, seed, same)
    if len(drawn.confirm) < LEAST:
        return split, (
            f"none: only {len(drawn.confirm)} tasks of the pool may move (`split:` in their files keeps the others), "
            f"and fewer than {LEAST} say too little"
        )
    return drawn, f"{len(drawn.confirm)} tasks taken out of the pool"


def _fresh(parts: Sequence[str], wanted: int, seed: int, split: Split, same: Sameness) -> tuple[Task, ...]:
    """Fresh tasks, from each part of the pool its share; fewer where the families have no more."""
    read = [read_generated(part.partition(":")[2]) for part in parts]
    total = sum(numbers["n"] for _, numbers in read)
    trained = {task.family for task in split.pool}
    known = [*split.pool, *split.held_out, *split.unseen]
    found: list[Task] = []
    for part, (family, numbers) in zip(parts, read, strict=True):
        share = min(-(-wanted * numbers["n"] // total), wanted - len(found))
        fresh = _of_family(family, share, derive_seed(seed, "confirm", part) % 2**31, [*known, *found], trained, same)
        found += fresh
    return tuple(found)


def _of_family(
    family: str, wanted: int, seed: int, known: Sequence[Task], trained: set[str | None], same: Sameness
) -> tuple[Task, ...]:
    from tasks.families import generate  # only here: other sources need not pay for this import

    found: tuple[Task, ...] = ()
    count = wanted
    for _ in range(ROUNDS):
        try:
            made = generate(family, count, seed)
        except TaskError:  # the family has no more: what was found before it is all
            break
        found = disjoint(known, [task for task in made if task.family in trained], same)
        if len(found) >= wanted:
            break
        count *= 2
    return found[:wanted]
