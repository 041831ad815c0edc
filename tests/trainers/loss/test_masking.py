"""What is kept out of a step (failed machinery, truncated episodes) and what is not (flat groups with turn signal)."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

from agents.trajectory import Trajectory
from tests.trainers.replay import make_scripted
from tests.trainers.test_gigpo import rows_of
from tests.trainers.test_hand import ADVANTAGES, TOKENS, episodes

SETTINGS = {"num_generations": 2, "beta_turn": 0.5, "turn_gamma": 0.5, "max_steps": 1}


def lost(episode: Trajectory) -> Trajectory:
    episode.reward, episode.rate, episode.passed = None, None, None
    episode.stop_reason, episode.error = "infrastructure", "the sandbox died"
    return episode


def prepared(trainer):
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    rows = {tuple(ids): (mask, advantages) for _, ids, mask, _, advantages in rows_of(inputs)}
    return inputs, [rows[tuple(e.flat().ids)] for e in trainer.played[-1]]


def test_flat_groups_with_turn_signal_are_trained(tmp_path):
    trainer = make_scripted(tmp_path, episodes(), **SETTINGS)
    inputs, rows = prepared(trainer)
    _, advantages = rows[2]  # group 2: equal rewards
    assert advantages[0] == pytest.approx(4 / 60)
    only = torch.where(inputs["advantages"].abs() < 0.2, inputs["advantages"], 0.0)  # group 2 alone
    trainer.compute_loss(trainer.model, dict(inputs, advantages=only)).backward()
    assert max(p.grad.abs().max() for p in trainer.model.parameters()) > 0
    assert trainer._metrics["train"]["frac_reward_zero_std"] == [0.5]  # TRL's figure still counts it as flat
    trainer.close()


def test_a_failed_episode_enters_no_mean_and_no_loss(tmp_path, caplog):
    batch = episodes()
    lost(batch[1])
    trainer = make_scripted(tmp_path, batch, **SETTINGS)
    inputs, rows = prepared(trainer)
    assert not any(rows[1][0]) and not any(rows[1][1])
    assert not any(rows[0][1])  # alone in its group now: nothing to be compared with
    assert inputs["num_items_in_batch"] == sum(map(sum, TOKENS)) - sum(TOKENS[1])
    metrics = trainer._metrics["train"]
    assert metrics["env/infra_error_frac"] == [0.25]
    assert metrics["reward"][0] == pytest.approx(1.5 / 3)
    assert "reward function" not in caplog.text  # TRL would print the whole episode and ask for another one
    trainer.close()


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "cispo"])
def test_a_step_without_any_episode_counts_and_learns_nothing(tmp_path, loss_type):
    trainer = make_scripted(tmp_path, [lost(e) for e in episodes()], loss_type=loss_type, **SETTINGS)
    before = [p.clone() for p in trainer.model.parameters()]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainer.train()
    trainer.close()
    assert trainer.state.global_step == 1
    line = trainer.logged[0]
    assert line["loss"] == 0.0 and line["grad_norm"] == 0.0
    assert line["env/infra_error_frac"] == 1.0 and line["reward"] is None
    assert not [name for name, value in line.items() if isinstance(value, float) and not math.isfinite(value)]
    assert all(torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert any("none of the 4 episodes" in str(w.message) for w in said)


@pytest.mark.filterwarnings("ignore")
def test_truncated_episodes_are_masked_where_asked(tmp_path):
    batch = episodes()
    batch[1].stop_reason = "max_tokens"
    trainer = make_scripted(tmp_path, batch, mask_truncated_completions=True, **SETTINGS)
    inputs, rows = prepared(trainer)
    assert not any(rows[1][0]) and not any(rows[1][1])
    assert rows[0][1][0] == pytest.approx(ADVANTAGES[0][0])  # its reward and its turns stay in the comparison
    assert inputs["num_items_in_batch"] == sum(map(sum, TOKENS)) - sum(TOKENS[1])
    assert trainer._metrics["train"]["env/truncated_masked_frac"] == [0.25]
    weight = sum(a * n for i in (0, 2, 3) for a, n in zip(ADVANTAGES[i], TOKENS[i], strict=True))
    loss = trainer.compute_loss(trainer.model, inputs)
    assert loss.item() == pytest.approx(-weight / (28 - sum(TOKENS[1])), abs=1e-6)
    trainer.close()


@pytest.mark.filterwarnings("ignore")
def test_truncated_episodes_are_trained_by_default(tmp_path):
    batch = episodes()
    batch[1].stop_reason = "max_tokens"
    trainer = make_scripted(tmp_path, batch, **SETTINGS)
    inputs, rows = prepared(trainer)
    assert any(rows[1][0]) and inputs["num_items_in_batch"] == 28
    assert "env/truncated_masked_frac" not in trainer._metrics["train"]
    trainer.close()
