"""Staleness: optimizer steps between the weights that sampled an episode and the weights that train on it.

With `num_iterations` or `steps_per_generation` above their defaults a batch is sampled once and trained on in several
optimizer steps, so its last part meets weights that moved on. How far follows from the schedule; a bound below that
could never be kept, and is refused before a run starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

VERSION = "policy_version"
"""Key of the batch: optimizer steps behind the weights that sampled each row, shape (B,)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """How sampling and optimizer steps interleave.

    Attributes:
        accumulation_steps: Forward-backward passes per optimizer step.
        sync_model_every: Optimizer steps per generation.
        required_staleness: The most that any sample is behind.
    """

    accumulation_steps: int
    sync_model_every: int
    required_staleness: int


def schedule(per_step: int, per_pass: int, per_generation: int) -> Schedule:
    """The schedule of a run. All three in the same unit (episodes, or tasks).

    Args:
        per_step: Trained on by one optimizer step.
        per_pass: In one forward-backward pass.
        per_generation: Trained on between two generations, each repetition counted.

    Raises:
        ValueError: An optimizer step, or the time between generations, is no whole number of passes.
    """
    if min(per_step, per_pass, per_generation) < 1 or per_step % per_pass or per_generation % per_pass:
        raise ValueError(f"{per_step} a step and {per_generation} a generation are no multiples of {per_pass} a pass")
    accumulation, passes = per_step // per_pass, per_generation // per_pass
    # A generation may begin inside an optimizer step; the phases repeat after `accumulation` generations.
    begins = [k * passes for k in range(accumulation)]
    required = max((b + passes - 1) // accumulation - b // accumulation for b in begins)
    return Schedule(accumulation, -(-passes // accumulation), required)


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
