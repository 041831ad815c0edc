from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tests.shared_data import shared
from trainers.stats import (
    area_under_curve,
    bootstrap_difference,
    bootstrap_mean,
    cohens_d,
    effective_n,
    fisher_exact,
    holm,
    mcnemar,
    mean_pass_at_k,
    mean_power,
    paired_t,
    paired_test,
    pass_at_k,
    permutation_test,
    rate_difference,
    rate_power,
    seeds_needed,
    sign_flip_test,
    task_differences,
    tasks_needed,
    values_needed,
    welch,
    wilson,
)


def cases(group: str) -> list[dict[str, Any]]:
    records = json.loads(shared("fixtures/credit.json").read_text())["cases"]
    found = [record for record in records if record["group"] == group]
    assert found, f"no fixture in group {group}"
    return found


def test_wilson_reference() -> None:
    (case,) = [c for c in cases("stats.rate_ci") if c["id"] == "wilson_heldout"]
    for (passed, n), (low, high) in zip(case["inputs"]["k/n"], case["expected"], strict=True):
        interval = wilson(passed, n)
        assert interval.low == pytest.approx(low, abs=case["abs_tol"])
        assert interval.high == pytest.approx(high, abs=case["abs_tol"])


def test_wilson_edges() -> None:
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    assert wilson(0, 10).low == 0.0 and 0.2 < wilson(0, 10).high < 0.4
    assert wilson(10, 10).high == 1.0 and 0.6 < wilson(10, 10).low < 0.8
    with pytest.raises(ValueError, match=r"passed=3 must lie in \[0, n=2\]"):
        wilson(3, 2)


def test_fisher_reference() -> None:
    for case in cases("stats.fisher"):
        i = case["inputs"]
        n_a = i["baseline_success"] + i["baseline_fail"]
        n_b = i["candidate_success"] + i["candidate_fail"]
        got = fisher_exact(i["baseline_success"], n_a, i["candidate_success"], n_b)
        assert got == pytest.approx(case["expected"], abs=case["abs_tol"]), case["id"]


def test_tasks_needed_reference() -> None:
    for case in cases("stats.power"):
        i = case["inputs"]
        got = tasks_needed(i["baseline_rate"], i["candidate_rate"], alpha=i["alpha"], power=i["power"])
        assert got == case["expected"], case["id"]


def test_permutation_reference() -> None:
    (case,) = cases("stats.permutation")
    i = case["inputs"]
    got = permutation_test(i["baseline"], i["candidate"], resamples=i["resamples"], seed=i["seed"])
    assert got == pytest.approx(case["expected"]["p_exact_enumeration"], abs=case["abs_tol"])


def test_bootstrap_reference() -> None:
    (case,) = cases("stats.bootstrap")
    i = case["inputs"]
    got = bootstrap_difference(i["baseline"], i["candidate"], resamples=i["resamples"], seed=i["seed"])
    assert got.low == pytest.approx(case["expected"]["ci_low"], abs=case["abs_tol"])
    assert got.high == pytest.approx(case["expected"]["ci_high"], abs=case["abs_tol"])


def test_pass_at_k_reference() -> None:
    by_id = {case["id"]: case for case in cases("eval.pass_at_k")}
    case = by_id["pass_at_k_unbiased"]
    got = [pass_at_k(n, c, k) for n, c, k in case["inputs"]["rows[n,c,k]"]]
    assert got == pytest.approx(case["expected"], abs=case["abs_tol"])
    case = by_id["pass_at_k_first_k_vs_unbiased"]
    outcomes = {str(i): [bool(x) for x in mask] for i, mask in enumerate(case["inputs"]["masks"])}
    for k, expected in case["expected"]["unbiased"].items():
        assert mean_pass_at_k(outcomes, int(k)) == pytest.approx(expected, abs=case["abs_tol"])
    case = by_id["pass_at_k_partial_reward_threshold"]  # a pass is every assertion, never "any score above 0"
    outcomes = {str(i): [score >= 1 for score in scores] for i, scores in enumerate(case["inputs"]["scores"])}
    assert mean_pass_at_k(outcomes, 2) == pytest.approx(case["expected"]["pass@2 score>=1"])


def test_pass_at_k_refuses_what_it_cannot_estimate() -> None:
    with pytest.raises(ValueError, match="1 <= k <= n"):
        pass_at_k(4, 2, 5)
    assert mean_pass_at_k({"a": [True], "b": []}, 2) is None
    assert mean_pass_at_k({"a": [True], "b": [True, False]}, 2) == 1.0  # `a` has no second attempt: left out


