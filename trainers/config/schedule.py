"""Optimizer, learning-rate schedule and lines of metrics, judged before a model loads.

Refused is what transformers would fail at only then, and what would do something else than what it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import get_scheduler

from tasks.settings import plain
from trainers.config.inherited import WITHOUT_KWARGS

_BY_LOSS = ("reduce_lr_on_plateau", "greedy")


def schedule_problems(c: Any) -> Iterator[str]:
    """One line per setting that cannot work here, beyond the values that each takes."""
    name = plain(c.lr_scheduler_type)
    if name in _BY_LOSS:
        yield f"lr_scheduler_type={name}: it follows the loss of an evaluation, held-out tasks have none. Use linear."
    elif not (c.lr_scheduler_kwargs and name in WITHOUT_KWARGS):
        yield from _unbuildable(c, name)
    every = c.logging_steps
    if every > c.max_steps > 0:
        yield (
            f"logging_steps={every:g}: none of the {c.max_steps} steps would be logged, and guards would hear nothing. "
            "Use a lower number."
        )


def _unbuildable(c: Any, name: str) -> Iterator[str]:
    """Why transformers cannot make the schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    try:
        get_scheduler(
            name,
            optimizer,
            num_warmup_steps=0,
            num_training_steps=max(1, c.max_steps),
            scheduler_specific_kwargs=c.lr_scheduler_kwargs,
        )
    except (TypeError, ValueError) as error:
        given = f" with {c.lr_scheduler_kwargs}" if c.lr_scheduler_kwargs else ""
        yield f"lr_scheduler_type={name}{given}: {error}. Its own settings stand in lr_scheduler_kwargs."


def logging_note(c: Any) -> Iterator[str]:
    """What a line for several steps means for the guards."""
    every = c.logging_steps if c.logging_steps >= 1 else math.ceil(c.max_steps * c.logging_steps)
    if every > 1:
        yield (
            f"logging_steps={c.logging_steps:g}: guards hear the mean of {every:.0f} steps at a time, so they speak "
            f"later, and 3 steps in what they say of metrics are {3 * every:.0f}"
        )
