"""What training runs of several seeds allow to say about two conditions.

The unit is a run: steps and episodes of one run are alike, so counting them as independent finds differences that are
not there. Results of the same seed are compared in pairs, others by Welch's test, and one claim about a condition needs
all of these:

1. enough seeds, steps and episodes (`Evidence`);
2. every figure (pass rate, and reward where all runs have one) differs in the same direction, with p < alpha after
   Holm's correction over the conditions and after the looks that were planned;
3. the same answer with the runs that did not end as planned counted in, and with them left out.

A figure of a step that was chosen by that figure is biased upwards and is never used. `trainers.stats` has the tests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, stdev

from trainers.emergence import Recommendation, Status, recommended
from trainers.run.summary import Stopped
from trainers.stats import (
    EffectSize,
    Interval,
    MeanTest,
    bootstrap_difference,
    bootstrap_mean,
    cohens_d,
    fisher_exact,
    holm,
    paired_t,
    permutation_test,
    seeds_needed,
    sign_flip_test,
    welch,
)


class Basis(StrEnum):
    """Which step of its run a figure is of."""

    PLANNED = "planned"  # a step that was fixed before the run, such as the last
    SELECTED = "selected"  # the step that this very figure chose
    FRESH = "fresh"  # a chosen step, measured again on tasks that nothing was chosen on


@dataclass(frozen=True, slots=True)
class SeedResult:
    """What one run of one condition came to.

    Attributes:
        condition: Its name; `seed` the run's.
        passed: Held-out episodes that passed, of `graded` with a grade.
        reward: Their mean reward; `None` where there is none to compare.
        steps: Training steps done, of `planned`.
        stopped: Why the run ended.
        basis: Which step the figures are of.
        run: The run's folder, for people.
    """

    condition: str
    seed: int
    passed: int
    graded: int
    reward: float | None
    steps: int
    planned: int
    stopped: Stopped = Stopped.FINISHED
    basis: Basis = Basis.PLANNED
    run: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.passed <= self.graded or not 0 <= self.steps <= self.planned:
            raise ValueError(
                f"{self}: needs 0 <= passed <= graded and 0 <= steps <= planned, got {self.passed} of {self.graded} "
                f"and {self.steps} of {self.planned}"
            )
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValueError(f"{self}: the reward {self.reward} is not a finite number; None says that there is none")

    def __str__(self) -> str:
        return self.run or f"{self.condition} seed {self.seed}"

    @property
    def pass_rate(self) -> float | None:
        """Share of the graded episodes that passed; `None` without any."""
        return self.passed / self.graded if self.graded else None

    @property
    def cut_short(self) -> str | None:
        """How a run did not end as planned (patience is a plan); `None` for one that did."""
        where = f"after {self.steps} of {self.planned} steps"
        if self.stopped is Stopped.FAILED:
            return f"failed {where}"
        if self.stopped is Stopped.GUARD:
            return f"stopped by a guard {where}"
        short = self.stopped is Stopped.FINISHED and self.steps < self.planned
        return f"truncated {where}" if short or self.stopped is Stopped.INTERRUPTED else None

    @property
    def unusable(self) -> str | None:
        """Why the figures can be in no test; `None` where they can."""
        if not self.graded:
            return "has no graded episode"
        if self.basis is Basis.SELECTED:
            return "its figures are those that chose the step; measure best/ again on fresh tasks"
        return None


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A run that a verdict's first comparisons are without, and why."""

    result: SeedResult
    reason: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a claim needs at least.

    Attributes:
        seeds: Runs a condition; `steps` of each, and `episodes` graded.
        reward: Smallest difference of mean rewards that matters; `pass_rate` the same of pass rates.
    """

    seeds: int = 3
    steps: int = 8
    episodes: int = 32
    reward: float = 0.01
    pass_rate: float = 0.005


@dataclass(frozen=True, slots=True)
class Look:
    """The n-th time that the results are tested, of the looks that were planned before the first run.

    Each planned look has an equal part of alpha, so that all together are wrong with probability alpha at most. A look
    that was not planned has none left.
    """

    number: int = 1
    planned: int = 1

    def __post_init__(self) -> None:
        if self.number < 1 or self.planned < 1:
            raise ValueError(f"looks are counted from 1, got look {self.number} of {self.planned} planned")

    def __str__(self) -> str:
        return f"this is look {self.number} of {self.planned} planned"

    def alpha(self, alpha: float) -> float:
        """The part of `alpha` that this look may spend."""
        return alpha / self.planned if self.number <= self.planned else 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of two conditions over seeds.

    Attributes:
        figure: `pass rate` or `reward`.
        paired: By seed; else Welch's test of all seeds.
        seeds_baseline: Seeds in it; equal to `seeds_candidate` where paired.
        mean_baseline: Mean over seeds; `mean_candidate` the other's.
        test: t with its df and its interval, at `level`.
        resampled_p: Random signs of the pairs, or random labels: no assumption of a normal distribution, and no p below
            2 / 2**n from n pairs.
        bootstrap: Interval of the difference, seeds drawn with replacement: too narrow with few seeds.
        effect: Cohen's d.
        p_value: Of `test`; where t is not defined (all pairs differ by the same), `resampled_p`.
        threshold: Smallest difference that matters.
        seeds_needed: Seeds a condition at which a true difference of the threshold is found with power 0.8, if seeds
            go on to differ as these do; `None` above 10,000 or where they do not differ.
        level: Of the intervals, 1 - alpha of the look / comparisons: they hold for all comparisons at once.
    """

    figure: str
    paired: bool
    seeds_baseline: tuple[int, ...]
    seeds_candidate: tuple[int, ...]
    mean_baseline: float
    mean_candidate: float
    test: MeanTest
    resampled_p: float
    bootstrap: Interval
    effect: EffectSize
    p_value: float
    threshold: float
    seeds_needed: int | None
    level: float

    def __str__(self) -> str:
        test, ends = self.test, self.test.interval
        how = f"paired by seed, {len(self.seeds_baseline)} pairs" if self.paired else "Welch"
        t = f"t = {test.t:.2f} (df {test.df:.3g}), " if math.isfinite(test.t) else ""
        return (
            f"{self.figure}: {self.mean_baseline:.4f} -> {self.mean_candidate:.4f}, difference {test.difference:+.4f} "
            f"[{ends.low:+.4f}, {ends.high:+.4f}] at {100 * self.level:.4g} %, {t}{_p(self.p_value)} ({how})"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """A condition beside the baseline.

    Attributes:
        baseline: Name of the condition that others are compared with; `candidate` the one that is judged.
        recommendation: What may be said; `status` whether an improvement of the thresholds was found.
        comparisons: Of the runs that ended as planned, a figure each.
        with_cut_short: The same with runs that were cut short and have figures; empty where there are none.
        p_value: The largest of `comparisons` and `with_cut_short`: a claim needs them all. 1.0 where there is no test.
        p_holm: Corrected over the conditions; compared with `alpha`.
        alpha: Of this look.
        fisher_passes: Fisher's p of the passes of all seeds, as if episodes were independent. It decides nothing.
        fisher_cut_short: Fisher's p of the runs cut short in both conditions: leaving out more of one is a bias.
        left_out: Runs that `comparisons` leave out; those cut short with figures are in `with_cut_short`.
        failures: What evidence is missing.
        look: Which look at the results this is.
    """

    baseline: str
    candidate: str
    recommendation: Recommendation
    status: Status
    comparisons: tuple[Comparison, ...]
    with_cut_short: tuple[Comparison, ...]
    p_value: float
    p_holm: float
    alpha: float
    fisher_passes: float
    fisher_cut_short: float
    left_out: tuple[LeftOut, ...]
    failures: tuple[str, ...]
    look: Look

    @property
    def directional_only(self) -> bool:
        """True where there are means to look at, and no claim."""
        return bool(self.comparisons) and self.recommendation is Recommendation.INSUFFICIENT

    def lines(self) -> list[str]:
        """The verdict in lines for people: what may be said, every figure, every run that is not in it."""
        said = f"{self.recommendation.value.replace('_', ' ')} ({self.status})"
        p = f"{_p(self.p_holm)} after Holm, alpha {self.alpha:.3g}, {self.look}"
        out = [f"{self.candidate} against {self.baseline}: {said}; {p}"]
        if self.directional_only:
            out.append("  directional only: the difference may be chance")
        out += [f"  {comparison}" for comparison in self.comparisons]
        out += [f"  with runs cut short, {comparison}" for comparison in self.with_cut_short]
        if self.comparisons:
            out.append(f"  passes counted as independent (decides nothing): Fisher {_p(self.fisher_passes)}")
        out += [f"  left out: {one.result}: {one.reason}" for one in self.left_out]
        if any(one.result.cut_short for one in self.left_out):
            out.append(f"  runs cut short in the two conditions: Fisher {_p(self.fisher_cut_short)}")
        return out + [f"  missing: {failure}" for failure in self.failures]


def _p(value: float) -> str:
    """A p-value in a sentence; one that a float cannot tell from 0 is not 0."""
    return "p < 1e-300" if value == 0 else f"p = {value:.3g}"


def verdicts(
    results: Sequence[SeedResult],
    baseline: str,
    *,
    look: Look | None = None,
    alpha: float = 0.05,
    evidence: Evidence | None = None,
    resamples: int = 10_000,
) -> list[Verdict]:
    """Judge every other condition beside the baseline.

    Args:
        results: One for each run, of any number of conditions and seeds.
        baseline: The condition that others are compared with.
        look: How often the results were tested; default: once, as planned.
        alpha: Probability of a wrong claim about any condition in all planned looks.
        evidence: What a claim needs; default: `Evidence()`.
        resamples: Draws of the bootstrap, and of permutations where they cannot be counted.

    Returns:
        One verdict for each other condition, in the order in which they come.

    Raises:
        ValueError: There is no run of the baseline, no other condition, or a seed twice in one condition.
    """
    look, evidence = look or Look(), evidence or Evidence()
    conditions = list(dict.fromkeys(result.condition for result in results))
    if baseline not in conditions or len(conditions) < 2:
        raise ValueError(f"needs runs of the baseline '{baseline}' and of another condition; there are {conditions}")
    twice = [key for key, n in Counter((r.condition, r.seed) for r in results).items() if n > 1]
    if twice:
        raise ValueError(f"seed {twice[0][1]} of condition '{twice[0][0]}' is there twice: give each run once")
    others = [name for name in conditions if name != baseline]
    share = look.alpha(alpha)
    level = 1 - (share or alpha) / len(others)
    judged = []
    for name in others:
        pair = [[r for r in results if r.condition == condition] for condition in (baseline, name)]
        judged.append(_judge(pair[0], pair[1], look, share, level, evidence, resamples))
    adjusted = holm([verdict.p_value for verdict in judged])
    return [_concluded(verdict, p) for verdict, p in zip(judged, adjusted, strict=True)]


@dataclass(frozen=True, slots=True)
class _Arms:
    """Runs that are compared, by seed; in pairs where enough seeds are shared, and then without the other seeds."""

    first: tuple[SeedResult, ...]
    second: tuple[SeedResult, ...]
    paired: bool

    @classmethod
    def of(cls, first: Sequence[SeedResult], second: Sequence[SeedResult], evidence: Evidence) -> _Arms:
        shared = {r.seed for r in first} & {r.seed for r in second}
        paired = len(shared) >= max(2, evidence.seeds)
        arms = ([r for r in arm if not paired or r.seed in shared] for arm in (first, second))
        a, b = (tuple(sorted(arm, key=lambda r: r.seed)) for arm in arms)
        return cls(a, b, paired)


def _judge(
    first: Sequence[SeedResult],
    second: Sequence[SeedResult],
    look: Look,
    share: float,
    level: float,
    evidence: Evidence,
    resamples: int,
) -> Verdict:
    """All but the conclusion, which needs the p-values of the other conditions."""
    usable = [[r for r in arm if not r.unusable] for arm in (first, second)]
    whole = [[r for r in arm if not r.cut_short] for arm in usable]
    failures = _missing(whole, first[0].condition, second[0].condition, evidence)
    if look.number > look.planned:
        failures.append(f"{look}: nothing of alpha is left for it; plan the number of looks before the first run")
    compared = _Arms.of(whole[0], whole[1], evidence)
    comparisons = _compare(compared, evidence, level, resamples)
    every = _Arms.of(usable[0], usable[1], evidence)
    with_cut_short = _compare(every, evidence, level, resamples) if usable != whole else ()
    p_values = [comparison.p_value for comparison in (*comparisons, *with_cut_short)]
    passes = [(sum(r.passed for r in arm), sum(r.graded for r in arm)) for arm in (compared.first, compared.second)]
    cut = [sum(r.cut_short is not None for r in arm) for arm in (first, second)]
    return Verdict(
        baseline=first[0].condition,
        candidate=second[0].condition,
        recommendation=Recommendation.INSUFFICIENT,
        status=Status.INCONCLUSIVE,
        comparisons=comparisons,
        with_cut_short=with_cut_short,
        p_value=max(p_values) if comparisons else 1.0,
        p_holm=1.0,
        alpha=share,
        fisher_passes=fisher_exact(*passes[0], *passes[1]),
        fisher_cut_short=fisher_exact(cut[0], len(first), cut[1], len(second)),
        left_out=tuple(_left_out(first, second, compared)),
        failures=tuple(failures),
        look=look,
    )


def _left_out(first: Sequence[SeedResult], second: Sequence[SeedResult], compared: _Arms) -> Iterator[LeftOut]:
    for result in (*first, *second):
        reasons = [reason for reason in (result.cut_short, result.unusable) if reason]
        if not reasons and result not in (*compared.first, *compared.second):
            reasons = ["the other condition has no usable run of this seed"]
        if reasons:
            yield LeftOut(result, "; ".join(reasons))


def _missing(arms: Sequence[Sequence[SeedResult]], baseline: str, candidate: str, evidence: Evidence) -> list[str]:
    failures = []
    for name, arm in zip((baseline, candidate), arms, strict=True):
        if len(arm) < evidence.seeds:
            failures.append(f"{name}: {len(arm)} seeds that ended as planned; needs >= {evidence.seeds}.")
        for result in arm:
            if result.steps < evidence.steps:
                failures.append(f"{result}: {result.steps} steps; needs >= {evidence.steps}.")
            if result.graded < evidence.episodes:
                failures.append(f"{result}: {result.graded} graded episodes; needs >= {evidence.episodes}.")
    return failures


def _compare(arms: _Arms, evidence: Evidence, level: float, resamples: int) -> tuple[Comparison, ...]:
    """Each figure that all runs have; nothing where an arm has fewer than 2 runs."""
    first, second, paired = arms.first, arms.second, arms.paired
    if min(len(first), len(second)) < 2:
        return ()
    figures: list[tuple[str, float, Callable[[SeedResult], float | None]]] = [
        ("pass rate", evidence.pass_rate, lambda result: result.pass_rate),
        ("reward", evidence.reward, lambda result: result.reward),
    ]
    out = []
    for name, threshold, read in figures:
        a, b = ([value for value in map(read, arm) if value is not None] for arm in (first, second))
        if (len(a), len(b)) != (len(first), len(second)):
            continue
        test = paired_t(a, b, level=level) if paired else welch(a, b, level=level)
        if paired:
            differences = [y - x for x, y in zip(a, b, strict=True)]
            resampled = sign_flip_test(differences, resamples=resamples)
            bootstrap = bootstrap_mean([[d] for d in differences], resamples=resamples, level=level)
        else:
            resampled = permutation_test(a, b, resamples=resamples)
            bootstrap = bootstrap_difference(a, b, resamples=resamples, level=level)
        effect = cohens_d(a, b, level=level)
        spread = stdev(y - x for x, y in zip(a, b, strict=True)) if paired else effect.spread
        defined = math.isfinite(test.t)
        out.append(
            Comparison(
                figure=name,
                paired=paired,
                seeds_baseline=tuple(r.seed for r in first),
                seeds_candidate=tuple(r.seed for r in second),
                mean_baseline=fmean(a),
                mean_candidate=fmean(b),
                test=test,
                resampled_p=resampled,
                bootstrap=bootstrap,
                effect=effect,
                p_value=test.p_value if defined else resampled,
                threshold=threshold,
                seeds_needed=seeds_needed(threshold / spread, paired=paired, alpha=1 - level) if defined else None,
                level=level,
            )
        )
    return tuple(out)


def _concluded(verdict: Verdict, p_holm: float) -> Verdict:
    comparisons = verdict.comparisons + verdict.with_cut_short
    recommendation = recommended(
        [comparison.test.difference for comparison in comparisons],
        significant=p_holm < verdict.alpha and not verdict.failures,
    )
    status = Status.INCONCLUSIVE
    if comparisons and not verdict.failures:
        enough = all(comparison.test.difference >= comparison.threshold for comparison in comparisons)
        excluded = any(
            math.isfinite(comparison.test.t) and comparison.test.interval.high < comparison.threshold
            for comparison in verdict.comparisons
        )
        if recommendation is Recommendation.IMPROVEMENT and enough:
            status = Status.CONFIRMED
        elif recommendation is Recommendation.DEGRADATION or excluded:
            status = Status.FAILED
    return replace(verdict, p_holm=p_holm, recommendation=recommendation, status=status)
