"""Delight's gates, normalising and temperature against the reference implementation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.trainers.credit.fixtures import cases, one_row, padded
from trainers.credit import episode_advantages
from trainers.credit.settings import DelightMode, DelightNorm, TokenSettings
from trainers.credit.token.operators import adaptive_eta, delight, hard_gate, soft_gate, spreads
from trainers.credit.token.signals import surprisal

NORMS = {"none": DelightNorm.NONE, "scale": DelightNorm.SCALE, "mad_scale": DelightNorm.MAD}


def scaled(signal, norm):
    values, mask = padded([signal])
    return values / spreads(values, mask, mask.sum(axis=1).astype(float), norm)[:, None]


def test_soft_gates():
    for case in cases("delight.soft"):
        i, wanted = case["inputs"], case["expected"]
        advantage = i["advantage"]
        if "zscore" in case["id"]:  # not offered: centring inverts the gates of most tokens
            z = (np.array(i["surprisals"]) - np.mean(i["surprisals"])) / np.std(i["surprisals"])
            gates = soft_gate(advantage * z[None], i["eta"])[0]
            assert gates == pytest.approx(np.array(wanted["gates"]), abs=1e-6)
            assert bool(gates.mean() < 0.5) is (advantage > 0)
            continue
        signal = scaled(i["surprisals"], NORMS[i["norm_mode"]])
        gates = soft_gate(advantage * signal, i["eta"])[0]
        assert gates == pytest.approx(np.array(wanted["gates"]), abs=case["abs_tol"]), case["id"]
        tokens = one_row(i["surprisals"], advantage, delight_eta=i["eta"], delight_norm=NORMS[i["norm_mode"]])
        assert advantage * delight(tokens)[0] == pytest.approx(np.array(wanted["token_advs"]), abs=case["abs_tol"])


def test_annealed():
    for case in cases("delight.annealed"):
        i = case["inputs"]
        tokens = one_row(
            i["surprisals"],
            i["advantage"],
            delight_mode=DelightMode.ANNEALED,
            delight_lambda=i["lambda"],
            delight_eta=i["eta"],
            delight_norm=NORMS[i["norm_mode"]],
        )
        got = i["advantage"] * delight(tokens)[0]
        assert got == pytest.approx(np.array(case["expected"]), abs=case["abs_tol"]), case["id"]


def test_hard():
    for case in cases("delight.hard"):
        i = case["inputs"]
        tokens = one_row(
            i["surprisals"],
            i["advantage"],
            delight_mode=DelightMode.HARD,
            delight_keep=i["k_frac"],
            delight_lambda=i.get("lambda"),
        )
        assert (i["advantage"] * delight(tokens)[0]).tolist() == pytest.approx(case["expected"]), case["id"]


def test_scale():
    for case in cases("delight.scale"):
        norm = DelightNorm.MAD if "mad" in case["id"] else DelightNorm.SCALE
        got = scaled(case["inputs"]["surprisals"], norm)[0]
        assert got == pytest.approx(np.array(case["expected"]), abs=case["abs_tol"]), case["id"]


def test_mad_without_a_spread_falls_back_to_the_deviation():
    signal = [1.0, 1.0, 1.0, 1.0, 6.0]
    assert scaled(signal, DelightNorm.MAD) == pytest.approx(scaled(signal, DelightNorm.SCALE))


def test_adaptive_eta():
    first, smoothed = cases("delight.eta")
    i = first["inputs"]
    logprobs, mask = padded(i["logprobs"])
    signal = surprisal(logprobs)
    signal /= spreads(signal, mask, mask.sum(axis=1).astype(float), NORMS[i["norm_mode"]])[:, None]
    settings = TokenSettings(delight_neutral=i["target_neutral_frac"])
    advantages = np.array(i["episode_advantages"])
    assert advantages.tolist() == episode_advantages([1.0, 0.0, 0.0, 0.0], 4).tolist()
    products = advantages[:, None] * signal
    eta = adaptive_eta(products, mask, settings, previous=None)
    assert eta == pytest.approx(first["expected"]["eta"], abs=first["abs_tol"])
    settings = TokenSettings(delight_eta_decay=smoothed["inputs"]["ema_decay"])
    eta = adaptive_eta(products, mask, settings, previous=smoothed["inputs"]["prev_eta"])
    assert eta == pytest.approx(smoothed["expected"]["eta"], abs=smoothed["abs_tol"])


def test_eta_without_any_advantage_stays():
    settings = TokenSettings(delight_eta=1.5)
    nothing = (np.zeros((2, 3)), np.zeros((2, 3), dtype=bool), settings)
    assert adaptive_eta(*nothing, previous=None) == 1.5
    assert adaptive_eta(*nothing, previous=0.7) == 0.7


def test_hard_gate_of_the_least_surprising_ignores_padding():
    kept = hard_gate(np.array([-1.0]), np.array([[3.0, 1.0, 0.0, 0.0]]), np.array([[True, True, False, False]]), 0.5)
    assert kept.tolist() == [[False, True, False, False]]
