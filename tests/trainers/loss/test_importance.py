"""The correction for a sampler that is not exactly the trained weights, and its silence where it is."""

from __future__ import annotations

import math

import pytest
import torch

from tests.trainers.replay import record, replay
from tests.trainers.test_options import gradient_of
from tests.trainers.toy import make_config, make_trainer
from trainers.errors import ConfigError
from trainers.loss import correct, importance_weights, log_ratios
from trainers.settings.checks import check_config
from trainers.settings.training import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore")

OLD = torch.tensor([[-1.0, -2.0, -3.0, -4.0]])
SAMPLED = torch.tensor([[-1.0, -3.0, -2.0, math.nan]])
ON = torch.tensor([[1, 1, 1, 1]])


def test_weights_by_hand():
    ratios = log_ratios(OLD, SAMPLED, ON)
    assert ratios.tolist() == [[0.0, 1.0, -1.0, 0.0]]  # a token that the sampler could not score is left as it is
    assert importance_weights(ratios, 2.0).tolist()[0] == pytest.approx([1.0, 2.0, math.exp(-1), 1.0])
    assert importance_weights(torch.tensor([200.0]), 2.0).tolist() == [2.0]  # exp overflows, the cap holds


def batch(**more):
    return {
        "completion_mask": ON,
        "tool_mask": torch.tensor([[1, 1, 1, 0]]),
        "sampling_per_token_logps": SAMPLED,
        "advantages": torch.tensor([[2.0, 2.0, -2.0, 5.0]]),
        **more,
    }


def test_only_masked_tokens_are_compared_and_weighted():
    inputs = batch(old_per_token_logps=OLD)
    seen = correct(inputs, OLD + 7, exact=False, cap=2.0, gather=lambda rows: rows)
    assert inputs["advantages"].tolist()[0] == pytest.approx([2.0, 4.0, -2 * math.exp(-1), 5.0])
    assert seen.tokens == 3 and seen.means["sampling/importance_capped_frac"] == pytest.approx(1 / 3)
    means, largest = seen.means, seen.largest
    assert means["sampling/logp_difference_mean"] == pytest.approx(2 / 3)
    assert means["sampling/importance_mean"] == pytest.approx((1 + 2 + math.exp(-1)) / 3)
    assert means["sampling/importance_capped_frac"] == pytest.approx(1 / 3)
    assert largest["sampling/importance_max"] == 2.0
    assert largest["sampling/ratio_max"] == pytest.approx(math.e)  # of either direction, before the cap


def test_a_cap_below_one_counts_trained_tokens_only():
    seen = correct(batch(), OLD, exact=False, cap=0.5, gather=lambda rows: rows)
    assert seen.means["sampling/importance_capped_frac"] == pytest.approx(2 / 3)  # not exp(-1)


def test_without_old_log_probabilities_the_trained_ones_count():
    inputs = batch()
    correct(inputs, OLD, exact=False, cap=10.0, gather=lambda rows: rows)
    assert inputs["advantages"].tolist()[0][1] == pytest.approx(2 * math.e)


def test_an_exact_sampler_changes_nothing_and_is_still_compared():
    inputs = batch()
    before = inputs["advantages"]
    seen = correct(inputs, OLD, exact=True, cap=2.0, gather=lambda rows: rows)
    assert inputs["advantages"] is before
    assert list(seen.means) == ["sampling/logp_difference_mean"]


def test_processes_are_joined():
    seen = correct(batch(), OLD, exact=True, cap=2.0, gather=lambda rows: torch.cat([rows, 2 * rows]))
    assert seen.tokens == 9 and seen.largest["sampling/logp_difference_max"] == 2.0
    assert seen.means["sampling/logp_difference_mean"] == pytest.approx(6 / 9)


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    return record(tmp_path_factory.mktemp("record"), 1)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_a_weight_in_the_advantage_is_a_weight_on_the_loss(tmp_path, monkeypatch, played, loss_type):
    """The same gradient as TRL's own correction, which multiplies the loss of each token (its vLLM path)."""
    trainer = replay(make_trainer(tmp_path, max_steps=1, loss_type=loss_type, num_iterations=2), played)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    noise = torch.Generator().manual_seed(0)
    shape, sampled = inputs["old_per_token_logps"].shape, inputs["sampling_per_token_logps"]
    inputs["old_per_token_logps"] = sampled + 0.3 * torch.randn(shape, generator=noise)
    inputs["sampling_per_token_logps"] = sampled + 0.5 * torch.randn(shape, generator=noise)
    uncorrected = gradient_of(trainer, inputs)

    monkeypatch.setattr(type(trainer.rollouts), "exact", property(lambda self: False))
    ours = gradient_of(trainer, inputs)
    monkeypatch.undo()

    ratio = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]).exp().clamp(max=2.0)
    trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    theirs = gradient_of(trainer, dict(inputs, importance_sampling_ratio=ratio))
    assert (ours - theirs).norm() < 1e-6 * theirs.norm()
    assert (ours - uncorrected).norm() > 1e-2 * uncorrected.norm()
    metrics = trainer._metrics["train"]
    assert len(metrics["sampling/importance_mean"]) == 1 and metrics["sampling/importance_max"] == [2.0]
    assert 0 < metrics["sampling/importance_capped_frac"][0] < 0.5
    trainer.close()


def test_a_maximum_stays_a_maximum_over_micro_batches(tmp_path):
    trainer = make_trainer(tmp_path)
    for value in (0.1, 0.5, 0.3):
        trainer.note_largest("sampling/ratio_max", value)
    assert trainer._metrics["train"]["sampling/ratio_max"] == [0.5]
    trainer.close()


def test_a_cap_of_zero_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="importance_cap"):
        check_config(make_config(tmp_path, importance_cap=0.0))
