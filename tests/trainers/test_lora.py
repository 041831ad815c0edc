"""LoRA over bfloat16 weights: what PEFT computes, with less kept for the backward pass."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from tests.agents.toys import model
from tests.shared_data import shared
from trainers.lora import compressed, keep_less, recommended_rank, variance_by_rank


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
    ids = torch.arange(3, 51).view(2, 24)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits = made(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
    logits.log_softmax(-1)[..., 7].mean().backward()
    gradients = {name: p.grad.clone() for name, p in made.named_parameters() if p.grad is not None}
    return logits.detach(), gradients, sum(kept.values())


def test_the_forward_has_the_same_bits_and_gradients_are_the_same_up_to_rounding() -> None:
    made = adapted()
    logits, gradients, kept = learned(made)
    assert keep_less(made) == 14
    ours, own, less = learned(made)
    assert torch.equal(ours, logits) and own.keys() == gradients.keys()
    exact = learned(adapted(torch.float32))[1]
    for name, gradient in gradients.items():
        size = exact[name].norm()
        assert (own[name] - gradient).norm() < 0.02 * size, name
        assert (own[name] - exact[name]).norm() < 1.1 * (gradient - exact[name]).norm() + 1e-3 * size, name
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


def squeezed(name: str) -> dict[str, Any]:
    records = json.loads(shared("fixtures/credit.json").read_text(encoding="utf-8"))["cases"]
    (case,) = [case for case in records if case["group"] == "squeeze" and case["id"] == name]
    return case


def test_variance_by_rank_reference() -> None:
    case = squeezed("squeeze_diag")
    i, expected = case["inputs"], case["expected"]
    layer = variance_by_rank(np.array(i["A"]), np.array(i["B"]), i["target_ranks"])
    assert layer.singular_values == pytest.approx(expected["singular_values"], abs=case["abs_tol"])
    assert {str(k): v for k, v in layer.variance.items()} == pytest.approx(expected["variance_at_rank"], abs=1e-5)
    assert recommended_rank({"layer": layer}) == expected["recommended_rank_0.95"]


def test_compressed_reference() -> None:
    case = squeezed("squeeze_small")
    up, down, expected = np.array(case["inputs"]["A"]), np.array(case["inputs"]["B"]), case["expected"]
    layer = variance_by_rank(up, down, [1, 2])
    assert layer.singular_values == pytest.approx(expected["singular_values"], abs=case["abs_tol"])
    assert {str(k): v for k, v in layer.variance.items()} == pytest.approx(expected["variance_at_rank"], abs=1e-4)
    small_up, small_down, alpha = compressed(up, down, 1, alpha=32)
    assert (small_up.shape, small_down.shape, alpha) == ((3, 1), (1, 3), 16)
    assert small_up @ small_down == pytest.approx(np.array(expected["rank1_product"]), abs=case["abs_tol"])
    assert np.linalg.norm(up @ down - small_up @ small_down) == pytest.approx(expected["frobenius_error"], abs=1e-4)
    with pytest.raises(ValueError, match=r"rank 3 is not in \[1, 2\]"):
        compressed(up, down, 3, alpha=32)


def test_an_adapter_that_learned_nothing_recommends_no_rank() -> None:
    case = squeezed("squeeze_zero")
    zero = variance_by_rank(np.zeros((3, 2)), np.array(case["inputs"]["B"]), [1, 2])
    assert {str(k): v for k, v in zero.variance.items()} == case["expected"]
    with pytest.raises(ValueError, match="nothing was learned"):
        recommended_rank({"a": zero, "b": zero})
    full = variance_by_rank(np.eye(2), np.eye(2), [1, 2])
    assert recommended_rank({"a": zero, "b": full}, share=0.7) == 2  # with the zero layer, 1 would have 0.75
    assert recommended_rank({"b": variance_by_rank(np.eye(2), np.eye(2), [1])}) is None
    with pytest.raises(ValueError, match="needs shapes"):
        variance_by_rank(np.eye(2), np.eye(3), [1])
