"""What runs of several seeds come to: a mean with its interval, and a learning curve with its band.

The unit is a run. Intervals are Student's t over runs: with few of them they are wide, which is what few runs say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from trainers.stats import Interval

Point = tuple[float, float]
"""A step, and a value there."""


@dataclass(frozen=True, slots=True)
class SeedMean:
    """A mean over `n` runs; `interval` is `None` for one run, which has no spread."""

    mean: float
    n: int
    interval: Interval | None


def mean_over_seeds(values: Sequence[float], *, level: float = 0.95) -> SeedMean | None:
    """The mean of one value for each run with its t interval; `None` without a run."""
    if not values:
        return None
    array = np.asarray(values, dtype=np.float64)
    mean = float(array.mean())
    if array.size == 1:
        return SeedMean(mean, 1, None)
    half = float(_half_width(array[:, None], level)[0])
    return SeedMean(mean, array.size, Interval(mean - half, mean + half))


@dataclass(frozen=True, slots=True)
class Curve:
    """A figure's mean over runs, at the steps that all of them have: as far as the shortest run goes.

    Attributes:
        steps: In order; `mean` over runs, one value a step.
        low: t interval of each mean (`high` the other end), which holds for that step alone; empty for one run.
        runs: How many there are.
        short: Names of runs that end before the longest does, for which the others are cut.
    """

    steps: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    runs: int
    short: tuple[str, ...]


def curve_over_seeds(runs: Sequence[tuple[str, Sequence[Point]]], *, level: float = 0.95) -> Curve | None:
    """The curve of one figure of one condition.

    Args:
        runs: Name and points of each run. Runs without a point are left out: they have not measured it.
        level: Of the band.

    Returns:
        `None` where no run has a point, or the runs share no step.
    """
    there = [(name, dict(points)) for name, points in runs if points]
    steps = sorted(set.intersection(*(set(points) for _, points in there))) if there else []
    if not steps:
        return None
    values = np.array([[points[step] for step in steps] for _, points in there], dtype=np.float64)
    mean = values.mean(axis=0)
    half = _half_width(values, level) if len(there) > 1 else np.zeros(0)
    band = mean[: half.size]
    longest = max(max(points) for _, points in there)
    return Curve(
        steps=tuple(steps),
        mean=tuple(mean.tolist()),
        low=tuple((band - half).tolist()),
        high=tuple((band + half).tolist()),
        runs=len(there),
        short=tuple(name for name, points in there if max(points) < longest),
    )


def _half_width(values: np.ndarray, level: float) -> np.ndarray:
    """Half of the t interval of the mean over the first axis, which has 2 entries or more."""
    n = len(values)
    return float(student.ppf((1 + level) / 2, n - 1)) * values.std(axis=0, ddof=1) / n**0.5
