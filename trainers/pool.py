"""The pool as TRL's dataset."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from datasets import Dataset

from tasks.task import Task
from trainers.config import GiGPOConfig


def prompt_of(task: Task) -> list[dict[str, str]]:
    """The task as TRL shows it; what the policy reads comes from the environment."""
    return [{"role": "user", "content": task.intent}]


def pool_dataset(tasks: Sequence[Task], args: GiGPOConfig) -> Dataset:
    """Tasks as TRL's dataset: as many rows as one step needs at least, and every optimizer step of an epoch whole.

    TRL drops a part batch of the pool, and transformers ends an epoch with whatever passes are left: an optimizer step
    of fewer than `gradient_accumulation_steps`. Where a generation is no whole number of steps, the first tasks of the
    pool are therefore drawn once more in an epoch, until it is one.
    """
    groups = max(1, args.generation_batch_size // max(1, args.num_generations))
    rows = [{"prompt": prompt_of(task), "task_id": task.id} for task in tasks]
    passes = max(1, (args.steps_per_generation or 1) * args.num_iterations)
    generations = args.gradient_accumulation_steps // gcd(args.gradient_accumulation_steps, passes)
    if generations == 1:
        return Dataset.from_list(rows * -(-groups // len(rows)))
    needed = generations * groups
    count = -(-len(rows) // needed) * needed
    return Dataset.from_list([rows[i % len(rows)] for i in range(count)])
