"""The pool as TRL's dataset."""

from __future__ import annotations

from collections.abc import Sequence

from datasets import Dataset

from tasks.task import Task
from trainers.config import GiGPOConfig


def pool_dataset(tasks: Sequence[Task], args: GiGPOConfig) -> Dataset:
    """Tasks as TRL's dataset, repeated where there are fewer than one step needs (TRL drops a part batch)."""
    groups = max(1, args.generation_batch_size // max(1, args.num_generations))
    rows = [{"prompt": [{"role": "user", "content": task.intent}], "task_id": task.id} for task in tasks]
    copies = -(-groups // len(rows))
    return Dataset.from_list(rows * copies)
