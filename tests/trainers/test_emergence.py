"""The logs and reports of retrain and textpolicy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.records import Reader
from agents.trajectory import Trajectory, Turn
from tests.shared_data import shared
from trainers.emergence import (
    Correct,
    Litmus,
    LitmusProfile,
    LoggedRun,
    LoggedStep,
    PooledTest,
    Recommendation,
    Significance,
    Status,
    generation_rows,
    learning_curve,
    litmus,
    read_run,
    recommended,
    selected_generations,
    significance,
    step_row,
)
from trainers.jsonl import append_line


def cases(group: str) -> dict[str, dict[str, Any]]:
    records = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    found = {record["id"]: record for record in records if record["group"] == group}
    assert found, f"no fixture in group {group}"
    return found


REPORTS = [
    "report_confirmed",
    "report_failed_no_lift",
    "report_degradation",
    "report_inconclusive_retrain_logs",
    "report_inconclusive_few_steps",
]


def runs_of(case: dict[str, Any], arm: str) -> list[LoggedRun]:
    """The runs of one arm; rewards are 0 or 1, as many as correct answers were counted."""
    out = []
    for run in case["inputs"]["runs"]:
        if run["arm"] == arm:
            steps = tuple(LoggedStep(r, c, n, delta, pairs or 0) for r, c, n, delta, pairs in run["steps"])
            rewards = tuple(float(place < step.correct) for step in steps for place in range(step.total))
            out.append(LoggedRun(arm, steps, rewards))
    return out


@pytest.fixture(scope="module")
def reports() -> dict[str, tuple[dict[str, Any], Significance, Litmus]]:
    out = {}
    for name in REPORTS:
        case = cases("stats.report")[name]
        arms = runs_of(case, "baseline"), runs_of(case, "candidate")
        out[name] = case, significance(*arms, resamples=2000), litmus(*arms)
    return out


def agrees(test: PooledTest, expected: dict[str, Any], estimate: dict[str, Any], tolerance: float) -> None:
    kind = "rate" if "baseline_rate" in expected else "mean"
    size = "total" if kind == "rate" else None
    exact = {
        "metric": test.metric,
        f"baseline_{kind}": test.baseline,
        f"candidate_{kind}": test.candidate,
        "delta": test.delta,
        "significant": test.significant,
        "significant_improvement": test.significant_improvement,
        "baseline_total" if size else "n_baseline": test.n_baseline,
        "candidate_total" if size else "n_candidate": test.n_candidate,
    }
    for key, value in exact.items():
        assert value == (expected[key] if isinstance(value, str | bool) else pytest.approx(expected[key], abs=1e-9)), (
            key
        )
    assert (test.n_per_arm_80pct, test.unit) == (estimate["n_per_arm_80pct"], estimate["unit"])
    drawn = (test.p_value, test.interval.low, test.interval.high)
    assert drawn == pytest.approx((expected["p_value"], expected["ci_low"], expected["ci_high"]), abs=tolerance)
    if kind == "mean":
        assert test.cohens_d == pytest.approx(expected["cohens_d"], abs=1e-9)
    else:
        assert test.p_value == pytest.approx(expected["p_value"], rel=1e-9)


@pytest.mark.parametrize("name", REPORTS)
def test_significance_reference(name: str, reports: Any) -> None:
    case, got, _ = reports[name]
    expected = case["expected"]
    estimates = {estimate["metric"]: estimate for estimate in expected["sample_size_estimates"]}
    there = [test for test in expected["mean_tests"] if test["n_baseline"]]
    assert [test["metric"] for test in expected["mean_tests"] if test not in there] == ["gen_gram_entropy_delta"]
    for test, wanted in zip((*got.means, got.rate), (*there, expected["rate_test"]), strict=True):
        agrees(test, wanted, estimates[wanted["metric"]], case["abs_tol"])
    if name == "report_degradation":  # the reference has no word for it, and says that evidence is missing
        assert got.recommendation == Recommendation.DEGRADATION == "significant_degradation"
        assert expected["recommendation"] == Recommendation.INSUFFICIENT
    else:
        assert got.recommendation == expected["recommendation"]


@pytest.mark.parametrize("name", REPORTS)
def test_litmus_reference(name: str, reports: Any) -> None:
    case, _, got = reports[name]
    expected = case["expected"]
    assert got.status == expected["litmus_status"]
    assert list(got.evidence_failures) == expected["evidence_failures"]
    for check, wanted in zip(got.checks, expected["litmus_checks"], strict=True):
        record = {key: getattr(check, key) for key in wanted}
        assert {k: v for k, v in record.items() if not isinstance(v, float)} == {
            k: v for k, v in wanted.items() if not isinstance(v, float)
        }
        floats = {k: v for k, v in record.items() if isinstance(v, float)}
        assert floats == pytest.approx({k: wanted[k] for k in floats}, abs=1e-9)


def test_litmus_needs_a_run_in_each_arm() -> None:
    run = LoggedRun("only", tuple(LoggedStep(0.5, 16, 32, 0.1, 8) for _ in range(8)), (1.0,) * 32)
    assert litmus([run], []).evidence_failures == ("candidate:0 runs; needs >= 1.",)
    assert litmus([run], [run], LitmusProfile(reward=0.0, rate=0.0, gram=0.0)).status is Status.CONFIRMED
    assert litmus([run], [run]).status is Status.FAILED
    with pytest.raises(ValueError, match="no step or no generation"):
        significance([run], [LoggedRun("empty", run.steps, ())])


@pytest.mark.parametrize(
    ("differences", "significant", "said"),
    [
        ([0.1, 0.2], True, Recommendation.IMPROVEMENT),
        ([-0.1, -0.2], True, Recommendation.DEGRADATION),
        ([0.1, -0.2], True, Recommendation.INSUFFICIENT),
        ([0.1, 0.0], True, Recommendation.INSUFFICIENT),
        ([0.1, 0.2], False, Recommendation.INSUFFICIENT),
        ([], True, Recommendation.INSUFFICIENT),
    ],
)
def test_a_claim_needs_figures_that_agree(differences: list[float], significant: bool, said: Recommendation) -> None:
    assert recommended(differences, significant=significant) is said


def test_correct_is_two_things_reference() -> None:
    case = cases("stats.report")["correctness_threshold_mismatch"]
    counts = {rule: sum(map(rule.is_correct, case["inputs"]["rewards"])) for rule in Correct}
    assert [counts[Correct.TEXTPOLICY], counts[Correct.RETRAIN]] == list(case["expected"].values())


def test_selected_generations_reference() -> None:
    for name, case in cases("logging").items():
        i = case["inputs"]
        assert selected_generations(i["rewards"], i["samples_per_prompt"] or None) == case["expected"], name
    with pytest.raises(ValueError, match="None logs all"):
        selected_generations([0.0], 0)


# -- Written and read -------------------------------------------------------------------------------------------------

RETRAIN_KEYS = {"step", "prompt", "completion", "reward", "num_tokens"}
TEXTPOLICY_KEYS = {"tokens", "logprobs", "entropy_per_token", "metadata"}
OUR_KEYS = {"sample_index", "group_size", "selection"}


def played(attempt: int, reward: float | None, turns: int = 2) -> Trajectory:
    made = [
        Turn(n, [], [7, 8], [-0.1, -0.2], [0.3, 0.5], [False] * 2, "length" if n else "stop", f"reply {n}")
        for n in range(turns)
    ]
    if reward is None:
        return Trajectory("a", "h", attempt, 0, [1], made, "infrastructure")
    return Trajectory("a", "h", attempt, 0, [1], made, "submitted", reward, reward == 1.0, reward)


def test_what_is_written_is_read_by_both_readers(tmp_path: Path) -> None:
    folder = tmp_path / "none_s42" / "emergence"
    folder.mkdir(parents=True)
    group = [played(0, 0.0), played(1, 1.0), played(2, None), played(3, 1.0, turns=1)]
    for step in (1, 2):
        append_line(folder / "steps.jsonl", step_row(step, group, condition="none", uncertainty_kind="shannon_entropy"))
        for row in generation_rows(step, group, "p" * 300):
            assert set(row) >= RETRAIN_KEYS | TEXTPOLICY_KEYS | OUR_KEYS
            append_line(folder / "generations.jsonl", row)
    run = read_run(folder)
    assert (run.name, run.rewards) == ("none_s42", (0.0, 1.0, 1.0) * 2)
    assert run.steps == (LoggedStep(pytest.approx(2 / 3), 2, 3),) * 2
    reader = Reader()
    lines = [json.loads(line) for line in (folder / "generations.jsonl").read_text().splitlines()]
    episodes = [episode for line in lines for episode in reader.read(line)]
    assert [episode.reward for episode in episodes] == [0.0, 1.0, 1.0] * 2
    assert episodes[0].turns[0].ids == [7, 8, 7, 8] and episodes[0].turns[0].reply == "reply 0\nreply 1"
    assert (lines[0]["selection"], lines[0]["group_size"], lines[2]["sample_index"]) == ("all", 4, 3)
    assert len(lines[0]["prompt"]) == 200


def test_best_of_is_marked_and_missing_figures_are_not_zero() -> None:
    group = [played(0, 0.0), played(1, 1.0)]
    (row,) = generation_rows(3, group, "p", most=1)
    assert (row["selection"], row["sample_index"], row["reward"]) == ("best_of", 1, 1.0)
    group[1].turns[1].entropies = None
    assert next(generation_rows(3, group[1:], "p"))["entropy_per_token"] is None
    empty = step_row(3, [played(0, None)], condition="none", uncertainty_kind="surprisal")
    assert (empty["mean_reward"], empty["total_count"], empty["excluded_count"]) == (None, 0, 1)
    full = step_row(3, [played(0, 0.0)], condition="none", uncertainty_kind="surprisal")
    assert full["max_tokens_hit_rate"] == 0.5 and full["entropy_mean"] == pytest.approx(0.4)


def test_steps_without_a_reward_are_left_out(tmp_path: Path) -> None:
    append_line(tmp_path / "steps.jsonl", step_row(1, [played(0, None)], condition="n", uncertainty_kind="surprisal"))
    assert read_run(tmp_path).steps == ()


def test_a_learning_curve_has_a_band_and_names_the_runs_that_cut_it() -> None:
    rewards = {"a": [0.1, 0.4, 0.5], "b": [0.3, 0.4], "c": [0.2, 0.7, 0.9]}
    runs = [LoggedRun(name, tuple(LoggedStep(r, 0, 1) for r in values), ()) for name, values in rewards.items()]
    curve = learning_curve(runs)
    assert curve.mean == pytest.approx((0.2, 0.5)) and curve.short == ("b",)
    # Student's t with 2 degrees of freedom is 4.303 at 97.5 %; the standard deviation of the first step is 0.1.
    assert curve.high[0] - curve.mean[0] == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert curve.low[0] == pytest.approx(0.2 - (curve.high[0] - 0.2))
    with pytest.raises(ValueError, match="2 or more runs"):
        learning_curve(runs[:1])