def test_mcnemar_by_hand() -> None:
    assert mcnemar(0, 0) == 1.0
    assert mcnemar(5, 0) == pytest.approx(2 * 0.5**5)
    assert mcnemar(1, 3) == pytest.approx(2 * (1 + 4) / 16)
    assert mcnemar(3, 1) == mcnemar(1, 3)


def test_sign_flips_exact_by_hand_and_seeded() -> None:
    assert sign_flip_test([]) == 1.0
    assert sign_flip_test([0.0, 0.0]) == 1.0
    assert sign_flip_test([0.5, 0.5, 0.5]) == pytest.approx(2 / 8)
    assert sign_flip_test([1.0, -0.5]) == pytest.approx(1.0)  # |0.5| or more in all four sign patterns
    many = [0.25] * 20 + [-0.25] * 8
    assert sign_flip_test(many, seed=3) == sign_flip_test(many, seed=3)
    assert sign_flip_test(many, seed=3, resamples=40_000) == pytest.approx(mcnemar(20, 8), abs=0.01)


def test_paired_test_on_shared_tasks_only() -> None:
    first = {"a": [False], "b": [True], "c": [False], "lost": [True]}
    second = {"a": [True], "b": [True], "c": [True], "new": [False], "empty": []}
    test = paired_test(first, second)
    assert (test.test, test.tasks, test.better, test.worse, test.unpaired) == ("exact McNemar", 3, 2, 0, 2)
    assert test.p_value == pytest.approx(0.5)
    assert test.difference == pytest.approx(2 / 3)


def test_paired_test_with_several_attempts_is_per_task() -> None:
    first = {str(i): [False] * 4 for i in range(6)}
    second = {str(i): [True, True, False, False] for i in range(6)}
    test = paired_test(first, second)
    # 24 attempts are 6 tasks: the p-value is that of 6 signs, not of 12 changed attempts.
    assert test.test == "sign-flip permutation"
    assert test.p_value == pytest.approx(2 / 2**6)


def test_paired_test_without_common_tasks() -> None:
    test = paired_test({"a": [True]}, {"b": [True]})
    assert (test.p_value, test.tasks, test.unpaired) == (1.0, 0, 2)
    assert math.isnan(test.difference)


def test_differences_are_of_shared_tasks_and_per_task() -> None:
    first = {"a": [True, False], "b": [False], "c": [True], "d": []}
    second = {"a": [True, True], "b": [False], "e": [True], "d": [True]}
    assert task_differences(first, second) == [0.5, 0.0]


def test_effective_n_of_saturated_groups_is_the_number_of_tasks() -> None:
    # 28 of 32 passed, as 8 tasks of 4 equal attempts: worth 8 attempts, not 32.
    saturated = {str(i): [i != 0] * 4 for i in range(8)}
    assert effective_n(saturated) == pytest.approx(8)
    assert effective_n({str(i): [True] for i in range(8)}) == 8
    assert effective_n({str(i): [True] * 4 for i in range(8)}) == 8
    mixed = {str(i): [True, False, True, False] for i in range(8)}
    assert effective_n(mixed) == pytest.approx(32)


def test_bootstrap_is_seeded_and_by_task() -> None:
    clusters = [[1.0] * 8 if i % 2 else [0.0] * 8 for i in range(10)]
    one, two = bootstrap_mean(clusters, seed=0), bootstrap_mean(clusters, seed=0)
    assert one == two
    spread = [[math.sqrt(i)] for i in range(50)]
    assert bootstrap_mean(spread, seed=0, resamples=500) != bootstrap_mean(spread, seed=1, resamples=500)
    independent = bootstrap_mean([[x] for cluster in clusters for x in cluster])
    assert one.high - one.low > 2 * (independent.high - independent.low)
    with pytest.raises(ValueError, match="no value"):
        bootstrap_mean([[]])


def test_means_reference() -> None:
    for case in cases("stats.welch"):
        arms, expected = (case["inputs"]["baseline"], case["inputs"]["candidate"]), case["expected"]
        independent, paired, effect = welch(*arms), paired_t(*arms), cohens_d(*arms)
        got = {
            "t": independent.t,
            "df": independent.df,
            "p": independent.p_value,
            "cohens_d": effect.d,
            "paired_t": paired.t,
            "paired_p_df": paired.p_value,
        }
        assert got == pytest.approx(expected, abs=case["abs_tol"]), case["id"]
        assert paired.df == len(arms[0]) - 1


