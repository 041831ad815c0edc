from __future__ import annotations

import pytest
import torch

from trainers.run.weight_delta import WeightDelta


def shares(fresh: bool, steps: int = 8) -> list[dict[str, float]]:
    """Adam on gradients of random sign; `fresh` makes a new optimizer for each step, as the reference run did."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.Linear(400, 10))
    model[1].requires_grad_(False)
    delta, out = WeightDelta(), []
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(steps):
        if fresh:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        for parameter in model[0].parameters():
            parameter.grad = torch.randn_like(parameter)
        delta.begin(model, 1e-3)
        optimizer.step()
        out.append(delta.end(model))
    return out


def test_a_step_of_a_new_adam_moves_every_weight_by_the_rate():
    trained = 400 * 400 + 400
    for figures in shares(fresh=True):
        assert figures["update/weight_delta_share"] == pytest.approx(1.0, abs=1e-3)
        assert figures["update/weight_delta"] == pytest.approx(1e-3 * trained**0.5, rel=1e-3)


def test_an_adam_that_keeps_its_state_moves_less():
    kept = [figures["update/weight_delta_share"] for figures in shares(fresh=False)]
    assert kept[0] == pytest.approx(1.0, abs=1e-3) and max(kept[1:]) < 0.9


def test_without_a_rate_or_weights_there_is_no_figure():
    model = torch.nn.Linear(2, 2)
    delta = WeightDelta()
    delta.begin(model, 0.0)
    assert delta.end(model) == {}
    model.requires_grad_(False)
    delta.begin(model, 1e-3)
    assert delta.end(model) == {} and delta.end(model) == {}
