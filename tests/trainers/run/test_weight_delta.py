from __future__ import annotations

import pytest
import torch

from trainers.run.callback import WeightDelta


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
        out.append(delta.end()[0])
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
    assert delta.end()[0] == {}
    model.requires_grad_(False)
    delta.begin(model, 1e-3)
    figures, update = delta.end(advantages=7.0)
    assert figures == {} and (update.moved, update.advantages) == (0.0, 7.0)
    assert delta.end() == ({}, None)


@pytest.mark.parametrize(
    ("dtype", "rate", "visible"), [("float32", 1e-6, 1.0), ("bfloat16", 1e-3, 1.0), ("bfloat16", 1e-7, 0.0)]
)
def test_it_knows_whether_a_step_of_the_rate_could_be_seen(dtype, rate, visible):
    """A bfloat16 has 8 bits: below 1/512 of a weight a change is rounded away."""
    model = torch.nn.Linear(40, 40, bias=False).to(getattr(torch, dtype))
    torch.nn.init.constant_(model.weight, 0.02)
    delta = WeightDelta()
    delta.begin(model, rate)
    _, update = delta.end()
    assert (update.moved, update.dtype) == (0.0, dtype)
    assert update.visible == pytest.approx(visible, abs=0.05)


def test_it_tells_no_gradient_from_one_of_zeros():
    model = torch.nn.Linear(4, 4)
    for gradient, slope in ((None, None), (0.0, False), (1e-30, True)):
        delta = WeightDelta()
        delta.begin(model, 1e-3)
        for parameter in model.parameters():
            parameter.grad = None if gradient is None else torch.full_like(parameter, gradient)
        delta.gradients()
        assert delta.end()[1].slope is slope


def test_weights_that_are_frozen_within_the_step_are_still_compared():
    model = torch.nn.Linear(4, 4)
    delta = WeightDelta()
    delta.begin(model, 1e-3)
    model.requires_grad_(False)
    with torch.no_grad():
        model.weight += 1.0
    assert delta.end()[1].moved == pytest.approx(4.0)
