from __future__ import annotations

import json
import math
from typing import Any

import pytest

from tests.shared_data import shared
from trainers.stats import (
    bootstrap_difference,
    bootstrap_mean,
    effective_n,
    fisher_exact,
    mcnemar,
    mean_pass_at_k,
    paired_test,
    pass_at_k,
    permutation_test,
    sign_flip_test,
    task_differences,
    tasks_needed,
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
