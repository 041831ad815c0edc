from __future__ import annotations

import json

import pytest

from envs.rewards import BaselineError, RewardKind, RewardRule
from tests.shared_data import shared


def final(
    rule: RewardRule, rate: float, turns: int, baseline: float | None = None, passed: bool | None = None
) -> float:
    return rule.final(
        rate=rate, passed=rate == 1.0 if passed is None else passed, turns=turns, max_turns=12, baseline=baseline
    )


def test_shaped_is_rate_less_the_share_of_turns() -> None:
    rule = RewardRule()
    assert final(rule, 1.0, 3) == pytest.approx(1.0 - 0.2 * 3 / 12)
    assert final(rule, 0.5, 12) == pytest.approx(0.3)
    assert final(rule, 0.0, 12) == pytest.approx(-0.2)
    assert final(RewardRule(turn_penalty=0.0), 0.75, 9) == 0.75


def test_shaped_never_costs_more_than_the_penalty() -> None:
    assert final(RewardRule(), 0.0, 40) == pytest.approx(-0.2)


def test_binary_is_all_or_nothing() -> None:
    rule = RewardRule(RewardKind.BINARY)
    assert final(rule, 1.0, 12) == 1.0
    assert final(rule, 0.99, 1) == 0.0


def test_baseline_is_taken_off_and_the_rest_stretched() -> None:
    rule = RewardRule(turn_penalty=0.0, subtract_baseline=True)
    assert final(rule, 0.5, 1, baseline=0.5) == 0.0
    assert final(rule, 0.75, 1, baseline=0.5) == pytest.approx(0.5)
    assert final(rule, 1.0, 1, baseline=0.5) == 1.0
    assert final(rule, 0.25, 1, baseline=0.5) == pytest.approx(-0.5)


def test_delta_sums_to_the_change() -> None:
    rates = [0.5, 0.75, 0.25, 1.0]
    plain = RewardRule(RewardKind.DELTA)
    assert sum(plain.change(a, b, 0.5) for a, b in zip(rates, rates[1:], strict=False)) == pytest.approx(0.5)
    above = RewardRule(RewardKind.DELTA, subtract_baseline=True)
    assert sum(above.change(a, b, 0.5) for a, b in zip(rates, rates[1:], strict=False)) == pytest.approx(1.0)


def test_a_task_that_is_done_at_the_start_has_no_rate_above_it() -> None:
    with pytest.raises(BaselineError, match="doing nothing already scores 1"):
        final(RewardRule(subtract_baseline=True), 1.0, 1, baseline=1.0)


def test_settings_without_effect_are_refused() -> None:
    with pytest.raises(ValueError, match="binary"):
        RewardRule(RewardKind.BINARY, subtract_baseline=True)
    with pytest.raises(ValueError, match="negative"):
        RewardRule(turn_penalty=-0.1)


def test_reference_rewards() -> None:
    """Equal to the reference, but that a grade that checks nothing is none (the reference makes it 0 or 1)."""
    cases = json.loads(shared("fixtures/t2po_gigpo.json").read_text())["fn_compute_reward"]
    assert len(cases) >= 8
    for case in cases:
        if not case["n_total"]:
            continue
        rule = RewardRule(RewardKind(case["mode"]), case["turn_penalty"])
        got = rule.final(
            rate=case["n_passed"] / case["n_total"],
            passed=case["passed"],
            turns=case["n_turns"],
            max_turns=case["max_turns"],
            baseline=None,
        )
        assert got == pytest.approx(case["out"], abs=1e-6), case["name"]


def test_recorded_rewards() -> None:
    """As recorded of the original; but a grade that checks nothing is none, so nothing makes its reward."""
    cases = [
        case
        for case in json.loads(shared("fixtures/credit.json").read_text())["cases"]
        if case["group"] == "clawgym.reward" and case["inputs"]["grade"]["n_total"]
    ]
    assert len(cases) == 6
    for case in cases:
        given = case["inputs"]
        rule = RewardRule(RewardKind(given.get("mode", "shaped")), given["turn_penalty"])
        got = rule.final(
            rate=given["grade"]["n_passed"] / given["grade"]["n_total"],
            passed=given["grade"]["passed"],
            turns=given["n_turns"],
            max_turns=given["max_turns"],
            baseline=None,
        )
        assert got == pytest.approx(case["expected"], abs=case["abs_tol"]), case["id"]
