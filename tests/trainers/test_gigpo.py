"""The contract with TRL: what was sampled is what is trained, and the credit computed by hand reaches the loss."""

from __future__ import annotations

import inspect
import threading

import numpy as np
import pytest
import torch
from trl import GRPOTrainer

from agents.policy import Sampling
from agents.rollout import RolloutEngine
from tests.trainers.rollouts.test_curriculum import order_file
from tests.trainers.toy import ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.errors import ConfigError
from trainers.heldout import HeldOut
from trainers.settings.checks import check_config

pytestmark = pytest.mark.filterwarnings("ignore")
MODES = ["lockstep", "asynchronous"]


def hand_advantages(episodes, k, *, alpha, beta, gamma):
    """The formula in plain Python: dict (episode, turn) -> advantage."""
    out = {}
    for start in range(0, len(episodes), k):
        group = episodes[start : start + k]
        mean = sum(e.reward for e in group) / k
        by_anchor: dict[str, list[tuple[int, int, float]]] = {}
        for i, episode in enumerate(group):
            signals = [turn.signal for turn in episode.turns]
            for t, signal in enumerate(signals):
                if signal is None:
                    continue
                value = sum(gamma ** (u - t) * (signals[u] or 0.0) for u in range(t, len(signals)))
                by_anchor.setdefault(episode.turns[t].anchor, []).append((i, t, value))
        for i, episode in enumerate(group):
            for t in range(len(episode.turns)):
                out[start + i, t] = alpha * (episode.reward - mean)
        for members in by_anchor.values():
            if len(members) > 1:
                centre = sum(v for *_, v in members) / len(members)
                for i, t, value in members:
                    out[start + i, t] += beta * (value - centre)
    return out


def rows_of(batch):
    """Each row of a loss batch as (prompt ids, completion ids, mask, turn ids, advantages), padding removed."""
    for i in range(batch["completion_ids"].size(0)):
        on = batch["completion_mask"][i].bool()
        yield (
            batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist(),
            batch["completion_ids"][i][on].tolist(),
            batch["tool_mask"][i][on].tolist(),
            batch["turn_ids"][i][on].tolist(),
            batch["advantages"][i][on].tolist(),
        )


@pytest.mark.parametrize("mode", MODES)
def test_ids_masks_and_advantages_in_the_loss_are_the_sampled_ones(tmp_path, mode):
    settings = {"gradient_accumulation_steps": 2, "max_steps": 3, "rollout_mode": mode}
    trainer = make_trainer(tmp_path, beta_turn=0.5, turn_gamma=0.9, **settings)
    trainer.train()
    trainer.close()
    k = trainer.num_generations
    batches = iter(trainer.batches)
    for episodes in trainer.played:
        hand = hand_advantages(episodes, k, alpha=1.0, beta=0.5, gamma=0.9)
        expected = {}
        for i, episode in enumerate(episodes):
            flat = episode.flat()
            weights = [hand[i, t] if t >= 0 else 0.0 for t in flat.turn_ids]
            expected[tuple(flat.ids)] = (episode.prompt_ids, flat.mask, flat.turn_ids, weights)
        assert len(expected) == len(episodes)
        seen = 0
        for _ in range(2):  # the generation batch arrives shuffled, in two micro-batches
            for prompt, ids, mask, turn_ids, advantages in rows_of(next(batches)):
                want_prompt, want_mask, want_turns, want_weights = expected.pop(tuple(ids))
                assert (prompt, mask, turn_ids) == (want_prompt, want_mask, want_turns)
                assert advantages == pytest.approx(want_weights, abs=2e-5)
                assert any(a != 0 for a in advantages)
                seen += 1
        assert seen == len(episodes) and not expected
    assert next(batches, None) is None


