"""LoRA over bfloat16 weights: what PEFT computes, with less kept for the backward pass."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.agents.toys import GPU, model
from trainers.lora import keep_less


def adapted(dtype: torch.dtype = torch.bfloat16, **settings: Any) -> Any:
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    made = get_peft_model(model("gqa").to(dtype), config)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in made.named_parameters():
        if parameter.requires_grad:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
            assert parameter.dtype == torch.float32, name
    return made


def learned(made: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    """Logits, gradients, and bytes kept for the backward pass."""
    weights = {p.untyped_storage().data_ptr() for p in made.parameters()}
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    made.zero_grad()
    ids = torch.arange(3, 51, device=made.device).view(2, 24)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = made(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    logits.log_softmax(-1)[..., 7].mean().backward()
    gradients = {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}
    return logits.detach(), gradients, sum(kept.values())


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_the_forward_has_the_same_bits_and_gradients_are_the_same_up_to_rounding(device: str) -> None:
    made = adapted().to(device)
    logits, gradients, kept = learned(made)
    assert keep_less(made) == 14
    ours, own, less = learned(made)
    assert torch.equal(ours, logits) and own.keys() == gradients.keys()
    exact = learned(adapted(torch.float32).to(device))[1]
    for name, gradient in gradients.items():
        size, rounding = exact[name].norm(), (gradient - exact[name]).norm()
        assert (own[name] - gradient).norm() < 0.02 * size + rounding, name
        assert (own[name] - exact[name]).norm() < 1.1 * rounding + 1e-3 * size, name
    assert less < 0.75 * kept


def test_adapters_over_float32_are_left_to_peft() -> None:
    assert keep_less(adapted(torch.float32)) == 0


@pytest.mark.parametrize(
    ("settings", "does"),
    [
        ({}, lambda made: made.set_adapter("other")),
        ({}, lambda made: made.base_model.disable_adapter_layers()),
        ({}, lambda made: made.merge_adapter()),
        ({"lora_dropout": 0.5}, lambda made: made.eval()),
        ({"use_dora": True}, lambda made: None),
        ({"lora_bias": True}, lambda made: None),
    ],
    ids=["another", "none", "merged", "dropout", "dora", "bias"],
)
def test_all_else_is_what_peft_says(settings: Any, does: Any) -> None:
    made = adapted(**settings)
    made.add_adapter("other", LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    does(made)
    plain = copy.deepcopy(made)
    assert keep_less(made)
    ids = torch.arange(3, 23).view(2, 10)
    assert torch.equal(made(input_ids=ids).logits, plain(input_ids=ids).logits)
