"""Pool and held-out of a run, from its settings: loaded, made disjoint, hashed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.sources import load_tasks
from tasks.splits import disjoint, split_tasks
from tasks.task import Task
from trainers.config import EnvArguments
from trainers.refusals import ConfigError

FEW = 20
"""Held-out tasks below which the interval of a pass rate spans more than forty points."""


@dataclass(frozen=True, slots=True)
class TaskSets:
    """Tasks of a run.

    Attributes:
        pool: Trained on.
        held_out: Only measured on; none of them is in the pool, by id or by content.
        notes: What people should know (tasks moved, nothing held out).
    """

    pool: tuple[Task, ...]
    held_out: tuple[Task, ...]
    notes: tuple[str, ...]

    @property
    def lock(self) -> dict[str, object]:
        """Ids and content hashes, and one hash over all of them: `tasks.lock` of the run folder."""
        pool = {task.id: task.content_hash for task in self.pool}
        held_out = {task.id: task.content_hash for task in self.held_out}
        text = json.dumps([sorted(pool.items()), sorted(held_out.items())])
        return {"pool": pool, "held_out": held_out, "hash": hashlib.sha256(text.encode()).hexdigest()}


def load_task_sets(env: EnvArguments, seed: int) -> TaskSets:
    """Load and split the tasks of a run.

    Raises:
        tasks.problems.TaskError: A task file is wrong (all of them are named).
        ConfigError: Nothing to train on.
    """
    everything = load_tasks(env.tasks)
    notes: list[str] = []
    if env.held_out == "none":
        pool: Sequence[Task] = everything
        held_out: Sequence[Task] = ()
        notes.append("held_out=none: nothing is measured, so nothing selects a checkpoint; the last one is kept.")
    elif env.held_out == "split":
        if len(everything) < 2:
            pool, held_out = everything, ()
            notes.append(
                f"{env.tasks} holds one task, which cannot be split: nothing is held out, so nothing selects a "
                "checkpoint and the last one is kept. Add a second task, or name others with --held_out."
            )
        else:
            parts = split_tasks(everything, held_out_fraction=env.held_out_fraction, seed=seed)
            pool, held_out = parts.pool, parts.held_out
    else:
        pool = everything
        loaded = load_tasks(env.held_out)
        held_out = disjoint(pool, loaded)
        if dropped := len(loaded) - len(held_out):
            notes.append(f"{dropped} held-out tasks are also in the pool and were left out.")
    if env.held_out_limit:
        held_out = held_out[: env.held_out_limit]
    if 0 < len(held_out) < FEW:
        notes.append(
            f"held-out tasks: {len(held_out)}, too few to choose a checkpoint well (look at the interval). {FEW} or "
            "more say something; name some with --held_out."
        )
    if not pool:
        raise ConfigError(f"tasks={env.tasks}: no task to train on")
    if env.held_out not in ("none", "split") and not held_out:
        raise ConfigError(f"held_out={env.held_out}: every task of it is in the pool; name other tasks or another seed")
    return TaskSets(tuple(pool), tuple(held_out), tuple(notes))
