"""Single tests and intervals: pass rates, means over seeds, power. Pure functions; every random one is seeded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist, fmean
from typing import Any

import numpy as np
from scipy import integrate, optimize, special
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


@dataclass(frozen=True, slots=True)
class MeanTest:
    """A t-test of the difference of two means.

    Attributes:
        difference: Mean of the second sample minus mean of the first (paired: mean of the differences).
        t: The statistic; `nan` where the values have no spread, so that t is not defined.
        df: Degrees of freedom, a fraction for Welch.
        p_value: Two-sided; 1.0 where all values are equal, `nan` where t is not defined though the means differ.
        interval: Of the difference, at the level that was asked for; of no width where t is not defined.
    """

    difference: float
    t: float
    df: float
    p_value: float
    interval: Interval


@dataclass(frozen=True, slots=True)
class EffectSize:
    """Cohen's d: the difference of two means in pooled standard deviations (`spread`).

    Attributes:
        d: Second minus first; 0.0 for equal means, `nan` where no value has spread though the means differ.
        spread: Pooled sample standard deviation, in the unit of the values.
        interval: Of d, from the noncentral t distribution; ends are `nan` where d is.
    """

    d: float
    spread: float
    interval: Interval


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


def shared_tasks(first: Outcomes, second: Outcomes) -> list[str]:
    """Tasks that both arms have a graded attempt of."""
    return [task for task in first if first[task] and second.get(task)]


def task_differences(first: Outcomes, second: Outcomes) -> list[float]:
    """Second minus first pass rate of each task that both arms have a graded attempt of."""
    common = shared_tasks(first, second)
    return [fmean(map(float, second[task])) - fmean(map(float, first[task])) for task in common]


def paired_test(first: Outcomes, second: Outcomes, *, seed: int = 0) -> PairedTest:
    """Compare two arms task by task: exact McNemar for one attempt a task, else sign flips of per-task means."""
    common = shared_tasks(first, second)
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
    draws = (rng.integers(0, x.size, size=(resamples, x.size)) for x in (a, b))
    of_a, of_b = (x[draw].mean(axis=1) for x, draw in zip((a, b), draws, strict=True))
    deltas = of_b - of_a
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


def rate_power(rate_a: float, rate_b: float, n: int, *, alpha: float = 0.05) -> float:
    """Probability that Fisher's test of two rates with `n` independent attempts per arm gives p < `alpha`.

    Normal approximation with the continuity correction of Fleiss, Tytun and Ury (1980); `tasks_needed` is without one,
    so the power at its answer is somewhat below the power that was asked for.
    """
    effect = abs(rate_a - rate_b)
    if effect == 0 or n == 0:
        return 0.0 if n == 0 else alpha
    root = math.sqrt(n) - 1 / (effect * math.sqrt(n))
    pooled, normal = (rate_a + rate_b) / 2, NormalDist()
    threshold = normal.inv_cdf(1 - alpha / 2) * math.sqrt(2 * pooled * (1 - pooled))
    spread = math.sqrt(rate_a * (1 - rate_a) + rate_b * (1 - rate_b))
    return normal.cdf((effect * root - threshold) / spread) if spread else float(effect * root > threshold)


def rate_difference(passed_a: int, n_a: int, passed_b: int, n_b: int, *, level: float = 0.95) -> Interval:
    """Wald's interval of rate b minus rate a, for large counts of independent attempts.

    It has no width where both rates are 0 or 1: show `wilson` of each rate beside it.

    Raises:
        ValueError: An arm is empty.
    """
    if not n_a or not n_b:
        raise ValueError(f"rate_difference: an arm is empty (n_a={n_a}, n_b={n_b})")
    a, b = passed_a / n_a, passed_b / n_b
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(a * (1 - a) / n_a + b * (1 - b) / n_b)
    return Interval(b - a - half, b - a + half)


# -- Means over seeds: one value per training run ---------------------------------------------------------------------


def paired_t(first: Sequence[float], second: Sequence[float], *, level: float = 0.95) -> MeanTest:
    """Student's paired t-test: value i of both samples is of the same seed.

    Raises:
        ValueError: The samples differ in length, or have fewer than 2 values.
    """
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(f"paired_t: needs two samples of one length, 2 or more; got {len(first)} and {len(second)}")
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if _is_flat(b - a, a, b):
        return _undefined(float((b - a).mean()), a.size - 1.0, np.concatenate([a, b]))
    return _mean_test(float((b - a).mean()), scipy_stats.ttest_rel(b, a), level)


def welch(first: Sequence[float], second: Sequence[float], *, level: float = 0.95) -> MeanTest:
    """Welch's t-test of two independent samples, whose variances may differ.

    Raises:
        ValueError: A sample has fewer than 2 values.
    """
    if min(len(first), len(second)) < 2:
        raise ValueError(f"welch: needs 2 or more values a sample; got {len(first)} and {len(second)}")
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    difference = float(b.mean() - a.mean())
    if _is_flat(a, a, b) and _is_flat(b, a, b):
        return _undefined(difference, a.size + b.size - 2.0, np.concatenate([a, b]))
    return _mean_test(difference, scipy_stats.ttest_ind(b, a, equal_var=False), level)


def _is_flat(values: np.ndarray, *scale: np.ndarray) -> bool:
    """Values that differ by rounding only; `scale` are those they were computed from."""
    return bool(np.ptp(values) <= 1e-12 * max(float(np.abs(x).max()) for x in scale))


def _undefined(difference: float, df: float, values: np.ndarray) -> MeanTest:
    equal = abs(difference) <= 1e-12 * float(np.abs(values).max())
    difference = 0.0 if equal else difference
    return MeanTest(difference, math.nan, df, 1.0 if equal else math.nan, Interval(difference, difference))


def _mean_test(difference: float, result: Any, level: float) -> MeanTest:
    ends = result.confidence_interval(level)
    interval = Interval(float(ends.low), float(ends.high))
    return MeanTest(difference, float(result.statistic), float(result.df), float(result.pvalue), interval)


def cohens_d(first: Sequence[float], second: Sequence[float], *, level: float = 0.95) -> EffectSize:
    """Cohen's d of two samples, with the interval of independent ones (also for pairs, where it is a wide one).

    Raises:
        ValueError: A sample is empty, or both have one value.
    """
    n_a, n_b = len(first), len(second)
    if not n_a or not n_b or n_a + n_b < 3:
        raise ValueError(f"cohens_d: needs 3 or more values in two samples; got {n_a} and {n_b}")
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    df, difference = n_a + n_b - 2, float(b.mean() - a.mean())
    if _is_flat(a, a, b) and _is_flat(b, a, b):
        d = 0.0 if _undefined(difference, df, np.concatenate([a, b])).difference == 0 else math.nan
        return EffectSize(d, 0.0, Interval(d, d))
    spread = math.sqrt((((a - a.mean()) ** 2).sum() + ((b - b.mean()) ** 2).sum()) / df)
    d, to_t = difference / spread, math.sqrt(n_a * n_b / (n_a + n_b))
    reach = 10 * (1 + abs(d * to_t) / math.sqrt(2 * df))  # ten standard errors of t, and more

    def end(probability: float) -> float:
        def off(centre: float) -> float:
            return _noncentral_t(d * to_t, df, centre) - probability

        return float(optimize.brentq(off, d * to_t - reach, d * to_t + reach)) / to_t

    return EffectSize(d, spread, Interval(end((1 + level) / 2), end((1 - level) / 2)))


def _noncentral_t(t: float, df: float, centre: float) -> float:
    """P(T <= t) of the noncentral t distribution. `scipy.stats.nct` is `nan` for some centres that are tried here.

    T = (Z + centre) / sqrt(U / df): the mean of P(Z <= t sqrt(u / df) - centre) over equally likely values u of U.
    """
    return float(special.ndtr(t * _chi(df) - centre).mean())


@lru_cache(maxsize=64)
def _chi(df: float) -> np.ndarray:
    """2000 equally likely values of sqrt(U / df)."""
    u: np.ndarray = scipy_stats.chi2.ppf((np.arange(2000) + 0.5) / 2000, df)
    return np.sqrt(u / df)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p-values, in the order given: below alpha for any true null with probability alpha."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, (len(p_values) - rank) * p_values[i])
        adjusted[i] = min(1.0, largest)
    return adjusted


def values_needed(effect: float, spread: float, *, alpha: float = 0.05, power: float = 0.8) -> int | None:
    """Independent values per arm at which a z-test sees a difference of means `effect`; `None` for none.

    For many values (steps, episodes); of few (seeds), `seeds_needed` is exact. `spread` is their standard deviation.
    """
    if effect == 0:
        return None
    z = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    return max(1, math.ceil(2 * (z * spread / effect) ** 2))


def mean_power(d: float, n: int, *, paired: bool, alpha: float = 0.05) -> float:
    """Probability that a two-sided t-test gives p < `alpha`.

    Args:
        d: True difference in standard deviations: of the differences if `paired`, else of the values.
        n: Pairs, or values per arm; below 2 there is no test, and the power is 0.
        paired: The paired test, or the one of two samples with equal variances.
        alpha: Level of the test.
    """
    if n < 2:
        return 0.0
    df, centre = (n - 1, d * math.sqrt(n)) if paired else (2 * n - 2, d * math.sqrt(n / 2))
    limit = float(scipy_stats.t.isf(alpha / 2, df))
    return 1.0 - _noncentral_t(limit, df, centre) + _noncentral_t(-limit, df, centre)


def seeds_needed(d: float, *, paired: bool, alpha: float = 0.05, power: float = 0.8, most: int = 10_000) -> int | None:
    """Fewest pairs (or seeds per arm) at which `mean_power` reaches `power`; `None` if `most` do not suffice."""
    if mean_power(d, most, paired=paired, alpha=alpha) < power:
        return None
    low, high = 1, most  # power grows with n
    while high - low > 1:
        middle = (low + high) // 2
        enough = mean_power(d, middle, paired=paired, alpha=alpha) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def area_under_curve(steps: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Area under a learning curve (trapezoids), and the same divided by the span of the steps: a mean value.

    Both are 0.0 with fewer than 2 points, as in the reference.

    Raises:
        ValueError: Steps and values differ in number, or steps do not grow.
    """
    if len(steps) != len(values) or any(b <= a for a, b in zip(steps, steps[1:], strict=False)):
        raise ValueError(f"area_under_curve: needs growing steps, one for each value; got {steps} for {len(values)}")
    if len(steps) < 2:
        return 0.0, 0.0
    area = float(integrate.trapezoid(np.asarray(values, dtype=np.float64), np.asarray(steps, dtype=np.float64)))
    return area, area / (steps[-1] - steps[0])
