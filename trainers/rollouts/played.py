"""What goes into a draw and what comes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.rollout import RolloutResult
from agents.trajectory import Flat, Trajectory


@dataclass(frozen=True, slots=True)
class Draw:
    """The rows of this process of one generation batch.

    Attributes:
        task_ids: One per row; the K rows of a task are side by side, and may continue on the next process.
        offset: Place of the first row among the rows of all processes.
        micro_step: Micro-steps taken before, the same on every process: part of every seed.
        version: Optimizer steps taken before: the weights that sample.
    """

    task_ids: Sequence[str]
    offset: int
    micro_step: int
    version: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes of one draw, in the order of its rows.

    Attributes:
        episodes: One per row. Its task is the row's, unless a curriculum or a refill put another one there.
        flats: The same as completions; one that does not count has an empty mask.
        result: All that was played, for records and for where the time went.
        metrics: Figures of the rules that chose, by name.
        measured: The first K attempts at the tasks that were drawn first, for pass rates: what was played beyond them
            depends on how they ended. Equal to `result` where no rule plays more.
        version: Optimizer steps behind the weights that sampled.
    """

    episodes: list[Trajectory]
    flats: list[Flat]
    result: RolloutResult
    metrics: dict[str, float]
    measured: RolloutResult
    version: int = 0
