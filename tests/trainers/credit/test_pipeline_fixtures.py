"""Whole compositions against the reference implementation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.trainers.credit.fixtures import cases, padded, text_of
from trainers.credit import Credit, CreditBatch, CreditSettings, EpisodeOperator
from trainers.credit.metrics import moments
from trainers.credit.token import DelightMode, DelightNorm, SepaMode, TokenSignal, token_signal

MODES = {
    "none": ((), {}),
    "gtpo": (("gtpo",), {}),
    "gtpo_hicra": (("gtpo", "hicra"), {}),
    "gtpo_sepa": (("sepa", "gtpo"), {}),
    "gtpo_sepa_amp": (("sepa", "gtpo"), {"sepa_mode": SepaMode.AMP}),
    "gtpo_sepa_amp_c": (("sepa", "gtpo"), {"sepa_mode": SepaMode.AMP_CLAMPED}),
    "entropy_mask": (("gtpo", "entropy_mask"), {}),
    "delight": (("delight",), {}),
    "delight_sepa": (("delight",), {"delight_mode": DelightMode.ANNEALED, "delight_norm": DelightNorm.SCALE}),
    "hard_delight": (("delight",), {"delight_mode": DelightMode.HARD}),
}
NAMES = {"delight_k_frac": "delight_keep", "delight_eta": "delight_eta", "delight_lambda": "delight_lambda"}
NORMS = {"none": DelightNorm.NONE, "scale": DelightNorm.SCALE, "mad_scale": DelightNorm.MAD}


def settings_of(inputs):
    operators, more = MODES[inputs["transform_mode"]]
    made = {"token_operators": ",".join(operators), "sepa_gate": 0.0, "sepa_steps": 1000, "sepa_delay": 0, **more}
    for name in ("gtpo_beta", "hicra_alpha"):
        if name in inputs:
            made[name] = inputs[name]
    for name, value in inputs.get("transform_params", {}).items():
        if name == "uncertainty_kind":
            made["token_signal"] = TokenSignal(value)
        elif name == "delight_norm_mode":
            made["delight_norm"] = NORMS[value]
        else:
            made[NAMES[name]] = value
    share = inputs.get("post_process_params", {}).get("entropy_mask_rho")
    if share:
        made["entropy_mask_share"] = share
    elif "entropy_mask" in operators:  # rho 0 is off in the reference: leave the operator out
        made["token_operators"] = ",".join(name for name in operators if name != "entropy_mask")
    if made.get("delight_mode") is DelightMode.HARD and "delight_lambda" not in made:
        made["delight_lambda"] = inputs.get("sepa_lambda", 0.0)  # ours is 1 by default: not inert
    # REINFORCE++ of the reference normalises later, elsewhere: its advantages here are the centred ones.
    operator = {"maxrl": EpisodeOperator.MAXRL}.get(inputs["advantage_mode"], EpisodeOperator.GRPO)
    return CreditSettings(episode_operator=operator, beta_turn=0.0, **made, planning="plan", planning_window=1)


def test_compositions():
    seen = 0
    for case in cases("pipeline"):
        i, wanted, close = case["inputs"], case["expected"], case["abs_tol"]
        credit = Credit(settings_of(i))
        credit.state.schedule.step = round(1000 * i.get("sepa_lambda", 0.0))
        logprobs, mask = padded(i["logprobs"])
        text = text_of([["plan" if on else "x" for on in row] for row in i["planning_masks"]])
        batch = CreditBatch(
            i["rewards"], [[]] * 4, np.where(mask, 0, -1), 4, logprobs=logprobs, tokens=text, passed=[True] * 4
        )
        batch = replace(batch, turns=[[turn()] for _ in range(4)])
        result = credit.assign(batch)
        for got, row in zip(result.advantages, wanted["token_advs"], strict=True):
            assert got[: len(row)] == pytest.approx(np.array(row), abs=close), case["id"]
            assert not got[len(row) :].any()
        signal = token_signal(credit.settings.token_signal, mask, logprobs, None)
        plan, _ = padded(i["planning_masks"])
        for name, on in (("exec", mask & (plan == 0)), ("plan", mask & (plan == 1))):
            assert moments(signal, on) == pytest.approx(
                tuple(wanted["stats"][f"{name}_{figure}"] for figure in ("count", "mean", "var")), abs=close
            )
            if "credit/post_exec_signal_var" in result.metrics:
                assert (
                    result.metrics[f"credit/post_{name}_signal_mean"],
                    result.metrics[f"credit/post_{name}_signal_var"],
                ) == pytest.approx(
                    (wanted["stats"][f"post_{name}_mean"], wanted["stats"][f"post_{name}_var"]), abs=close
                )
        check_figures(case, wanted["extra_metrics"], result.metrics, result, mask)
        seen += 1
    assert seen == 21


def check_figures(case, wanted, got, result, mask):
    ours = {
        "dg_gate_mean": "credit/delight_gate_mean",
        "dg_breakthrough_frac": "credit/delight_breakthrough_frac",
        "dg_suppressed_frac": "credit/delight_suppressed_frac",
        "dg_neutral_frac": "credit/delight_neutral_frac",
    }
    for theirs, name in ours.items():
        if theirs in wanted:
            assert got[name] == pytest.approx(wanted[theirs], abs=case["abs_tol"]), (case["id"], theirs)
    if "entropy_mask_fraction" in wanted:  # the reference counts what is masked
        assert 1 - got["credit/mask_kept"] == pytest.approx(wanted["entropy_mask_fraction"])
    if "hard_dg_active_frac" in wanted and wanted["hard_dg_lambda"] == 1:
        assert got["credit/delight_kept"] == pytest.approx(wanted["hard_dg_active_frac"])
    for bias in ("dg_net_advantage_bias", "hard_dg_net_bias"):
        if bias in wanted:
            uniform = (result.episode[:, None] * mask).sum()
            assert result.advantages.sum() - uniform == pytest.approx(wanted[bias], abs=1e-8)


def turn():
    from trainers.credit import TurnRecord

    return TurnRecord(None, "")
