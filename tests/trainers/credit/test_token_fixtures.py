"""GTPO, HICRA, SEPA, entropy mask and signals against the reference implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.trainers.credit.fixtures import cases, one_row
from trainers.credit.metrics import moments
from trainers.credit.settings import SepaMode, SepaSchedule
from trainers.credit.token.operators import exact_top, gtpo, hicra, sepa_signal
from trainers.credit.token.signals import TokenSignal, entropy, predictive_variance, surprisal, token_signal
from trainers.credit.token.tokens import Schedule


def weighted(advantage, signal, beta):
    capped = surprisal(-np.array(signal))
    return advantage * gtpo(one_row(capped.tolist(), advantage, gtpo_beta=beta))[0, : len(signal)]


def test_gtpo():
    for case in cases("gtpo"):
        i = case["inputs"]
        if case["id"] == "gtpo_weight_bounds":
            low = gtpo(one_row([0.0, 1.0], gtpo_beta=i["beta"])).min()
            assert low == pytest.approx(case["expected"]["min_weight_nonneg_surprisal"])
            # Three signals with mean 1: -9 gives exactly 0, a little more does not.
            edge = case["expected"]["weight_zero_when_S_over_mean_below"]
            assert gtpo(one_row([edge, 6, 6], gtpo_beta=i["beta"]))[0, 0] == pytest.approx(0, abs=1e-7)
            assert gtpo(one_row([edge + 1, 5.5, 5.5], gtpo_beta=i["beta"]))[0, 0] > 0.05
            continue
        got = weighted(i["advantage"], i.get("surprisals", i.get("surprisals_after")), i["beta"])
        assert got == pytest.approx(np.array(case["expected"]), abs=case["abs_tol"]), case["id"]


def test_hicra():
    for case in cases("hicra"):
        i = case["inputs"]
        values = np.array(i["token_advs"])
        tokens = one_row([0.0] * len(values), float(np.sign(values[0])), i["planning_mask"], hicra_alpha=i["alpha"])
        if i["alpha"] > 1:  # the reference turns negative advantages round: refused here
            with pytest.raises(ValueError, match="hicra: alpha 1.5"):
                hicra(tokens)
            continue
        assert values * hicra(tokens)[0] == pytest.approx(np.array(case["expected"]), abs=case["abs_tol"]), case["id"]


@pytest.mark.parametrize(
    ("group", "mode"),
    [("sepa.pool", SepaMode.POOL), ("sepa.amp", SepaMode.AMP), ("sepa.amp_clamped", SepaMode.AMP_CLAMPED)],
)
def test_sepa(group, mode):
    for case in cases(group):
        i, wanted = case["inputs"], case["expected"]
        if case["id"] == "sepa_variance_law":
            for row in wanted:
                pooled = sepa_signal(np.array([i["surprisals"]]), np.ones((1, 5), dtype=bool), row["lambda"])
                assert pooled.var() == pytest.approx(row["var"], abs=case["abs_tol"])
            continue
        execution = np.array([i["planning_mask"]]) == 0
        signal = np.array([i["surprisals"]])
        if i["lambda"] > 0:
            signal = surprisal(-signal)  # lambda 0 leaves the signal as it comes; ours comes capped, always
        got = sepa_signal(signal, execution, i["lambda"], mode)[0]
        pooled = wanted["pooled"] if isinstance(wanted, dict) else wanted
        assert got == pytest.approx(np.array(pooled), abs=case["abs_tol"]), case["id"]
        if isinstance(wanted, dict):
            assert signal[execution].mean() == pytest.approx(wanted["exec_mean"])


def test_sepa_schedule():
    for case in cases("sepa.schedule"):
        i, wanted = case["inputs"], case["expected"]
        if case["id"].startswith("sched_linear"):
            schedule = Schedule(steps=i["sepa_steps"], delay=i["sepa_delay_steps"], gate=0)
            got = {step: schedule.linear(int(step)) for step in wanted}
            assert got == pytest.approx(wanted, abs=case["abs_tol"])
        elif case["id"] == "sched_gate_sticky_and_jump":
            schedule = Schedule(steps=i["steps"], delay=i["delay"], gate=i["gate"])
            for row in wanted:
                schedule.step = row["step"]
                assert schedule.value() == pytest.approx(row["lambda_used"])
                schedule.see(row["correct_rate_seen_after_rollout"])
                assert schedule.open == row["gate_open_after"]
        elif case["id"] == "sched_auto_ema":
            schedule = auto(i, gate=0, steps=i["sepa_steps"])
            for row in wanted:
                schedule.see_variance(variance(row["exec_entropies"]))
                got = (schedule.mean, schedule.first, schedule.seen, schedule.automatic())
                assert got == pytest.approx((row["var_ema"], row["var_0"], row["warmup_seen"], row["auto_lambda"]))
        elif case["id"] == "sched_auto_ignores_delay":
            schedule = auto(i, gate=0, steps=i["sepa_steps"], delay=i["delay"])
            for update in i["updates"]:
                schedule.see_variance(variance(update))
            assert schedule.value() == wanted["lambda_step_0"]
            schedule.step = 10
            assert schedule.value() == wanted["lambda_step_10"]
        else:
            assert case["id"] == "sched_auto_filters_bad_values"
            values = np.array([[float(value) for value in i["exec_entropies"]]])
            with pytest.raises(ValueError, match="not finite"):  # the reference leaves them out
                token_signal(TokenSignal.ENTROPY, np.ones(values.shape, dtype=bool), None, values)
            schedule = Schedule(SepaSchedule.AUTO)
            schedule.see_variance(variance(values[np.isfinite(values) & (values >= 0)]))
            assert schedule.mean == pytest.approx(wanted["var_ema"])


def variance(values):
    return moments(np.array([values]), np.ones((1, len(values)), dtype=bool)).variance


def auto(inputs, **more):
    return Schedule(SepaSchedule.AUTO, decay=inputs["ema_decay"], warmup=inputs["warmup"], threshold=0.2, **more)


def test_a_gate_that_is_not_open_holds_the_automatic_part_back():
    schedule = auto({"ema_decay": 0.0, "warmup": 1}, gate=0.5)
    for update in ([0.0, 1.0], [0.1, 0.1]):
        schedule.see(0.4, variance(update))
    assert (schedule.automatic(), schedule.value()) == (1.0, 0.0)
    for unknown in (None, math.nan):
        schedule.see(unknown)
        assert not schedule.open
    schedule.see(0.5)
    assert schedule.value() == 1.0


def test_entropy_mask():
    """As recorded where nothing ties; exactly the requested number where the reference keeps every tie."""
    for case in cases("entropy_mask"):
        i, wanted = case["inputs"], case["expected"]
        signal = np.array([i["entropies"]])
        mask = np.ones(signal.shape, dtype=bool)
        if i["rho"] == 0:  # the reference masks everything; here it is refused, and off means not in the list
            with pytest.raises(ValueError, match="share 0.0"):
                exact_top(signal, mask, i["rho"])
            continue
        kept = exact_top(signal, mask, i["rho"])[0]
        if case["id"] == "mask_ties_inert":
            assert wanted["kept"] == 10 and kept.tolist() == [True, *[False] * 8, True]
            continue
        assert kept.astype(float).tolist() == wanted["advs_after_mask_of_ones"], case["id"]
        assert kept.sum() == wanted["kept"]


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.999])
def test_exact_share_and_earlier_ties_whatever_the_values(share):
    rng = np.random.default_rng(3)
    for values in (rng.exponential(size=4000), np.zeros(4000), np.repeat([0.0, 1.0], 2000), rng.integers(0, 3, 4000)):
        mask = rng.random((1, 4000)) < 0.7
        kept = exact_top(np.asarray(values, dtype=float)[None], mask, share)[0]
        at = np.flatnonzero(mask[0])
        order = sorted(at, key=lambda t: (-values[t], t))
        assert np.flatnonzero(kept).tolist() == sorted(order[: max(1, int(len(at) * share))])


def test_signals():
    for case in cases("uncertainty"):
        i, wanted, close = case["inputs"], case["expected"], {"abs": case["abs_tol"]}
        lps = np.array(i.get("logprobs", [0.0]))
        if case["id"] == "uncertainty_surprisal":
            assert surprisal(lps) == pytest.approx(np.array(wanted), **close)
        elif case["id"] == "uncertainty_predictive_variance":
            assert predictive_variance(lps) == pytest.approx(np.array(wanted), **close)
        elif "rank_surprisal" in wanted:
            ranks = [np.argsort(np.argsort(f(lps))).tolist() for f in (surprisal, predictive_variance)]
            assert ranks == [wanted["rank_surprisal"], wanted["rank_predictive_variance"]]
            assert (ranks[0] == ranks[1]) is wanted["equal"]
        elif case["id"] == "uncertainty_gtpo_weights_differ_same_rank":
            for signal, key in (("surprisal", "w_surprisal"), ("predictive_variance", "w_predvar")):
                assert weighted(i["advantage"], i[signal], i["beta"]) == pytest.approx(np.array(wanted[key]), **close)
        elif case["id"] == "uncertainty_shannon_precomputed":
            assert entropy(np.array(i["precomputed_entropy"])).tolist() == wanted
        elif case["id"] == "uncertainty_shannon_from_dists":
            # The sampler computes entropies (agents.policies); the formula is the one of the record.
            assert [nats(p) for p in i["token_distributions"]] == pytest.approx(wanted, **close)
        else:
            assert case["id"] == "paper_entropy_example_bits"
            low, high = nats([0.1, 0.9]), nats([0.1, *[0.0009] * 1000])
            assert low / math.log(2) == pytest.approx(wanted["low_bits"], **close)
            assert (high / math.log(2), high) == pytest.approx((wanted["high_bits"], wanted["high_nats"]), **close)


def nats(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def test_what_was_not_sampled_is_not_read():
    mask = np.array([[True, False]])
    got = token_signal(TokenSignal.SURPRISAL, mask, np.array([[-1.0, -np.inf]]), None)
    assert got.tolist() == [[1.0, 0.0]]
    with pytest.raises(ValueError, match="surprisal: log-probabilities that are not finite"):
        token_signal(TokenSignal.SURPRISAL, ~mask, np.array([[-1.0, -np.inf]]), None)
    with pytest.raises(ValueError, match="entropy needs entropies"):
        token_signal(TokenSignal.ENTROPY, mask, np.zeros((1, 2)), None)
    with pytest.raises(ValueError, match=r"shape \(1, 3\)"):
        token_signal(TokenSignal.SURPRISAL, mask, np.zeros((1, 3)), None)
