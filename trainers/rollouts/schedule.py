"""How sampling and optimizer steps interleave, and how stale a sample can get by it."""

from __future__ import annotations

from dataclasses import dataclass


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
