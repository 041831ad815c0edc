"""Staleness: optimizer steps between the weights that sampled an episode and the weights that train on it.

With `num_iterations` or `steps_per_generation` above their defaults a batch is sampled once and trained on in several
optimizer steps, so its last part meets weights that moved on. How far follows from the schedule; a bound below that
could never be kept, and is refused before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

VERSION = "policy_version"
"""Key of the batch: optimizer steps behind the weights that sampled each row, shape (B,)."""


def fresh(version: int, step: int, bound: int) -> bool:
    """Whether weights of `step` optimizer steps may train on a sample of `version`."""
    return version >= step - bound


def drop_stale(inputs: Mapping[str, Any], step: int, bound: int) -> tuple[dict[str, Any], int]:
    """The batch with the rows masked that `bound` does not allow, and how many these are.

    A masked row adds nothing to the loss; what divides the loss still counts it, so the step gets smaller, not louder.

    Args:
        inputs: A batch with `policy_version` (B,) and `tool_mask` (B, T); it is not changed.
        step: Optimizer steps taken.
        bound: Staleness that is allowed.
    """
    stale = torch.tensor([not fresh(int(version), step, bound) for version in inputs[VERSION].tolist()])
    if not stale.any():
        return dict(inputs), 0
    mask = inputs["tool_mask"].masked_fill(stale.to(inputs["tool_mask"].device).unsqueeze(1), 0)
    return {**inputs, "tool_mask": mask}, int(stale.sum())