@pytest.mark.parametrize("mode", MODES)
def test_sampled_and_trained_log_probabilities_agree(tmp_path, mode):
    trainer = make_trainer(tmp_path, max_steps=1, temperature=0.7, rollout_mode=mode)
    trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    episodes = trainer._played.episodes
    model = trainer.model
    for episode in episodes:
        flat = episode.flat()
        ids = torch.tensor([episode.prompt_ids + flat.ids])
        with torch.no_grad():
            lp, entropy, _ = GRPOTrainer._get_per_token_logps_and_entropies(
                trainer, model, ids, torch.ones_like(ids), len(flat.ids), compute_entropy=True
            )
        on = np.array(flat.mask, dtype=bool)
        assert np.abs(lp[0].numpy() - flat.logprobs)[on].max() < 1e-4
    trainer.close()


@pytest.mark.parametrize("mode", MODES)
def test_loss_gradient_and_ratio_match_an_independent_computation(tmp_path, mode):
    """The DAPO loss written out with a plain forward pass: no TRL code."""
    trainer = make_trainer(tmp_path, max_steps=1, rollout_mode=mode)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    model = trainer.model
    model.train()
    trainer.current_gradient_accumulation_steps = 1
    loss = trainer.compute_loss(model, inputs)
    model.zero_grad()
    loss.backward()
    got = torch.cat([p.grad.flatten() for p in model.parameters()])

    fresh = make_model(make_tokenizer())
    fresh.load_state_dict(model.state_dict())
    total = torch.zeros(())
    count = 0
    for episode, row in zip(trainer._played.episodes, _ordered(trainer, inputs), strict=True):
        flat = episode.flat()
        ids = torch.tensor([episode.prompt_ids + flat.ids])
        logits = fresh(ids).logits[0, :-1].float()
        lp = logits.log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0][-len(flat.ids) :]
        on = torch.tensor(flat.mask, dtype=torch.bool)
        ratio = (lp - lp.detach()).exp()
        assert (ratio == 1.0).all()
        weights = torch.tensor(row, dtype=torch.float32)
        clipped = ratio.clamp(1 - trainer.epsilon_low, 1 + trainer.epsilon_high)
        total = total - torch.minimum(ratio * weights, clipped * weights)[on].sum()
        count += int(on.sum())
    total = total / count
    total.backward()
    want = torch.cat([p.grad.flatten() for p in fresh.parameters()])
    assert loss.item() == pytest.approx(total.item(), abs=1e-5)
    assert (got - want).norm() / want.norm() < 1e-3
    trainer.close()


def _ordered(trainer, inputs):
    """Advantages of the (shuffled) batch in the order of the episodes."""
    by_ids = {tuple(ids): adv for _, ids, _, _, adv in rows_of(inputs)}
    return [by_ids[tuple(e.flat().ids)] for e in trainer._played.episodes]


@pytest.mark.parametrize("mode", MODES)
def test_ratio_is_one_at_the_first_step(tmp_path, mode):
    """Old and new log-probabilities of the first pass come from the same weights."""
    trainer = make_trainer(tmp_path, max_steps=1, num_iterations=2, rollout_mode=mode)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        now, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, inputs["completion_ids"].size(1)
        )
    ratio = (now - inputs["old_per_token_logps"]).exp()[inputs["completion_mask"].bool()]
    assert (ratio == 1.0).all()
    trainer.close()


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo"])
def test_row_constant_token_advantages_equal_episode_advantages(tmp_path, loss_type):
    """A (B, T) tensor that is constant in each row gives the loss and gradient of TRL's (B,) tensor."""
    trainer = make_trainer(tmp_path, max_steps=1, loss_type=loss_type, beta_turn=0.0)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    results = []
    per_row = inputs["advantages"].max(1).values + inputs["advantages"].min(1).values  # the one non-zero value
    for advantages in (per_row, per_row[:, None].expand_as(inputs["advantages"]).clone(), inputs["advantages"]):
        trainer.model.zero_grad()
        loss = trainer.compute_loss(trainer.model, dict(inputs, advantages=advantages))
        loss.backward()
        results.append((loss.item(), torch.cat([p.grad.flatten() for p in trainer.model.parameters()])))
    for loss, gradient in results[1:]:
        assert loss == pytest.approx(results[0][0], abs=1e-7)
        assert torch.equal(gradient, results[0][1])
    assert results[0][1].abs().max() > 0
    trainer.close()