def test_effect_reference() -> None:
    (case,) = cases("stats.effect")
    arms, expected = (case["inputs"]["baseline"], case["inputs"]["candidate"]), case["expected"]
    effect = cohens_d(*arms)
    difference = welch(*arms).difference
    assert (effect.d, effect.spread) == pytest.approx((expected["cohens_d"], expected["pooled_sd"]), abs=1e-9)
    assert difference == pytest.approx(expected["mean_candidate"] - expected["mean_baseline"], abs=1e-9)
    assert values_needed(difference, effect.spread) == expected["n_per_arm_80"]


def test_area_reference() -> None:
    curve, point = cases("stats.auc")
    assert area_under_curve(**curve["inputs"]) == pytest.approx(tuple(curve["expected"].values()), abs=1e-9)
    assert area_under_curve(**point["inputs"]) == (point["expected"], 0.0)
    assert area_under_curve([10, 20], [0.5, 0.5]) == (5.0, 0.5)  # by the span of steps, not by the last step
    with pytest.raises(ValueError, match="growing steps"):
        area_under_curve([0, 2, 1], [0.0, 0.0, 0.0])


def test_rate_difference_reference() -> None:
    (case,) = [case for case in cases("stats.rate_ci") if case["id"] == "normal_ci_rate"]
    i = case["inputs"]
    got = rate_difference(
        round(i["baseline_rate"] * i["n_b"]), i["n_b"], round(i["candidate_rate"] * i["n_c"]), i["n_c"]
    )
    assert (got.low, got.high) == pytest.approx(case["expected"], abs=case["abs_tol"])
    with pytest.raises(ValueError, match="an arm is empty"):
        rate_difference(0, 0, 1, 2)


def test_t_tests_agree_with_the_tables_of_the_documentation() -> None:
    none, anchor = [238, 236, 260, 246, 233], [240, 244, 267, 246, 246]  # docs/trainers.md, fresh seeds
    test = paired_t([n / 320 for n in none], [n / 320 for n in anchor])
    points = [100 * x for x in (test.difference, test.interval.low, test.interval.high)]
    assert (*points, test.p_value) == pytest.approx((1.9, -0.1, 3.9, 0.060), abs=0.05)


@pytest.mark.parametrize("test", [paired_t, welch])
def test_values_without_spread_have_no_t(test: Any) -> None:
    same = test([0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.3])
    assert (same.difference, same.p_value, math.isnan(same.t)) == (0.0, 1.0, True)
    apart = test([0.3, 0.3, 0.3], [0.4, 0.4, 0.4])  # no spread: t would be infinite and p 0, from three seeds
    assert apart.difference == pytest.approx(0.1) and math.isnan(apart.p_value)
    assert math.isnan(cohens_d([0.3, 0.3], [0.4, 0.4]).d) and cohens_d([0.3, 0.3], [0.3, 0.3]).d == 0.0
    with pytest.raises(ValueError, match="2 or more"):
        test([0.3], [0.4])


@pytest.mark.parametrize(("n_a", "n_b", "shift"), [(2, 2, 0.5), (3, 3, 40.0), (5, 8, 0.0), (6, 6, -1.0), (50, 40, 1.0)])
def test_interval_of_d_is_that_of_the_noncentral_t(n_a: int, n_b: int, shift: float) -> None:
    rng = np.random.default_rng(n_a)
    effect = cohens_d(list(rng.normal(size=n_a)), list(rng.normal(size=n_b) + shift), level=0.9)
    assert effect.interval.low < effect.d < effect.interval.high
    scale, df = math.sqrt(n_a * n_b / (n_a + n_b)), n_a + n_b - 2
    draws = rng.normal(size=(2, 200_000)), np.sqrt(rng.chisquare(df, 200_000) / df)
    above = np.mean((draws[0][0] + effect.interval.low * scale) / draws[1] > effect.d * scale)
    below = np.mean((draws[0][1] + effect.interval.high * scale) / draws[1] < effect.d * scale)
    assert (above, below) == pytest.approx((0.05, 0.05), abs=0.004)


def test_holm_by_hand() -> None:
    assert holm([]) == []
    assert holm([0.04]) == [0.04]
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_seeds_needed_is_what_power_tables_say() -> None:
    # Cohen (1988): two samples, d 0.5 need 64 each, d 0.8 need 26; pairs, d 0.5 need 34.
    assert [seeds_needed(d, paired=False) for d in (0.5, 0.8)] == [64, 26]
    assert seeds_needed(-0.5, paired=True) == 34
    assert seeds_needed(0.01, paired=True) is None and seeds_needed(0.0, paired=False) is None
    assert mean_power(1.0, 1, paired=True) == 0.0
    assert mean_power(0.0, 5, paired=True, alpha=0.03) == pytest.approx(0.03, abs=1e-3)
    assert values_needed(0.0, 1.0) is None


