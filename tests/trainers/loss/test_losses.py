"""The losses of the seed projects against the loss that the trainer really computes (TRL's, through our subclass).

Each case sets new, old and reference log-probabilities, advantages and mask by hand and reads loss and metrics.
`EXCEPTIONS` lists what has no counterpart here, with the reason and what the trainer gives instead.
"""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer
from transformers.modeling_outputs import BaseModelOutputWithPast
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from tests.shared_data import shared
from tests.trainers.toy import make_config, make_trainer
from trainers.credit import EpisodeScale, episode_advantages

pytestmark = pytest.mark.filterwarnings("ignore")

NO_CLIP = 1e9

EXCEPTIONS = {
    "loss.retrain: retrain_loss_kl_cov": "KL-Cov is no loss of TRL; the case without it is the same policy term",
    "loss.retrain: clip_fraction": "counts every ratio outside the band; TRL counts those where the clip binds",
    "loss.retrain: cov_fraction": "a figure of KL-Cov",
    "loss.retrain: abs_kl": "between new and old; TRL logs no such figure (its `kl` is to the reference)",
    "loss.rlvr: ratio_max, kl_max": "TRL logs means of these, no maxima",
    "loss.rlvr: clip_frac": "counts every ratio outside the band; TRL counts those where the clip binds",
    "loss.rlvr: rlvr_loss_dapo": "a mean over groups; TRL's is over all tokens: equal for one group, as here",
    "verl_policy_loss: clipfrac_lower": "TRL does not count where `delta` (dual clip) binds; the loss is the same",
    "verl_policy_loss: ppo_kl": "a signed mean of old - new; sampling/logp_difference_mean is of absolute values",
    "verl_low_var_kl: -5 against -1": "verl cuts k3 at 10; TRL does not (49.598)",
}


def cases(group):
    content = json.loads(shared("fixtures/credit.json").read_text())
    return {case["id"]: case for case in content["cases"] if case["group"] == group}


def blocks(name):
    return json.loads(shared("fixtures/t2po_gigpo.json").read_text())[name]


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    trainer = make_trainer(tmp_path_factory.mktemp("losses"))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    yield trainer
    trainer.close()


@pytest.fixture
def loss_of(toy, monkeypatch):
    """Loss and metrics for log-probabilities, advantages and mask as they are given."""

    def run(new, old, advantages, mask, *, ref=None, **settings):
        new, old, advantages = (torch.tensor(x, dtype=torch.float32) for x in (new, old, advantages))
        mask = torch.tensor(mask, dtype=torch.long)
        monkeypatch.setattr(
            GRPOTrainer,
            "_get_per_token_logps_and_entropies",
            lambda *args, **kwargs: (new, torch.zeros_like(new), None),
        )
        for name, value in {"loss_type": "dapo", "epsilon_low": NO_CLIP, "epsilon_high": NO_CLIP, **settings}.items():
            monkeypatch.setattr(toy.args if hasattr(toy.args, name) and name == "delta" else toy, name, value)
        monkeypatch.setattr(toy.args, "use_bias_correction_kl", False)
        toy._metrics["train"].clear()
        inputs = {
            "prompt_ids": torch.zeros(len(mask), 1, dtype=torch.long),
            "prompt_mask": torch.ones(len(mask), 1, dtype=torch.long),
            "completion_ids": torch.zeros_like(mask),
            "completion_mask": torch.ones_like(mask),
            "tool_mask": mask,
            "advantages": advantages if advantages.dim() == 2 else advantages[:, None].expand(mask.shape),
            "old_per_token_logps": old,
            "sampling_per_token_logps": old,
            "num_items_in_batch": mask.sum(),
        }
        if ref is not None:
            inputs["ref_per_token_logps"] = torch.tensor(ref, dtype=torch.float32)
        return toy._compute_loss(toy.model, inputs).item(), {k: v[0] for k, v in toy._metrics["train"].items()}

    return run


