"""What `python -m tasks split` does: choose what is held out, show it, and lock it in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tasks.cli import table
from tasks.description import HAND_WRITTEN
from tasks.problems import TaskError, counted
from tasks.sources import load_tasks
from tasks.split_lock import write_lock
from tasks.splits import Split, split_tasks, take_confirm
from tasks.twins import SHOWN, THRESHOLD, near_twins


def split(
    spec: str, *, fraction: float, seed: int, unseen: int | Sequence[str], out: Path | None, confirm: float = 0.0
) -> int:
    """Split the tasks of a source and print how many of each family are on each side.

    Raises:
        TaskError: the split makes no sense, or `out` is there and locks another one.
    """
    if not 0 <= confirm < 1:
        raise TaskError(f"confirm is {confirm:g}: a share of the tasks, 0 or more and below 1")
    tasks = load_tasks(spec)
    made = split_tasks(tasks, held_out_fraction=fraction, seed=seed, unseen_families=unseen)
    made = take_confirm(made, round(confirm * len(tasks)), seed)
    print(summary(made))
    if twins := near_twins_across(made):
        print("\n".join(twins))
    if out is None:
        print("nothing was written: --out FILE locks this split")
        return 0
    more = {"confirm": confirm} if confirm else {}
    write_lock(made, out, {"tasks": spec, "fraction": fraction, "seed": seed, "unseen": unseen, **more})
    print(f"locked in {out}")
    return 0


def summary(split: Split) -> str:
    """Return the number of tasks on each side, by family, as a table, and the hash of the split."""
    sides = list(split.sides)
    counts = {side: Counter(task.family or HAND_WRITTEN for task in tasks) for side, tasks in split.sides.items()}
    families = sorted(set().union(*counts.values()))
    rows = [["family", *sides]]
    rows += [[family, *(str(counts[side][family]) for side in sides)] for family in families]
    rows.append(["all", *(str(counts[side].total()) for side in sides)])
    total = sum(counts[side].total() for side in sides)
    return f"{table(rows)}\n{counted(total, 'task')}, chosen by {split.choice}, hash {split.hash[:12]}"


def near_twins_across(split: Split) -> list[str]:
    """Return lines on near-twins that stand on different sides, for people: how many, and the most alike."""
    side_of = {task.id: side for side, tasks in split.sides.items() for task in tasks}
    everything = [task for tasks in split.sides.values() for task in tasks]
    pairs = [pair for pair in near_twins(everything) if side_of[pair.one.id] != side_of[pair.other.id]]
    if not pairs:
        return []
    head = f"note: {counted(len(pairs), 'pair')} of near-twins across sides (similarity {THRESHOLD:g} or more)"
    lines = [f"{head}: `split:` in their files can put them on one side"]
    for pair in pairs[:SHOWN]:
        one, other = (f"{task.id} ({side_of[task.id]})" for task in (pair.one, pair.other))
        lines.append(f"  {one} and {other}: {pair.similarity:.2f}")
    return lines + ([f"  and {len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else [])