# -- What a test promises: how often it finds what is not there, and what is ------------------------------------------

DRAWS = [100, pytest.param(1000, marks=pytest.mark.whole)]
SEEDS = 6


def share_below(p_values: list[float], alpha: float, at_least: float, at_most: float) -> None:
    """p < alpha comes as often as a binomial with a rate in [at_least, at_most] has it, all but once in 10,000."""
    n, hits = len(p_values), sum(p < alpha for p in p_values)
    low = scipy_stats.binom.ppf(5e-5, n, at_least) if at_least else 0
    assert low <= hits <= scipy_stats.binom.isf(5e-5, n, at_most), f"{hits} of {n}"


def arms_of_seeds(n: int, shift: float, seed: int) -> list[tuple[list[float], list[float]]]:
    """Two arms of `SEEDS` runs that share a part of each seed's luck; differences have standard deviation 1."""
    rng = np.random.default_rng(seed)
    luck, own = rng.normal(size=(n, 1, SEEDS)), rng.normal(size=(n, 2, SEEDS)) * math.sqrt(0.5)
    arms = luck + own + np.array([0.0, shift])[:, None]
    return [(list(first), list(second)) for first, second in arms]


TESTS = {
    "paired t": (lambda a, b: paired_t(a, b).p_value, True),
    "sign flips": (lambda a, b: sign_flip_test([y - x for x, y in zip(a, b, strict=True)]), False),
    "Welch": (lambda a, b: welch(a, b).p_value, False),
    "permutation": (lambda a, b: permutation_test(a, b), False),
}
"""Of seeds; whether a level is reached exactly, or never exceeded (few permutations; luck that Welch ignores)."""


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("name", TESTS)
def test_false_positives_of_tests_over_seeds(name: str, draws: int) -> None:
    test, exact = TESTS[name]
    p_values = [test(a, b) for a, b in arms_of_seeds(draws, 0.0, seed=11)]
    share_below(p_values, 0.05, 0.05 if exact else 0.0, 0.05)


@pytest.mark.parametrize("draws", DRAWS)
def test_false_positives_of_tests_on_counts(draws: int) -> None:
    passes = np.random.default_rng(12).binomial(64, 0.3, size=(draws, 2))
    share_below([fisher_exact(int(a), 64, int(b), 64) for a, b in passes], 0.05, 0.0, 0.05)
    flips = np.random.default_rng(13).binomial(30, 0.5, size=draws)
    share_below([mcnemar(int(k), 30 - int(k)) for k in flips], 0.05, 0.0, 0.05)


@pytest.mark.parametrize("draws", DRAWS)
def test_false_positives_after_holm_are_of_the_family(draws: int) -> None:
    values = iter(np.random.default_rng(14).uniform(size=(draws, 4)))
    share_below([min(holm(list(row))) for row in values], 0.05, 0.04, 0.05)


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("paired", [True, False])
def test_power_over_seeds_is_what_is_found(paired: bool, draws: int) -> None:
    rng, shift = np.random.default_rng(15), 1.4
    arms = rng.normal(size=(draws, 2, SEEDS)) * (math.sqrt(0.5) if paired else 1.0) + np.array([0.0, shift])[:, None]
    power = mean_power(shift, SEEDS, paired=paired)
    test = paired_t if paired else welch
    # Welch's df are fewer than the power's where the variances of samples differ: a little less power.
    share_below([test(list(a), list(b)).p_value for a, b in arms], 0.05, power - (0.0 if paired else 0.03), power)
    assert 0.5 < power < 0.85


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(("base", "other"), [(0.05, 0.15), (0.3, 0.45)])
def test_power_on_counts_depends_on_the_base_rate_and_is_what_is_found(base: float, other: float, draws: int) -> None:
    n = tasks_needed(base, other)
    assert n is not None
    rng = np.random.default_rng(16)
    passes = zip(rng.binomial(n, base, size=draws), rng.binomial(n, other, size=draws), strict=True)
    power = rate_power(base, other, n)
    share_below([fisher_exact(int(a), n, int(b), n) for a, b in passes], 0.05, power - 0.02, power + 0.02)
    assert 0.7 < power < 0.8  # Fisher's test finds a little less than the sample size promises
    assert rate_power(base, base, n) == 0.05 and rate_power(base, other, 0) == 0.0
