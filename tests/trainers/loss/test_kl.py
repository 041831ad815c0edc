"""The first step: ratio 1 and KL 0 exactly; and the KL that TRL logs is k3 in the right direction."""

from __future__ import annotations

import json
import math
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig

from tests.shared_data import shared
from tests.trainers.replay import record, replay
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.loss import k3_tail

pytestmark = pytest.mark.filterwarnings("ignore")

K3 = [(-3.0, 16.085537, 2.049787), (-1.0, 0.718282, 0.367879), (0.0, 0.0, 0.0), (3.0, 2.049787, 16.085537)]
"""log pi - log pi_ref, k3 = exp(-x) + x - 1, and what the reversed form would give."""


def make_lora(tmp_path, **changes):
    tokenizer = make_tokenizer()
    return NotingTrainer(
        make_model(tokenizer),
        make_config(tmp_path, **changes),
        tokenizer,
        [make_task(i) for i in range(4)],
        ToyEnv,
        max_turn_tokens=8,
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"),
    )


def first_batch(trainer):
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    return inputs


@pytest.mark.parametrize("mode", ["lockstep", "asynchronous"])
def test_kl_is_zero_and_the_ratio_one_before_the_first_update(tmp_path, mode):
    trainer = make_lora(tmp_path, beta=0.05, num_iterations=2, rollout_mode=mode)
    inputs = first_batch(trainer)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    now, _, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, mask, inputs["completion_ids"].size(1))
    on = inputs["completion_mask"].bool()
    assert ((now - inputs["old_per_token_logps"]).exp()[on] == 1.0).all()
    trainer.compute_loss(trainer.model, inputs).backward()
    metrics = trainer._metrics["train"]
    assert metrics["kl"] == [0.0]
    assert metrics["clip_ratio/region_mean"] == [0.0]
    trainer.close()


def test_kl_grows_once_the_adapter_has_moved(tmp_path):
    trainer = make_lora(tmp_path, beta=0.05, max_steps=2, learning_rate=1e-2)
    trainer.train()
    assert trainer.logged[0]["kl"] == 0.0 and trainer.logged[1]["kl"] > 0.0
    assert trainer.logged[0]["kl_max"] == 0.0 and trainer.logged[1]["kl_max"] > trainer.logged[1]["kl"]
    assert 0.0 < trainer.logged[1]["kl_p99"] < trainer.logged[1]["kl_max"]
    trainer.close()


def test_the_largest_kl_is_that_of_a_trained_token():
    policy, mask = torch.tensor([[0.0, -1.0, -3.0]]), torch.tensor([[1, 1, 0]])
    for difference, forward, _ in K3:
        reference = policy - torch.tensor([[0.0, difference, 50.0]])
        largest, p99 = k3_tail(policy, reference, mask).tolist()
        assert largest == pytest.approx(forward, rel=1e-5) and p99 == 0.0  # of the other token: one alone is no tail
    assert k3_tail(policy, policy - 1, torch.zeros_like(mask)).tolist() == [0.0, 0.0]
    trainer = SimpleNamespace(beta=0.0, note_largest=None, note_metric=None)  # a call of either would fail
    NotingTrainer._note_kl_tail(trainer, {}, policy)


@pytest.mark.parametrize(("tokens", "far", "told"), [(700, 6, False), (700, 8, True), (50, 1, False), (50, 2, True)])
def test_the_99th_percentile_is_what_one_token_in_a_hundred_exceeds(tokens, far, told):
    """Runs that are well reach 23 nats on one token; the run that was lost had hundreds on most."""
    policy, mask = torch.zeros(1, tokens), torch.ones(1, tokens)
    reference = policy.clone()
    reference[0, :far] = -24.0
    largest, p99 = k3_tail(policy, reference, mask).tolist()
    assert largest == pytest.approx(23.0) and (p99 == pytest.approx(23.0)) is told


@pytest.fixture(scope="module")
def policy_and_batch(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kl")
    trainer = replay(make_trainer(folder), record(folder / "record", 1))
    yield trainer, first_batch(trainer)
    trainer.close()


def kl_of(trainer, inputs, difference, *, beta=0.1):
    """TRL's `kl` where every token's log pi - log pi_ref is `difference`, and the loss."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        now, _, _ = trainer._get_per_token_logps_and_entropies(
            trainer.model, ids, mask, inputs["completion_ids"].size(1)
        )
    trainer.beta = beta
    trainer._metrics["train"].clear()
    loss = trainer.compute_loss(trainer.model, dict(inputs, ref_per_token_logps=now - difference))
    return trainer._metrics["train"]["kl"][0], loss.item()


@pytest.mark.parametrize("difference, right, reversed_", K3)
def test_k3_has_the_right_sign(policy_and_batch, difference, right, reversed_):
    trainer, inputs = policy_and_batch
    kl, _ = kl_of(trainer, inputs, difference)
    assert kl == pytest.approx(right, abs=2e-5 * max(1.0, right))
    if difference:
        assert abs(kl - reversed_) > 0.3


def test_k3_of_the_seeds_fixture(policy_and_batch):
    """Group `kl` of the fixtures: every row of the table, and where beta * (exp(d) - 1) is 1."""
    trainer, inputs = policy_and_batch
    cases = {c["id"]: c for c in json.loads(shared("fixtures/credit.json").read_text())["cases"] if c["group"] == "kl"}
    for row in cases["kl_k3_direction"]["expected"]:
        kl, _ = kl_of(trainer, inputs, float(row["log_pi_minus_log_ref"]))
        assert kl == pytest.approx(row["k3_correct"], rel=2e-5, abs=2e-6)
    balance = cases["kl_reversed_balance_point"]
    (point,) = balance["expected"].values()
    assert balance["inputs"]["beta"] * (math.exp(point) - 1) == pytest.approx(1.0, abs=1e-6)


def test_beta_weighs_the_kl_in_the_loss(policy_and_batch):
    trainer, inputs = policy_and_batch
    zero, half = (kl_of(trainer, inputs, 1.0, beta=beta)[1] for beta in (1e-12, 0.5))
    assert half - zero == pytest.approx(0.5 * 0.367879, abs=1e-4)


def test_bias_correction_of_the_kl_weighs_it_by_the_ratio(policy_and_batch):
    """`use_bias_correction_kl`: the KL of a token counts as often as the policy now draws it."""
    trainer, inputs = policy_and_batch
    off = dict(inputs, old_per_token_logps=inputs["sampling_per_token_logps"] - math.log(2.0))
    weighted = kl_of(trainer, off, 1.0)[0]
    trainer.args.use_bias_correction_kl = False
    plain = kl_of(trainer, off, 1.0)[0]
    trainer.args.use_bias_correction_kl = True
    assert plain == pytest.approx(0.367879, abs=1e-4) and weighted == pytest.approx(2 * plain, rel=1e-3)
