"""What the libraries compute, with less kept for the backward pass: LoRA over bfloat16, attention in float32."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.agents.toys import GPU, model
from trainers import activations
from trainers.activations import keep_less


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


# -- Attention ---------------------------------------------------------------------------------------------------------


def _model(device: str = "cpu", **sizes: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=32, num_attention_heads=6, num_key_value_heads=2,
        num_hidden_layers=2, attn_implementation="sdpa", **sizes,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(device)


@pytest.fixture
def ours():
    activations.attend_in_one_kernel()
    yield
    AttentionInterface.register(activations.SDPA, sdpa_attention_forward)


@pytest.mark.parametrize("padded", [False, True])
def test_heads_spelled_out_give_the_same_logits_and_gradients(ours, monkeypatch, padded):
    model, ids = _model(), torch.arange(24).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0 if padded else 1
    found, asked = [], []
    for spelled_out in (False, True):
        monkeypatch.setattr(activations, "no_grouped_kernel", lambda query, on=spelled_out: asked.append(on) or on)
        model.zero_grad()
        out = model(input_ids=ids, attention_mask=mask).logits
        out[mask.bool()].logsumexp(-1).sum().backward()
        found.append((out[mask.bool()], model.model.layers[0].self_attn.k_proj.weight.grad.clone()))
    for grouped, spelled in zip(*found, strict=True):
        torch.testing.assert_close(spelled, grouped, rtol=1e-4, atol=1e-6)
    assert bool(asked) is not padded, "with padding transformers spells them out itself"


def test_a_processor_keeps_its_kernels():
    assert not activations.no_grouped_kernel(torch.zeros(1, 6, 12, 8))


@pytest.mark.parametrize("device", [GPU])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_memory_grows_with_the_tokens_not_their_square(ours, dtype, device):
    model = _model(device, max_position_embeddings=8192).to(dtype)

    def kept(tokens: int) -> int:
        ids = torch.arange(tokens, device=device)[None] % 64
        before = torch.cuda.memory_allocated()
        out = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        assert out.logits.requires_grad, "it holds what the backward pass needs"
        return torch.cuda.memory_allocated() - before

    kept(64)
    assert kept(8192) < 5 * kept(2048)