def test_token_advantages_change_the_gradient(tmp_path):
    trainer = make_trainer(tmp_path, max_steps=1)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    gradients = []
    on = inputs["turn_ids"] >= 0
    mean = (inputs["advantages"] * on).sum(1, keepdim=True) / on.sum(1, keepdim=True)
    for advantages in (inputs["advantages"], mean.expand_as(inputs["advantages"])):
        trainer.model.zero_grad()
        trainer.compute_loss(trainer.model, dict(inputs, advantages=advantages)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() > 0.01
    trainer.close()


def test_sequence_level_importance_sampling_loses_token_credit(tmp_path):
    """Why it is refused: the gradient then sees only the mean advantage of each row."""
    trainer = make_trainer(tmp_path, max_steps=1)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.importance_sampling_level = "sequence"
    trainer.model.train()
    mask = (inputs["completion_mask"] * inputs["tool_mask"]).float()
    mean = (inputs["advantages"] * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
    gradients = []
    for advantages in (inputs["advantages"], mean.expand_as(inputs["advantages"])):
        trainer.model.zero_grad()
        trainer.compute_loss(trainer.model, dict(inputs, advantages=advantages)).backward()
        gradients.append(torch.cat([p.grad.flatten() for p in trainer.model.parameters()]))
    assert (gradients[0] - gradients[1]).norm() / gradients[1].norm() < 1e-5
    trainer.close()


@pytest.mark.parametrize(
    "change",
    [
        {"importance_sampling_level": "sequence"},
        {"loss_type": "vespo"},
        {"loss_type": "dappo"},
        {"top_p": 0.9},
        {"top_k": 20},
        {"min_p": 0.1},
        {"repetition_penalty": 1.1},
        {"turn_grouping": "turns"},
        {"alpha_episode": 0.0, "beta_turn": 0.0},
        {"best_metric": "sampled_pas_rate"},
        {"turn_gamma": 1.5},
        {"max_steps": -1},
        {"patience": -1},
        {"held_out_temperature": 0.0},
        {"generation_kwargs": {"num_beams": 2}},
        {"neftune_noise_alpha": 5.0},
        {"remove_unused_columns": True},
        {"save_strategy": "epoch"},
    ],
)
def test_refused_settings_name_themselves(tmp_path, change):
    config = make_config(tmp_path, **change)
    with pytest.raises(ConfigError) as error:
        check_config(config)
    assert next(iter(change)) in str(error.value)


def test_defaults_are_accepted(tmp_path):
    check_config(make_config(tmp_path))


def test_infrastructure_failures_enter_no_mean_and_no_loss(tmp_path, monkeypatch):
    trainer = make_trainer(tmp_path, max_steps=1)
    real = trainer.rollouts.run

    def lose_one(jobs, sampling, *, training):
        result = real(jobs, sampling, training=training)
        lost = result.trajectories[1]
        lost.reward, lost.stop_reason, lost.error = None, "infrastructure", "the sandbox died"
        return result

    monkeypatch.setattr(trainer.rollouts, "run", lose_one)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    lost = trainer._played.episodes[1]
    rows = {tuple(ids): (mask, adv) for _, ids, mask, _, adv in rows_of(inputs)}
    mask, advantages = rows[tuple(lost.flat().ids)]
    assert not any(mask) and not any(advantages)
    known = [e.reward for i, e in enumerate(trainer._played.episodes[:4]) if i != 1]
    first = rows[tuple(trainer._played.episodes[0].flat().ids)][1]
    episode_part = known[0] - sum(known) / 3
    assert max(first, key=abs) == pytest.approx(episode_part, abs=0.5)
    assert trainer._metrics["train"]["env/infra_error_frac"][-1] == pytest.approx(1 / 8)
    assert trainer._metrics["train"]["reward"][-1] == pytest.approx(
        np.mean([e.reward for e in trainer._played.episodes if e.reward is not None])
    )
    trainer.close()


def test_names_of_trl_that_we_touch():
    assert list(inspect.signature(GRPOTrainer._generate_and_score_completions).parameters) == ["self", "inputs"]
    assert list(inspect.signature(GRPOTrainer._compute_loss).parameters) == ["self", "model", "inputs"]
    assert list(inspect.signature(GRPOTrainer._get_train_sampler).parameters) == ["self", "dataset"]
    names = list(inspect.signature(GRPOTrainer._get_per_token_logps_and_entropies).parameters)
    assert names[:5] == ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]
    assert "rollout_func" in inspect.signature(GRPOTrainer.__init__).parameters
    assert list(inspect.signature(GRPOTrainer.training_step).parameters) == [
        "self",
        "model",
        "inputs",
        "num_items_in_batch",
    ]


def test_private_names_of_transformers_that_we_override():
    """Renamed between minor releases before: an override of a name that is gone would never be called."""
    names = ["_maybe_log_save_evaluate", "_evaluate", "_run_epoch", "_save_checkpoint", "_load_from_checkpoint"]
    names += ["_get_output_dir", "_determine_best_metric"]
    assert [name for name in names if not callable(getattr(GRPOTrainer, name, None))] == []


def test_a_small_pool_fills_a_step(tmp_path):
    trainer = make_trainer(tmp_path, tasks=1, max_steps=1)
    trainer.train()
    assert len(trainer.played[0]) == 8
    assert len({e.seed for e in trainer.played[0]}) == 8
    trainer.close()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gradient_accumulation_steps": 2},
        {"gradient_accumulation_steps": 2, "steps_per_generation": 1, "per_device_train_batch_size": 4},
        {"num_iterations": 2},
        {"rollout_mode": "asynchronous"},
        {"curriculum": "a file of its own"},
    ],
    ids=lambda changes: ", ".join(changes) or "as it is",
)
def test_the_next_tasks_are_laid_out_while_one_learns(tmp_path, monkeypatch, changes):
    """None of them twice or in vain, and the episodes are those of a run that lays out nothing ahead."""
    if "curriculum" in changes:
        changes = {"curriculum": str(order_file(tmp_path, {f"toy-{i}": 4 - i for i in range(4)}))}

    def run(name):
        trainer, laid = counting(tmp_path / name, max_steps=3, **changes)
        trainer.train()
        trainer.close()
        return [[(e.task_id, e.seed, [turn.ids for turn in e.turns]) for e in play] for play in trainer.played], laid

    played, laid = run("ahead")
    wanted = [
        (task, seed, number > 0 and place < 8)  # as many as there are environments
        for number, play in enumerate(played)
        for place, (task, seed, _) in enumerate(play)
    ]
    assert sorted(laid) == sorted(wanted) and len(played) > 1
    monkeypatch.setattr(RolloutEngine, "prepare", lambda *_: None)
    plain, laid = run("plain")
    assert plain == played and not any(ahead for *_, ahead in laid)


def test_no_task_is_laid_out_before_a_measurement(tmp_path):
    held_out = HeldOut([make_task(9)], {"greedy": Sampling(0.0, 12)}, "greedy_reward")
    trainer, laid = counting(tmp_path, max_steps=4, held_out=held_out, eval_strategy="steps", eval_steps=2)
    trainer.train()
    trainer.close()
    assert len(laid) == sum(map(len, trainer.played)) + 2  # two measurements of one task
    early = {seed for _, seed, ahead in laid if ahead}
    assert [sum(e.seed in early for e in play) for play in trainer.played] == [0, 8, 0, 8]


def counting(folder, **changes):
    """A trainer, and what its environments lay out: task, seed, and whether ahead of a rollout."""
    laid = []

    class Counting(ToyEnv):
        def reset(self, *, seed=None, options=None):
            out = super().reset(seed=seed, options=options)
            laid.append((self.task.id, seed, threading.current_thread().name.startswith("turngym-ahead")))
            return out

    return make_trainer(folder, env=Counting, **changes), laid
