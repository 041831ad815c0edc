from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from agents.policies.draw import Cut, choose, kept, know, logprobs_of, uniforms


@pytest.mark.parametrize(
    ("cut", "temperature", "left"),
    [
        (Cut(), 1.0, {0, 1, 2, 3}),
        (Cut(top_k=2), 1.0, {1, 3}),
        (Cut(top_p=0.49), 1.0, {1}),
        (Cut(top_p=0.51), 1.0, {1, 3}),
        (Cut(top_p=0.9), 1.0, {1, 3, 0}),
        (Cut(top_p=0.6, top_k=2), 1.0, {1}),  # of the two that are left 0.625 is the first's share
        (Cut(top_p=0.6), 3.0, {1, 3}),
        (Cut(top_p=1e-9, top_k=1), 1.0, {1}),
    ],
)
def test_what_is_cut_off_is_never_drawn_and_the_rest_shares_its_probability(
    cut: Cut, temperature: float, left: set[int]
) -> None:
    """Probabilities 0.15, 0.5, 0.05, 0.3; the uncertainty stays that of all of them."""
    plain = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=torch.float64)
    draws = 4000
    known = know(plain.log().float().expand(draws, 4))
    ids = choose(known, temperature, torch.from_numpy(uniforms(0, draws)), cut)
    assert set(ids.tolist()) == left
    tempered = plain ** (1 / temperature)
    share = torch.stack([tempered[i] if i in left else tempered[i] * 0 for i in range(4)])
    expected = share / share.sum()
    assert logprobs_of(known, ids, temperature, cut).exp().numpy() == pytest.approx(expected[ids].numpy(), abs=1e-5)
    found = torch.bincount(ids, minlength=4) / draws
    assert found.numpy() == pytest.approx(expected.numpy(), abs=0.04)
    assert known.entropies[0].item() == pytest.approx(-(plain * plain.log()).sum().item(), abs=1e-5)


def test_of_equal_ids_exactly_top_k_stay_and_greedy_is_not_cut() -> None:
    known = know(torch.zeros(1, 6))
    assert kept(known.weights, Cut(top_k=2)).tolist() == [[True, True, False, False, False, False]]
    assert kept(known.weights, Cut(top_p=0.5)).sum() == 3
    assert choose(known, 0.0, None, Cut(top_k=1)).item() == 0
    assert logprobs_of(known, torch.tensor([5]), 0.0, Cut(top_k=1)).item() == pytest.approx(-math.log(6))


def test_entropy_and_logprobs_against_float64() -> None:
    torch.manual_seed(0)
    logits = torch.randn(50, 1000) * torch.logspace(-1, 2, 50).unsqueeze(1) + 1000.0
    known = know(logits)
    exact = logits.double().log_softmax(-1)
    assert known.entropies.numpy() == pytest.approx(-(exact.exp() * exact).sum(-1).numpy(), abs=2e-5)
    assert known.max_logprobs.numpy() == pytest.approx(exact.amax(-1).numpy(), abs=2e-5)
    ids = torch.randint(0, 1000, (50,))
    near = exact.gather(1, ids[:, None])[:, 0]
    keep = near > -50
    assert logprobs_of(known, ids, 1.0)[keep].numpy() == pytest.approx(near[keep].numpy(), abs=1e-4)


def test_entropies_of_a_large_vocabulary_are_exact() -> None:
    logits = torch.randn(8, 49_152, generator=torch.Generator().manual_seed(0)) * 4
    plain = logits.double().log_softmax(-1)
    assert know(logits).entropies.numpy() == pytest.approx(-(plain.exp() * plain).sum(-1).numpy(), abs=1e-5)


def test_masked_logits_make_no_nan_and_are_never_drawn() -> None:
    logits = torch.full((1, 6), float("-inf"))
    logits[0, 2], logits[0, 4] = 1.0, 1.0
    known = know(logits)
    assert known.entropies.item() == pytest.approx(np.log(2), abs=1e-6)
    drawn = {
        int(choose(known, 1.0, torch.tensor([u], dtype=torch.float64)))
        for u in [0.0, 0.25, 0.4999, 0.5, 0.75, 1 - 2**-53]
    }
    assert drawn == {2, 4}


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_distribution(temperature: float) -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0])
    expected = (logits / temperature).softmax(-1).numpy()
    draws = 20_000
    known = know(logits.expand(draws, 4))
    ids = choose(known, temperature, torch.from_numpy(uniforms(0, draws)))
    shares = np.bincount(ids.numpy(), minlength=4) / draws
    assert shares == pytest.approx(expected, abs=0.015)
    assert logprobs_of(known, ids, temperature).exp().numpy() == pytest.approx(expected[ids.numpy()], abs=1e-6)


def test_greedy_reports_temperature_one() -> None:
    known = know(torch.tensor([[0.0, 3.0, 1.0]]))
    ids = choose(known, 0.0, None)
    assert ids.item() == 1
    assert logprobs_of(known, ids, 0.0).item() == pytest.approx(known.max_logprobs.item())


def test_uniforms_are_a_stream_per_seed() -> None:
    assert uniforms(7, 100)[:10].tolist() == uniforms(7, 10).tolist()
    assert uniforms(7, 10).tolist() != uniforms(8, 10).tolist()
    assert uniforms(0, 10).tolist() != uniforms(1, 10).tolist()
    assert uniforms(2**63 - 1, 1).shape == (1,)
