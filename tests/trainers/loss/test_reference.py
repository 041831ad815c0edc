"""What is trained, and what the KL is measured from: LoRA, an adapter that goes on, all weights."""

from __future__ import annotations

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.checkpoint import Checkpoint
from trainers.errors import ConfigError
from trainers.loss import active_dropout, frozen_copy

pytestmark = pytest.mark.filterwarnings("ignore")
LORA = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")


def make(tmp_path, kind: str, **changes):
    """A trainer of the toy: `full`, `lora` (a new adapter) or `adapter` (one that is loaded and goes on)."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    if kind == "adapter":
        folder = tmp_path.parent / f"{tmp_path.name}-start"
        if not folder.exists():
            torch.manual_seed(7)
            start = get_peft_model(make_model(tokenizer), LORA)
            for name, parameter in start.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.2)
            start.save_pretrained(folder)
        model = PeftModel.from_pretrained(model, folder, is_trainable=True)
    return NotingTrainer(
        model, make_config(tmp_path, **changes), tokenizer, [make_task(i) for i in range(4)], ToyEnv,
        slots=8, workers=2, max_turn_tokens=12, peft_config=LORA if kind == "lora" else None,
    )  # fmt: skip


def kl(trainer) -> list[float]:
    return [log["kl"] for log in trainer.logged if "kl" in log]


def state(model) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("kind", ["full", "lora", "adapter"])
def test_a_step_trains_what_it_should_and_the_kl_starts_at_zero(tmp_path, kind):
    trainer = make(tmp_path, kind, beta=0.1, max_steps=2)
    before = state(trainer.model)
    trainer.train()
    trainer.close()
    changed = {name for name, value in state(trainer.model).items() if not torch.equal(value, before[name])}
    learned = {name for name in before if kind == "full" or ("lora_" in name and ".ref." not in name)}
    assert changed == learned and changed
    assert kl(trainer)[0] == 0.0 < kl(trainer)[1]
    if kind == "full":
        assert all(torch.equal(value, before[name]) for name, value in trainer.ref_model.named_parameters())
        assert not any(p.requires_grad for p in trainer.ref_model.parameters())
    else:
        assert trainer.ref_model is None


@pytest.mark.parametrize("kind", ["full", "adapter"])
def test_the_reference_of_a_resumed_run_is_its_start(tmp_path, kind):
    changes = {"beta": 0.1, "save_strategy": "steps", "save_steps": 1, "lr_scheduler_type": "constant"}
    whole = make(tmp_path / "whole", kind, max_steps=3, **changes)
    whole.train()
    make(tmp_path / "part", kind, max_steps=2, **changes).train()
    checkpoint = Checkpoint.newest_whole(tmp_path / "part" / "run").folder
    rest = make(tmp_path / "part", kind, max_steps=3, **changes)
    rest.train(resume_from_checkpoint=str(checkpoint))
    assert kl(rest) == kl(whole)[2:] and kl(rest)[0] > 0
    assert all(torch.equal(value, state(whole.model)[name]) for name, value in state(rest.model).items())


def test_the_saved_policy_is_the_adapter_alone(tmp_path):
    trainer = make(tmp_path, "adapter", beta=0.1)
    trainer.save_policy(tmp_path / "best")
    names = {path.name for path in (tmp_path / "best").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names and "ref" not in names
    saved = json.loads((tmp_path / "best" / "adapter_config.json").read_text())
    assert (saved["r"], saved["lora_alpha"]) == (4, 8)
    assert {name.rsplit(".", 1)[-1] for name in saved["target_modules"]} >= {"q_proj", "down_proj"}
    trainer.close()


def test_without_kl_there_is_no_reference(tmp_path):
    trainer = make(tmp_path, "full", beta=0.0)
    assert trainer.ref_model is None and trainer.beta == 0.0
    trainer.close()


def test_a_reference_is_never_made_of_a_model_that_a_trainer_has(tmp_path):
    trainer = make(tmp_path, "full")
    with pytest.raises(ValueError, match="patched"):
        frozen_copy(trainer.model)
    trainer.close()


def test_making_a_reference_draws_nothing_from_the_run(tmp_path):
    model = make_model(make_tokenizer())
    torch.manual_seed(3)
    frozen_copy(model)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4))


def test_a_reference_keeps_the_type_of_each_weight():
    """In models of several experts some stay in float32."""
    model = make_model(make_tokenizer()).bfloat16()
    model.model.norm.float().weight.data += 1e-3  # bfloat16 would round it away
    kept = dict(frozen_copy(model).named_parameters())
    assert kept["model.norm.weight"].dtype is torch.float32
    assert all(torch.equal(value, kept[name]) for name, value in model.named_parameters())


def test_attention_dropout_is_off_too(tmp_path):
    """TRL turns the modules off and leaves this number, which acts in training mode."""
    model = make_model(make_tokenizer())
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.5
    assert len(active_dropout(model)) == 2
    with pytest.raises(ConfigError, match="2 dropouts of this model would act"):
        make_trainer(tmp_path / "refused", model=model, disable_dropout=False)
    trainer = make_trainer(tmp_path, model=model, max_steps=1, num_iterations=2)
    trainer.train()
    trainer.close()
    assert active_dropout(trainer.model) == []


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_gradient_checkpointing_changes_memory_and_not_the_weights(tmp_path, kind):
    plain, saving = (
        make(tmp_path / str(on), kind, beta=0.1, max_steps=2, gradient_checkpointing=on) for on in (False, True)
    )
    start = state(plain.model)
    for trainer in (plain, saving):
        torch.manual_seed(0)
        trainer.train()
        trainer.close()
    assert saving.model.is_gradient_checkpointing and not plain.model.is_gradient_checkpointing
    assert kl(saving) == pytest.approx(kl(plain), abs=1e-6) and kl(plain)[1] > 0
    for name, value in state(saving.model).items():
        other = plain.model.get_parameter(name)
        assert torch.allclose(value, other, atol=1e-6)
        assert not torch.equal(other, start[name]) or (kind == "lora" and "lora_" not in name)
