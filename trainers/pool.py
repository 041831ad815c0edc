"""The pool as TRL's dataset."""

from __future__ import annotations

from collections.abc import Sequence

from datasets import Dataset

from tasks.task import Task
from trainers.config import GiGPOConfig


def prompt_of(task: Task) -> list[dict[str, str]]:
    """The task as TRL shows it; what the policy reads comes from the environment."""
    return [{"role": "user", "content": task.intent}]


def pool_dataset(tasks: Sequence[Task], args: GiGPOConfig) -> Dataset:
    """Tasks as TRL's dataset, repeated where there are fewer than one step needs (TRL drops a part batch)."""
    groups = max(1, args.generation_batch_size // max(1, args.num_generations))
    rows = [{"prompt": prompt_of(task), "task_id": task.id} for task in tasks]
    copies = -(-groups // len(rows))
    return Dataset.from_list(rows * copies)