def test_loss_retrain(loss_of):
    group = cases("loss.retrain")
    assert len(group) == 4
    for name, case in group.items():
        x, want = case["inputs"], case["expected"]
        low, high = x["clip_eps"], x["clip_eps_high"] or x["clip_eps"]
        clip = {"epsilon_low": low, "epsilon_high": high} if low else {}
        loss, metrics = loss_of(x["new_logprobs"], x["old_logprobs"], x["adv"], x["mask"], **clip)
        if name == "retrain_loss_kl_cov":
            want = group["retrain_loss_noclip"]["expected"]
        assert loss == pytest.approx(want["loss"], abs=case["abs_tol"])
        if low:
            assert want["clip_fraction"] == pytest.approx(0.8)
            assert metrics["clip_ratio/region_mean"] == pytest.approx(0.6)


def test_loss_rlvr(loss_of):
    group = cases("loss.rlvr")
    assert len(group) == 5
    kinds = {"GRPOLoss": "grpo", "DrGRPOLoss": "dr_grpo", "DAPOLoss": "dapo"}
    for case in group.values():
        x, want = case["inputs"], case["expected"]
        low = x.get("eps_low", x.get("eps"))
        clip = {"epsilon_low": low, "epsilon_high": x.get("eps_high", low)} if low else {}
        loss, metrics = loss_of(
            x["logprobs_new"],
            x["logprobs_old"],
            x["advantages"],
            x["mask"],
            ref=x["logprobs_ref"],
            beta=x["beta"],
            loss_type=kinds[case["function"].split(":")[1]],
            max_completion_length=x.get("C", 1),
            **clip,
        )
        assert loss == pytest.approx(want["loss"], abs=case["abs_tol"])
        if x["beta"]:
            assert metrics["kl"] == pytest.approx(want["kl_mean"], abs=case["abs_tol"])
        if low:
            assert want["clip_frac"] == pytest.approx(3 / 9)
            assert metrics["clip_ratio/region_mean"] == pytest.approx(2 / 9)


def test_verl_policy_loss(loss_of):
    kinds = {"token-mean": "dapo", "seq-mean-token-sum": "luspo", "seq-mean-token-mean": "grpo"}
    group = blocks("verl_policy_loss")
    assert len(group) == 6
    for case in group:
        loss, metrics = loss_of(
            case["logp"],
            case["old"],
            case["adv"],
            case["mask"],
            loss_type=kinds[case["agg"]],
            epsilon_low=case["clip"][0],
            epsilon_high=case["clip"][1],
            delta=case["clip_c"],
        )
        assert loss == pytest.approx(case["loss"], abs=1e-6), case["name"]
        assert metrics["clip_ratio/region_mean"] == pytest.approx(case["clipfrac"], abs=1e-6), case["name"]


def test_verl_low_var_kl(loss_of):
    for case in blocks("verl_low_var_kl"):
        _, metrics = loss_of([[case["logp"]]], [[case["logp"]]], [0.0], [[1]], ref=[[case["ref"]]], beta=0.1)
        want = 49.598150 if case["out"] == 10.0 else case["out"]
        assert metrics["kl"] == pytest.approx(want, rel=1e-5, abs=2e-6)


def test_fn_loss(loss_of):
    """The field notes' REINFORCE with k3: the same as CISPO at ratio 1."""
    case = blocks("fn_loss")
    logps = [case["pol_logp"]]
    settings = {"ref": [case["ref_logp"]], "beta": case["kl_beta"], "loss_type": "cispo"}
    loss, metrics = loss_of(logps, logps, [case["token_weight"]], [[1, 1, 1]], **settings)
    assert loss == pytest.approx(case["loss"], abs=2e-6)
    assert metrics["kl"] == pytest.approx(sum(case["k3"]) / 3, abs=2e-6)
    alone, _ = loss_of(logps, logps, [case["token_weight"]], [[1, 1, 1]], **{**settings, "beta": 0.0})
    assert alone == pytest.approx(case["policy_loss"], abs=2e-6)


