"""Plain GRPO through our trainer is TRL's GRPO: same trajectories, same rewards, same losses and weights.

What equality: bit for bit where the advantages are exact in both (rewards in eighths, K = 4, no division). With a
division TRL computes deviations in float32 and we in float64, so advantages differ in their last digit; losses then
agree to 1e-6.
"""

from __future__ import annotations

import copy

import pytest
import torch

from tests.trainers.replay import make_stock, record, replay
from tests.trainers.toy import make_model, make_tokenizer, make_trainer
from trainers.settings.training import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN = {"beta_turn": 0.0, "turn_grouping": "none", "max_steps": 5}


@pytest.fixture(scope="module")
def batches(tmp_path_factory):
    return record(tmp_path_factory.mktemp("record"), 5)


def with_rewards(batches, reward):
    out = copy.deepcopy(batches)
    for played in out:
        for episode in played.episodes:
            episode.reward = reward(episode.reward)
    return out


def eighths(reward):
    """A reward whose group means are exact in float32, too."""
    return round(16 * reward) / 8


def run_both(tmp_path, batches, **changes):
    ours = replay(make_trainer(tmp_path / "ours", **PLAIN, **changes), batches)
    ours.train()
    ours.close()
    stock = make_stock(tmp_path / "stock", batches, **PLAIN, **changes)
    stock.train()
    return ours, stock


def figures(trainer):
    return [{name: line[name] for name in ("loss", "grad_norm")} for line in trainer.logged if "loss" in line]


@pytest.mark.parametrize(
    "change",
    [
        *[{"loss_type": loss} for loss in LOSSES],
        {"num_iterations": 2, "steps_per_generation": 2, "per_device_train_batch_size": 4, "epsilon_high": 0.28},
    ],
    ids=lambda change: next(iter(change.values())) if "loss_type" in change else "reused-batches",
)
def test_losses_and_weights_equal_trls_bit_for_bit(tmp_path, batches, change):
    ours, stock = run_both(tmp_path, with_rewards(batches, eighths), **change)
    assert figures(ours) == figures(stock) and len(figures(ours)) == 5
    assert any(line["grad_norm"] > 1e-3 for line in figures(ours))
    for a, b in zip(ours.model.parameters(), stock.model.parameters(), strict=True):
        assert torch.equal(a, b)
    # What TRL logs keeps its name and value; the fields of ours stand beside it.
    theirs = [line for line in stock.logged if "loss" in line]
    for line, want in zip([line for line in ours.logged if "loss" in line], theirs, strict=True):
        differs = {k for k in want if "time" not in k and "runtime" not in k and line[k] != want[k]}
        assert not differs


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_scaled_advantages_equal_trls_to_float32(tmp_path, batches, scale):
    """With the rewards as they are; the five losses agree to 1e-6, the weights to 5e-5 of what they moved."""
    ours, stock = run_both(tmp_path, batches, scale_rewards=scale)
    for a, b in zip(figures(ours), figures(stock), strict=True):
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-6)
        assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=1e-5)
    start = list(make_model(make_tokenizer()).parameters())
    moved = torch.cat([(a - s).flatten() for a, s in zip(ours.model.parameters(), start, strict=True)])
    pairs = zip(ours.model.parameters(), stock.model.parameters(), strict=True)
    apart = torch.cat([(a - b).flatten() for a, b in pairs])
    assert apart.norm() < 5e-5 * moved.norm()


def test_turn_credit_is_not_plain_grpo(tmp_path, batches):
    """The comparison can fail."""
    ours = replay(make_trainer(tmp_path / "ours", max_steps=2, beta_turn=0.3), batches)
    ours.train()
    ours.close()
    stock = make_stock(tmp_path / "stock", batches, max_steps=2)
    stock.train()
    assert figures(ours) != figures(stock)
