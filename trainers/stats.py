"""Statistics of pass rates: intervals, paired tests, bootstrap, pass@k. Pure functions; every random one is seeded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np
from scipy import stats as scipy_stats

Outcomes = Mapping[str, Sequence[bool]]
"""Task id to the passes of its graded attempts."""

EXACT_SIGN_FLIPS = 14
"""Up to this many unequal tasks, the sign-flip test enumerates all 2**n flips instead of drawing them."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided interval, both ends included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedTest:
    """Two arms on the same tasks.

    Attributes:
        p_value: Two-sided; 1.0 when no task differs.
        test: `exact McNemar` (one attempt a task in both arms) or `sign-flip permutation` (several).
        tasks: Tasks that both arms have a graded attempt of; only these are compared.
        better: Tasks where the second arm passes more often; `worse` where it passes less often.
        difference: Mean over tasks of second minus first pass rate; `nan` without common tasks.
        unpaired: Tasks that only one arm has.
    """

    p_value: float
    test: str
    tasks: int
    better: int
    worse: int
    difference: float
    unpaired: int


def wilson(passed: float, n: float, z: float = 1.959963984540054) -> Interval:
    """Wilson's score interval of a rate (Wilson 1927); right at 0 and 1, where the normal interval has no width.

    Args:
        passed: Successes; may be fractional when `n` is an effective sample size.
        n: Trials; 0 gives the interval [0, 1].
        z: Normal quantile; the default is the 95 % interval.

    Raises:
        ValueError: `passed` is not in [0, n].
    """
    if not 0 <= passed <= n:
        raise ValueError(f"wilson: passed={passed} must lie in [0, n={n}]")
    if n == 0:
        return Interval(0.0, 1.0)
    p = passed / n
    scale = 1 + z * z / n
    centre = (p + z * z / (2 * n)) / scale
    half = z / scale * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low = 0.0 if passed == 0 else max(0.0, centre - half)
    high = 1.0 if passed == n else min(1.0, centre + half)
    return Interval(low, high)


def effective_n(outcomes: Outcomes) -> float:
    """Independent attempts that the attempts are worth: attempts at one task are alike.

    Total attempts divided by the design effect (variance of the mean with tasks as clusters over its variance as if
    attempts were independent; Kish 1965), held between the number of tasks and the number of attempts. Where that
    effect cannot be estimated (all attempts agree, or a single task), the number of tasks.
    """
    clusters = [list(map(float, passes)) for passes in outcomes.values() if passes]
    n, m = sum(map(len, clusters)), len(clusters)
    if n == m or m < 2:
        return float(m)
    p = sum(map(sum, clusters)) / n
    if p in (0.0, 1.0):
        return float(m)
    independent = p * (1 - p) / n
    clustered = m / (m - 1) * sum((sum(c) - p * len(c)) ** 2 for c in clusters) / n**2
    return float(min(max(n * independent / clustered, m), n)) if clustered > 0 else float(n)


def pass_at_k(n: int, passed: int, k: int) -> float:
    """Probability that one of `k` of the `n` attempts passes: 1 - C(n-c, k) / C(n, k) (Chen et al. 2021, unbiased).

    Raises:
        ValueError: `k` is not in [1, n] or `passed` not in [0, n].
    """
    if not 1 <= k <= n or not 0 <= passed <= n:
        raise ValueError(f"pass@k needs 1 <= k <= n and 0 <= passed <= n, got n={n}, passed={passed}, k={k}")
    return 1.0 - math.comb(n - passed, k) / math.comb(n, k)


def mean_pass_at_k(outcomes: Outcomes, k: int) -> float | None:
    """Mean of `pass_at_k` over tasks with at least `k` graded attempts; `None` when no task has that many."""
    values = [pass_at_k(len(passes), sum(map(bool, passes)), k) for passes in outcomes.values() if len(passes) >= k]
    return fmean(values) if values else None


def mcnemar(better: int, worse: int) -> float:
    """Exact two-sided McNemar p-value: the sign test on the tasks that differ (McNemar 1947, exact form)."""
    if better + worse == 0:
        return 1.0
    return float(scipy_stats.binomtest(better, better + worse, 0.5).pvalue)


