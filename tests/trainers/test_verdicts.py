"""What runs of several seeds allow to say, and what they do not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from tests.shared_data import REPOSITORY, shared
from tests.trainers.credit.fixtures import one_row
from trainers.credit.metrics import signal_metrics
from trainers.emergence import Recommendation, Status
from trainers.run.summary import Stopped
from trainers.stats import fisher_exact, mean_power, seeds_needed, tasks_needed
from trainers.verdicts import Basis, Evidence, Look, SeedResult, Verdict, verdicts

NONE = [238, 236, 260, 246, 233]
ANCHOR = [240, 244, 267, 246, 246]
"""Passes of 320 after training with seeds 5 to 9, from docs/trainers.md."""


def arm(
    condition: str, passes: Sequence[int], seeds: Sequence[int] | None = None, graded: int = 320
) -> list[SeedResult]:
    seeds = seeds or range(5, 5 + len(passes))
    return [SeedResult(condition, seed, n, graded, None, 36, 36) for seed, n in zip(seeds, passes, strict=True)]


def only(results: Sequence[SeedResult], **options: Any) -> Verdict:
    (verdict,) = verdicts(results, "none", resamples=200, **options)
    return verdict


def rewarded(results: Sequence[SeedResult], rewards: Sequence[float]) -> list[SeedResult]:
    return [replace(result, reward=reward) for result, reward in zip(results, rewards, strict=True)]


# -- Claims -----------------------------------------------------------------------------------------------------------


def test_the_measured_gain_of_the_docs_is_directional_only() -> None:
    verdict = only(arm("none", NONE) + arm("anchor", ANCHOR))
    (rate,) = verdict.comparisons
    assert rate.paired and rate.test.df == 4 and rate.p_value == pytest.approx(0.0597, abs=1e-4)
    assert rate.resampled_p == pytest.approx(4 / 2**5)  # one pair is equal: 2 of 2**4 sign patterns are as far out
    assert rate.bootstrap.low <= rate.test.difference <= rate.bootstrap.high
    assert rate.effect.interval.low < 0 < rate.effect.d < rate.effect.interval.high
    assert (verdict.recommendation, verdict.status) == (Recommendation.INSUFFICIENT, Status.INCONCLUSIVE)
    assert verdict.directional_only
    assert "directional only" in "\n".join(verdict.lines())


def test_a_planted_degradation_is_one() -> None:
    verdict = only(arm("none", NONE) + arm("exit", [140, 150, 161, 148, 139]))
    assert verdict.recommendation == "significant_degradation"
    assert verdict.status is Status.FAILED and not verdict.failures


def test_a_planted_improvement_is_confirmed_only_from_the_threshold_on() -> None:
    results = arm("none", NONE) + arm("better", [n + 40 + i for i, n in enumerate(NONE)])
    assert only(results).status is Status.CONFIRMED
    found = only(results, evidence=Evidence(pass_rate=0.132))
    assert (found.recommendation, found.status) == (Recommendation.IMPROVEMENT, Status.INCONCLUSIVE)
    assert (
        only(results, evidence=Evidence(pass_rate=0.2)).status is Status.FAILED
    )  # the interval excludes a gain of 0.2


@pytest.mark.parametrize("more", [0, 1, 16])
def test_three_seeds_of_the_same_thing_are_insufficient_evidence(more: int) -> None:
    same = arm("none", [238, 236, 260]) + arm("same", [238 + more, 236 + more, 260 + more])
    verdict = only(same)
    assert (verdict.recommendation, verdict.status) == (Recommendation.INSUFFICIENT, Status.INCONCLUSIVE)
    # Where all pairs differ by the same, t is infinite: the signs decide, and three pairs cannot be below 0.25.
    assert verdict.comparisons[0].p_value == (0.25 if more else 1.0)
    assert "insufficient statistical evidence" in verdict.lines()[0]


def test_reward_and_pass_rate_have_to_agree() -> None:
    none, better = arm("none", NONE), arm("better", [n + 40 + i for i, n in enumerate(NONE)])
    rising = only(rewarded(none, [0.1, 0.11, 0.12, 0.1, 0.1]) + rewarded(better, [0.3, 0.31, 0.33, 0.3, 0.31]))
    assert [one.figure for one in rising.comparisons] == ["pass rate", "reward"]
    assert rising.recommendation is Recommendation.IMPROVEMENT
    falling = only(rewarded(none, [0.3, 0.31, 0.33, 0.3, 0.31]) + rewarded(better, [0.1, 0.11, 0.12, 0.1, 0.1]))
    assert falling.recommendation is Recommendation.INSUFFICIENT and falling.p_holm < 0.01
    noisy = only(rewarded(none, [0.1, 0.9, 0.1, 0.5, 0.1]) + rewarded(better, [0.9, 0.1, 0.4, 0.5, 0.1]))
    assert noisy.recommendation is Recommendation.INSUFFICIENT
    assert noisy.p_value == max(one.p_value for one in noisy.comparisons)


def test_holm_counts_every_condition() -> None:
    better = [n + 8 + 2 * i for i, n in enumerate(NONE)]
    alone = only(arm("none", NONE) + arm("better", better))
    many = verdicts(
        arm("none", NONE) + arm("better", better) + arm("a", ANCHOR) + arm("b", NONE), "none", resamples=200
    )
    assert [verdict.candidate for verdict in many] == ["better", "a", "b"]
    assert many[0].p_holm == pytest.approx(3 * alone.p_value) and many[0].comparisons[0].level == 1 - 0.05 / 3
    assert many[0].comparisons[0].test.interval.high > alone.comparisons[0].test.interval.high


def test_the_example_of_the_docs_prints_what_they_show(capsys: pytest.CaptureFixture[str]) -> None:
    page = (REPOSITORY / "docs/verdicts.md").read_text(encoding="utf-8")
    example, shown = (
        re.search(rf"^```{kind}\n(.*?)^```", page, re.DOTALL | re.MULTILINE) for kind in ("python", "text")
    )
    assert example and shown
    exec(compile(example[1], "docs/verdicts.md", "exec"), {})
    assert capsys.readouterr().out == shown[1]


# -- What is compared with what ---------------------------------------------------------------------------------------


def test_shared_seeds_are_pairs_and_others_are_named() -> None:
    verdict = only(arm("none", NONE) + arm("some", [240, 244, 267], seeds=[5, 6, 7]))
    assert verdict.comparisons[0].seeds_baseline == verdict.comparisons[0].seeds_candidate == (5, 6, 7)
    assert [(one.result.seed, one.reason) for one in verdict.left_out] == [
        (8, "the other condition has no usable run of this seed"),
        (9, "the other condition has no usable run of this seed"),
    ]
    assert verdict.fisher_passes == fisher_exact(238 + 236 + 260, 960, 240 + 244 + 267, 960)


def test_a_p_value_that_no_float_holds_is_not_said_to_be_0() -> None:
    verdict = only(arm("none", [310, 311, 312, 313, 314, 315]) + arm("some", [1, 2, 3, 2, 1, 2]))
    assert verdict.fisher_passes == 0
    assert "  passes counted as independent (decides nothing): Fisher p < 1e-300" in verdict.lines()
    assert not any(line.endswith("p = 0") for line in verdict.lines())


def test_seeds_that_are_not_shared_are_welchs() -> None:
    verdict = only(arm("none", NONE) + arm("other", ANCHOR, seeds=[1, 2, 3, 4, 5]))
    assert not verdict.comparisons[0].paired and not verdict.left_out
    assert verdict.comparisons[0].test.df < 8 and "Welch" in verdict.lines()[2]


def test_a_comparison_says_how_many_seeds_its_threshold_needs() -> None:
    comparison = only(arm("none", NONE) + arm("anchor", ANCHOR)).comparisons[0]
    spread = np.std([(b - a) / 320 for a, b in zip(NONE, ANCHOR, strict=True)], ddof=1)
    assert comparison.seeds_needed == seeds_needed(0.005 / spread, paired=True)
    assert comparison.seeds_needed is not None and comparison.seeds_needed > 50


# -- Runs that are not whole, steps that were chosen ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stopped": Stopped.GUARD, "steps": 12}, "stopped by a guard after 12 of 36 steps"),
        ({"stopped": Stopped.INTERRUPTED, "steps": 12}, "truncated after 12 of 36 steps"),
        ({"steps": 12}, "truncated after 12 of 36 steps"),
        ({"stopped": Stopped.FAILED, "steps": 12}, "failed after 12 of 36 steps"),
    ],
)
def test_a_run_cut_short_is_named_and_counted_in_and_out(change: dict[str, Any], reason: str) -> None:
    better = arm("better", [n + 40 + i for i, n in enumerate(NONE)])
    assert only(arm("none", NONE) + better).recommendation is Recommendation.IMPROVEMENT
    collapsed = [*better[:-1], replace(better[-1], passed=3, **change)]
    verdict = only(arm("none", NONE) + collapsed)
    assert [(str(one.result), one.reason) for one in verdict.left_out] == [
        ("none seed 9", "the other condition has no usable run of this seed"),
        ("better seed 9", reason),
    ]
    assert verdict.comparisons[0].p_value < 0.05 < verdict.with_cut_short[0].p_value
    assert len(verdict.with_cut_short[0].seeds_candidate) == 5
    assert verdict.recommendation is Recommendation.INSUFFICIENT  # it rests on leaving out the run that collapsed
    text = "\n".join(verdict.lines())
    assert f"better seed 9: {reason}" in text and "with runs cut short, pass rate" in text


def test_the_threshold_holds_with_runs_cut_short_too() -> None:
    none = arm("none", [*NONE, 240, 241, 242])
    better = arm("better", [*(n + 56 + i for i, n in enumerate(NONE)), 256, 257, 259])
    whole, evidence = only(none + better), Evidence(pass_rate=0.15)
    assert whole.status is Status.CONFIRMED
    cut = better[:5] + [replace(one, steps=20, stopped=Stopped.INTERRUPTED) for one in better[5:]]
    verdict = only(none + cut, evidence=evidence)
    assert verdict.comparisons[0].test.difference > 0.15 > verdict.with_cut_short[0].test.difference > 0.1
    assert (verdict.recommendation, verdict.status) == (Recommendation.IMPROVEMENT, Status.INCONCLUSIVE)


def test_patience_is_a_plan_and_an_end() -> None:
    early = [replace(one, stopped=Stopped.PATIENCE, steps=20, basis=Basis.FRESH) for one in arm("better", ANCHOR)]
    verdict = only(arm("none", NONE) + early)
    assert not verdict.left_out and not verdict.with_cut_short


def test_the_figure_that_chose_a_step_is_never_used() -> None:
    chosen = [replace(one, basis=Basis.SELECTED) for one in arm("better", [n + 40 + i for i, n in enumerate(NONE)])]
    verdict = only(arm("none", NONE) + chosen)
    assert not verdict.comparisons and verdict.p_value == 1.0 and not verdict.directional_only
    assert {one.reason for one in verdict.left_out} >= {
        "its figures are those that chose the step; measure best/ again on fresh tasks"
    }
    assert verdict.failures == ("better: 0 seeds that ended as planned; needs >= 3.",)
    fresh = [replace(one, basis=Basis.FRESH) for one in chosen]
    assert only(arm("none", NONE) + fresh).recommendation is Recommendation.IMPROVEMENT


def test_failed_runs_without_figures_are_counted() -> None:
    better = arm("better", [n + 40 + i for i, n in enumerate(NONE)])
    failed = [replace(one, passed=0, graded=0, steps=3, stopped=Stopped.FAILED, seed=one.seed + 10) for one in better]
    verdict = only(arm("none", NONE) + better + failed)
    assert {one.reason for one in verdict.left_out} == {"failed after 3 of 36 steps; has no graded episode"}
    assert verdict.fisher_cut_short == fisher_exact(0, 5, 5, 10)
    assert not verdict.with_cut_short and "runs cut short in the two conditions" in verdict.lines()[-1]


# -- Evidence, looks --------------------------------------------------------------------------------------------------


def test_missing_evidence_is_said_and_decides() -> None:
    better = [n + 40 + i for i, n in enumerate(NONE)]
    few = only(arm("none", NONE[:2]) + arm("better", better[:2]))
    assert few.failures == tuple(f"{name}: 2 seeds that ended as planned; needs >= 3." for name in ("none", "better"))
    short = [replace(one, steps=4, planned=4, graded=20, passed=min(one.passed, 20)) for one in arm("better", better)]
    said = only(arm("none", NONE) + short).failures
    assert said[:2] == ("better seed 5: 4 steps; needs >= 8.", "better seed 5: 20 graded episodes; needs >= 32.")
    for verdict in (few, only(arm("none", NONE) + short)):
        assert (verdict.recommendation, verdict.status) == (Recommendation.INSUFFICIENT, Status.INCONCLUSIVE)


def test_looks_share_alpha_and_an_unplanned_one_has_none() -> None:
    results = arm("none", NONE) + arm("better", [n + 40 + i for i, n in enumerate(NONE)])
    third = only(results, look=Look(3, 3))
    assert third.alpha == pytest.approx(0.05 / 3) and "this is look 3 of 3 planned" in third.lines()[0]
    assert third.recommendation is Recommendation.IMPROVEMENT
    fourth = only(results, look=Look(4, 3))
    assert fourth.alpha == 0.0
    assert fourth.recommendation is Recommendation.INSUFFICIENT and "nothing of alpha is left" in fourth.failures[0]
    with pytest.raises(ValueError, match="counted from 1"):
        Look(0)


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (arm("a", NONE), "needs runs of the baseline 'none'"),
        (arm("none", NONE), "and of another condition"),
        (arm("none", NONE) + arm("a", ANCHOR) + arm("a", [1], seeds=[5]), "seed 5 of condition 'a' is there twice"),
    ],
)
def test_what_cannot_be_judged_is_said(results: list[SeedResult], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        only(results)


@pytest.mark.parametrize("change", [{"passed": 5, "graded": 4}, {"steps": 9, "planned": 8}, {"reward": float("nan")}])
def test_impossible_results_are_refused_by_name(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="runs/none_s5"):
        replace(arm("none", NONE)[0], run="runs/none_s5", **change)


# -- What a verdict promises ------------------------------------------------------------------------------------------

DRAWS = [40, pytest.param(1000, marks=pytest.mark.whole)]
EPISODES = 10**6
"""So many that counts are as good as normal values."""


def drawn(rng: np.random.Generator, condition: str, seeds: int, luck: np.ndarray, shift: float) -> list[SeedResult]:
    """Runs that share the luck of their seeds with those of other conditions; own spread is 0.01."""
    rates = 0.5 + luck[:seeds] + 0.01 * (rng.normal(size=seeds) + shift)
    return arm(condition, [round(EPISODES * rate) for rate in rates], graded=EPISODES)


@pytest.mark.parametrize("draws", DRAWS)
def test_no_difference_is_claimed_more_often_than_alpha(draws: int) -> None:
    """Two conditions that are equal to the baseline, looked at twice: any claim at all is a wrong one."""
    rng, wrong = np.random.default_rng(21), 0
    for _ in range(draws):
        luck = 0.02 * rng.normal(size=6)
        results = [drawn(rng, name, 6, luck, 0.0) for name in ("none", "a", "b")]
        looks = [
            verdicts([one for runs in results for one in runs[:seeds]], "none", look=Look(number, 2), resamples=20)
            for number, seeds in ((1, 4), (2, 6))
        ]
        wrong += any(verdict.recommendation is not Recommendation.INSUFFICIENT for look in looks for verdict in look)
    assert wrong <= scipy_stats.binom.isf(5e-5, draws, 0.05)


@pytest.mark.parametrize("draws", DRAWS)
def test_a_planted_effect_is_found_as_often_as_power_says(draws: int) -> None:
    rng, found, shift = np.random.default_rng(22), 0, 2.0
    for _ in range(draws):
        luck = 0.02 * rng.normal(size=6)
        verdict = only(drawn(rng, "none", 6, luck, 0.0) + drawn(rng, "better", 6, luck, shift))
        found += verdict.recommendation is Recommendation.IMPROVEMENT
    power = mean_power(shift / np.sqrt(2), 6, paired=True)
    assert scipy_stats.binom.ppf(5e-5, draws, power) <= found <= scipy_stats.binom.isf(5e-5, draws, power)
    assert 0.5 < power < 0.9


# -- Figures that articles print --------------------------------------------------------------------------------------


def article(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    records = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    (case,) = [case for case in records if case["group"] == "article_numbers" and case["id"] == name]
    return case["inputs"], case["expected"]


def test_headlines_reference_are_one_run_each_and_no_evidence() -> None:
    inputs, expected = article("seed_headlines_pp")
    n = inputs["n"]

    def points(name: str, passed: int, graded: int = n) -> float:
        rate = SeedResult(name, 0, passed, graded, None, 50, 50).pass_rate
        assert rate is not None
        return 100 * rate

    got = {
        "grpo34": points("grpo34", 13),
        "t2po25": points("t2po25", 12),
        "t2po45": points("t2po45", 9),
        "t2po50": points("t2po50", 11),
        "per_assert_grpo34": points("grpo34", 389, 780),
        "per_assert_sft": points("sft", 365, 780),
        "pool45": points("pool", 28, 32),
    }
    got["gap45"] = got["pool45"] - got["t2po45"]
    assert got == pytest.approx({key: expected[key] for key in got}, abs=1e-6)
    assert [points("t2po", k, 780) for k in (371, 373, 372)] == pytest.approx(expected["per_assert_t2po"], abs=1e-6)
    runs = [SeedResult("none", 0, 13, n, None, 34, 34), SeedResult("t2po", 0, 11, n, None, 50, 50)]
    verdict = only(runs)
    assert verdict.recommendation is Recommendation.INSUFFICIENT and not verdict.comparisons
    assert len(verdict.failures) == 2


def test_episodes_of_the_guide_reference_are_those_of_one_seed() -> None:
    inputs, expected = article("power_guide_arithmetic")
    needed = tasks_needed(0.01875, 0.03135)
    assert needed == inputs["episodes_per_arm"]
    assert needed / inputs["episodes_per_step"] == pytest.approx(expected["steps_in_ONE_seed"])


def test_ratio_of_detectors_reference() -> None:
    inputs, expected = article("detector_ratio")
    tokens = one_row([0.5] * 10_000)
    shares = {}
    for name in ("semantic_pct", "regex_pct"):
        planning = np.arange(10_000)[None] < round(100 * inputs[name])
        shares[name] = signal_metrics(tokens, planning)[0]["credit/planning_token_ratio"]
    assert shares["semantic_pct"] / shares["regex_pct"] == pytest.approx(expected["ratio"])
