"""Settings of the optimizer that are said anew when a run resumes: they hold, not those in the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.optim.lr_scheduler import LambdaLR

SETTINGS = {
    "initial_lr": "learning_rate",
    "betas": "adam_beta1, adam_beta2",
    "eps": "adam_epsilon",
    "weight_decay": "weight_decay",
}
"""What of a group of an optimizer is a setting, which its saved state would bring back."""
FIELDS = frozenset(name for names in SETTINGS.values() for name in names.split(", "))
"""The same by the names of the settings."""


def apply_settings(optimizer: Any, scheduler: Any, asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Put the settings of a run into an optimizer and a scheduler whose states were loaded.

    Where they are those of the state nothing changes, to the last bit.

    Args:
        optimizer: Of torch, or accelerate's around one.
        scheduler: The same; its learning rates follow where it is a `LambdaLR`, as all schedules of transformers but
            those that look at a metric.
        asked: The groups of the optimizer as they were made, before the state was loaded.

    Returns:
        What is another now, for people.
    """
    scheduler = getattr(scheduler, "scheduler", scheduler)
    changed: dict[str, None] = {}
    for group, made in zip(optimizer.param_groups, asked, strict=True):
        for key, name in SETTINGS.items():
            if key in made and key in group and made[key] != group[key]:
                changed[f"{name} is {made[key]}, was {group[key]}"] = None
                group[key] = made[key]
    if isinstance(scheduler, LambdaLR):
        scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        factors = [schedule(scheduler.last_epoch) for schedule in scheduler.lr_lambdas]
        rates = [base * factor for base, factor in zip(scheduler.base_lrs, factors, strict=True)]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if group["lr"] != rate:
                changed[f"the next step is taken at {rate:.3g}, not at {group['lr']:.3g}"] = None
                group["lr"] = rate
        scheduler._last_lr = rates
    return list(changed)