def sign_flip_test(differences: Sequence[float], *, resamples: int = 10_000, seed: int = 0) -> float:
    """Two-sided p-value of a mean paired difference under random signs.

    Exact for up to `EXACT_SIGN_FLIPS` differences that are not 0; else (extreme + 1) / (resamples + 1) over seeded
    draws.
    """
    d = np.array([x for x in differences if x != 0.0], dtype=np.float64)
    if d.size == 0:
        return 1.0
    observed = abs(d.sum()) - 1e-12
    if d.size <= EXACT_SIGN_FLIPS:
        bits = (np.arange(2**d.size)[:, None] >> np.arange(d.size)) & 1
        return float(np.mean(np.abs((2.0 * bits - 1.0) @ d) >= observed))
    signs = np.random.default_rng(seed).integers(0, 2, size=(resamples, d.size)) * 2.0 - 1.0
    return float((np.count_nonzero(np.abs(signs @ d) >= observed) + 1) / (resamples + 1))


def task_differences(first: Outcomes, second: Outcomes) -> list[float]:
    """Second minus first pass rate of each task that both arms have a graded attempt of."""
    common = [task for task in first if first[task] and second.get(task)]
    return [fmean(map(float, second[task])) - fmean(map(float, first[task])) for task in common]


def paired_test(first: Outcomes, second: Outcomes, *, seed: int = 0) -> PairedTest:
    """Compare two arms task by task: exact McNemar for one attempt a task, else sign flips of per-task means."""
    common = [task for task in first if first[task] and second.get(task)]
    every = {task for arm in (first, second) for task, passes in arm.items() if passes}
    deltas = task_differences(first, second)
    better, worse = sum(d > 0 for d in deltas), sum(d < 0 for d in deltas)
    single = all(len(arm[task]) == 1 for arm in (first, second) for task in common)
    p_value = mcnemar(better, worse) if single else sign_flip_test(deltas, seed=seed)
    return PairedTest(
        p_value=p_value,
        test="exact McNemar" if single else "sign-flip permutation",
        tasks=len(common),
        better=better,
        worse=worse,
        difference=fmean(deltas) if deltas else math.nan,
        unpaired=len(every) - len(common),
    )


def bootstrap_mean(
    clusters: Sequence[Sequence[float]], *, resamples: int = 10_000, seed: int = 0, level: float = 0.95
) -> Interval:
    """Percentile interval of the mean of all values, tasks drawn with replacement (attempts stay with their task).

    Raises:
        ValueError: There is no value.
    """
    sums = np.array([math.fsum(c) for c in clusters if len(c)], dtype=np.float64)
    counts = np.array([len(c) for c in clusters if len(c)], dtype=np.float64)
    if sums.size == 0:
        raise ValueError("bootstrap_mean: there is no value to resample")
    rng = np.random.default_rng(seed)
    means = np.empty(resamples)
    for start in range(0, resamples, 1000):  # bounded memory: 1000 draws at a time
        draw = rng.integers(0, sums.size, size=(min(1000, resamples - start), sums.size))
        means[start : start + len(draw)] = sums[draw].sum(1) / counts[draw].sum(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def bootstrap_difference(
    first: Sequence[float], second: Sequence[float], *, resamples: int = 10_000, seed: int = 0, level: float = 0.95
) -> Interval:
    """Percentile interval of mean(second) - mean(first), the two samples drawn independently."""
    if not len(first) or not len(second):
        raise ValueError("bootstrap_difference: an arm has no value")
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    rng = np.random.default_rng(seed)
    deltas = np.array([rng.choice(b, b.size).mean() - rng.choice(a, a.size).mean() for _ in range(resamples)])
    low, high = np.quantile(deltas, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def permutation_test(
    first: Sequence[float], second: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> float:
    """Two-sided p-value of a difference of means of two independent samples, labels shuffled (exact when small)."""
    result = scipy_stats.permutation_test(
        (np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        permutation_type="independent",
        vectorized=True,
        n_resamples=resamples,
        rng=np.random.default_rng(seed),
    )
    return float(result.pvalue)


def fisher_exact(passed_a: int, n_a: int, passed_b: int, n_b: int) -> float:
    """Fisher's exact two-sided p-value of two independent rates; 1.0 when an arm is empty."""
    if not n_a or not n_b:
        return 1.0
    return float(scipy_stats.fisher_exact([[passed_a, n_a - passed_a], [passed_b, n_b - passed_b]]).pvalue)


def tasks_needed(rate_a: float, rate_b: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Independent tasks per arm at which a two-sided test sees the difference of two rates; `None` for equal rates."""
    if rate_a == rate_b:
        return None
    normal = NormalDist()
    z_alpha, z_beta = normal.inv_cdf(1 - alpha / 2), normal.inv_cdf(power)
    pooled = (rate_a + rate_b) / 2
    spread = z_alpha * math.sqrt(2 * pooled * (1 - pooled)) + z_beta * math.sqrt(
        rate_a * (1 - rate_a) + rate_b * (1 - rate_b)
    )
    return math.ceil((spread / (rate_a - rate_b)) ** 2)