def test_clip_bounds_act_on_their_side(loss_of):
    """`epsilon`, `epsilon_high` and `delta` by hand: ratios 0.5 and 4 under both signs."""
    half, four = math.log(0.5), math.log(4.0)
    settings = {"epsilon_low": 0.2, "epsilon_high": 0.3}
    for new, advantage, want, changes in [
        (four, 1.0, -1.3, {}),
        (half, 1.0, -0.5, {}),
        (half, -1.0, 0.8, {}),
        (four, -1.0, 4.0, {}),
        (four, -1.0, 3.0, {"delta": 3.0}),
        (four, 1.0, -1.3, {"delta": 3.0}),
    ]:
        assert loss_of([[new]], [[0.0]], [advantage], [[1]], **settings, **changes)[0] == pytest.approx(want, abs=1e-6)


def test_episode_drgrpo():
    group = cases("episode.drgrpo")
    assert len(group) == 2
    for case in group.values():
        rewards, start, out = case["inputs"]["rewards"], 0, []
        for size in case["inputs"].get("group_sizes", [len(rewards)]):
            out += episode_advantages(rewards[start : start + size], size, EpisodeScale.NONE).tolist()
            start += size
        assert out == pytest.approx(case["expected"], abs=case["abs_tol"])


def _given(output, *args, **kwargs):
    return output


def test_temperature():
    """Logits are divided by the temperature before the softmax, by the head that the trainer patches in."""
    group = cases("temperature")
    assert len(group) == 2
    for case in group.values():
        x = case["inputs"]
        logits = torch.tensor(x["logits"])
        size = logits.size(-1)
        config = LlamaConfig(vocab_size=size, hidden_size=size, num_attention_heads=1, num_hidden_layers=1, head_dim=2)
        model = LlamaForCausalLM(config)
        model.lm_head.weight.data = torch.eye(size)
        model.model.forward = partial(_given, BaseModelOutputWithPast(last_hidden_state=logits))
        add_fused_lm_head(model, temperature=x["temperature"])
        ids = torch.tensor([[0] * x["prompt_len"] + x["response"][0]])
        labels = ids.clone()
        labels[:, : x["prompt_len"]] = -100
        out = model(input_ids=ids, labels=labels, fused_lm_head=True)
        got = out.log_probs[0, x["prompt_len"] - 1 :].tolist()
        assert got == pytest.approx(case["expected"][0], abs=case["abs_tol"])


def first_step(tmp_path, gradient, **settings):
    """What one step of the trainer's own optimizer, fresh, does to a weight of 0 per entry of `gradient`."""
    kind, kwargs = Trainer.get_optimizer_cls_and_kwargs(make_config(tmp_path, **settings))
    weight = torch.nn.Parameter(torch.zeros(len(gradient)))
    weight.grad = torch.tensor(gradient)
    kind([weight], **kwargs).step()
    return weight.detach().numpy()


def test_optimizer(tmp_path):
    group = cases("optimizer")
    assert len(group) == 3
    case = group["adam_first_step_scale_free"]
    x = case["inputs"]
    for row in case["expected"]:
        scaled = [g * row["grad_scale"] for g in x["grad"]]
        got = first_step(tmp_path, scaled, learning_rate=x["lr"], adam_epsilon=x["eps"])
        assert got == pytest.approx(row["delta"], abs=case["abs_tol"])
    case = group["adam_eps_damps_small_grads"]
    for row in case["expected"]:
        got = first_step(tmp_path, case["inputs"]["grad"], learning_rate=0.01, adam_epsilon=row["eps"])
        assert got == pytest.approx(row["delta"], abs=case["abs_tol"])
    case = group["adam_fresh_state_weight_delta"]
    n, share = case["inputs"]["n_params"], 1000
    gradient = np.random.default_rng(0).normal(size=share).tolist()
    norm = np.linalg.norm(first_step(tmp_path, gradient, learning_rate=case["inputs"]["lr"]))
    assert norm * math.sqrt(n / share) == pytest.approx(case["expected"]["lr*sqrt(n)"], abs=case["abs_tol"])
