"""Optimizer, learning-rate schedule and lines of metrics, judged before a model loads.

Refused is what transformers would fail at only then, and what would do something else than what it says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from transformers import get_scheduler

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adafactor", "adagrad", "rmsprop", "sgd")
"""Those of torch and transformers. The others need other packages, hold other weights while they are measured (schedule
free), or step within the backward pass (LOMO, layerwise)."""
TAKE_ARGS = ("adagrad", "rmsprop", "sgd")
"""Of them, those that read `optim_args`."""
_BY_LOSS = ("reduce_lr_on_plateau", "greedy")
_WITHOUT_KWARGS = ("constant", "constant_with_warmup")


def plain(value: Any) -> str:
    """A setting that may be an enum of transformers, as it is written."""
    return str(getattr(value, "value", value))


def schedule_problems(c: Any) -> Iterator[str]:
    """One line per setting that cannot work, or would do nothing."""
    if (optim := plain(c.optim)) not in OPTIMIZERS:
        yield (
            f"optim={optim}: an optimizer of another package (such as bitsandbytes or torchao), untested here. Use "
            f"adamw_torch (with LoRA its states are small), or one of {', '.join(OPTIMIZERS[1:])}."
        )
    elif c.optim_args and optim not in TAKE_ARGS:
        yield (
            f"optim_args={c.optim_args!r}: does nothing with optim {optim}, only with {', '.join(TAKE_ARGS)}. Leave it "
            "out."
        )
    yield from _schedule(c)
    yield from _logging(c)


def _schedule(c: Any) -> Iterator[str]:
    name = plain(c.lr_scheduler_type)
    if name in _BY_LOSS:
        yield f"lr_scheduler_type={name}: it follows the loss of an evaluation, held-out tasks have none. Use linear."
        return
    if c.lr_scheduler_kwargs and name in _WITHOUT_KWARGS:
        yield f"lr_scheduler_kwargs={c.lr_scheduler_kwargs}: does nothing with lr_scheduler_type {name}. Leave it out."
        return
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


def _logging(c: Any) -> Iterator[str]:
    """Guards, console, steps.csv and the report read what is logged."""
    strategy, every = plain(c.logging_strategy), c.logging_steps
    if strategy != "steps":
        yield f"logging_strategy={strategy}: guards and the report read the lines of the steps. Use steps."
    elif not 0 < every < math.inf:
        yield f"logging_steps={every:g}: a whole number of steps, or a share of max_steps below 1."
    elif every > c.max_steps > 0:
        yield (
            f"logging_steps={every:g}: none of the {c.max_steps} steps would be logged, and guards would hear nothing. "
            "Use a lower number."
        )


def logging_note(c: Any) -> Iterator[str]:
    """What a line for several steps means for the guards."""
    every = c.logging_steps if c.logging_steps >= 1 else math.ceil(c.max_steps * c.logging_steps)
    if every > 1:
        yield (
            f"logging_steps={c.logging_steps:g}: guards hear the mean of {every:.0f} steps at a time, so they speak "
            f"later, and 3 steps in what they say of metrics are {3 * every:.0f}"
        )
