"""Two policies on the same tasks: the interval of their difference, and what so many tasks could have shown.

`trainers.stats.paired_test` says whether they differ.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist, fmean

import numpy as np
from scipy import stats as scipy_stats

from trainers.stats import Interval, Outcomes, effective_n, shared_tasks, task_differences, wilson

POWER = 0.8
"""How often a test must find a difference that it is said to be able to show."""


def difference_interval(first: Outcomes, second: Outcomes) -> Interval | None:
    """95 % interval of the difference of two pass rates, second minus first, over the tasks that both have.

    Newcombe's (1998) method 10: the Wilson intervals of both rates, squared and added, with the correlation of the
    tasks' rates. It has a width where all tasks agree and where there are few. Rates are means over tasks, as the
    paired tests compare them; attempts at one task count for what they are worth (`effective_n`).

    Returns:
        The interval; `None` without a common task.
    """
    common = shared_tasks(first, second)
    if not common:
        return None
    arms = [{task: arm[task] for task in common} for arm in (first, second)]
    rates = [np.array([fmean(map(float, passes)) for passes in arm.values()]) for arm in arms]
    (p, lower_p, upper_p), (q, lower_q, upper_q) = (
        _ends(float(rate.mean()), effective_n(arm)) for rate, arm in zip(rates, arms, strict=True)
    )
    spreads = [float(rate.std()) for rate in rates]
    together = float(((rates[0] - p) * (rates[1] - q)).mean())
    if together > 0:  # an estimate of a positive correlation leans high
        together = max(0.0, together - 0.5 / len(common))
    phi = together / (spreads[0] * spreads[1]) if min(spreads) > 0 else 0.0
    down = _joined(q - lower_q, upper_p - p, phi)
    up = _joined(upper_q - q, p - lower_p, phi)
    return Interval(max(-1.0, q - p - down), min(1.0, q - p + up))


def _ends(rate: float, n: float) -> tuple[float, float, float]:
    interval = wilson(min(rate * n, n), n)
    return rate, interval.low, interval.high


def _joined(a: float, b: float, phi: float) -> float:
    return math.sqrt(max(0.0, a * a - 2 * phi * a * b + b * b))


def mcnemar_power(n: int, better: float, worse: float, *, alpha: float = 0.05) -> float:
    """Probability that the exact McNemar test gives p < `alpha` and the larger of the two as the larger.

    Args:
        n: Tasks, one attempt each in both arms.
        better: Probability that a task passes in the second arm alone.
        worse: That it passes in the first alone.
        alpha: Level of the test.

    Raises:
        ValueError: The probabilities are none.
    """
    differ = better + worse
    if min(better, worse) < 0 or differ > 1 + 1e-12:
        raise ValueError(f"mcnemar_power: better={better} and worse={worse} must be probabilities of separate events")
    if not n or not differ:
        return 0.0
    differing = np.arange(n + 1)
    found = scipy_stats.binom.cdf(_most(n, alpha), differing, min(better, worse) / differ)
    return float((scipy_stats.binom.pmf(differing, n, min(1.0, differ)) * found).sum())


@lru_cache(maxsize=64)
def _most(n: int, alpha: float) -> np.ndarray:
    """For 0 to n tasks that differ: how many may be of the rarer kind, so that p is below `alpha`; -1 for no number."""
    most: np.ndarray = scipy_stats.binom.ppf(alpha / 2, np.arange(n + 1), 0.5) - 1
    return most


def smallest_difference(first: Outcomes, second: Outcomes, *, alpha: float = 0.05) -> float | None:
    """The smallest true difference of two pass rates that these tasks would have shown, at a power of 0.8.

    It goes by how often tasks differ in these arms: with one attempt a task exactly for the McNemar test, with several
    by the normal approximation of the sign-flip test.

    Args:
        first: Passes by task.
        second: Those of the other arm.
        alpha: Level of the test.

    Returns:
        A difference in (0, 1]; `None` where no difference would have been shown.
    """
    deltas = task_differences(first, second)
    n, square = len(deltas), fmean(d * d for d in deltas) if deltas else 0.0
    single = all(len(arm[task]) == 1 for arm in (first, second) for task in shared_tasks(first, second))
    if square and not single:
        normal = NormalDist()
        return min(1.0, (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(POWER)) * math.sqrt(square / n))

    def power(difference: float) -> float:
        differ = max(square, difference)
        return mcnemar_power(n, (differ + difference) / 2, (differ - difference) / 2, alpha=alpha)

    if power(1.0) < POWER:
        return None
    low, high = 0.0, 1.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle) >= POWER else (middle, high)
    return high
