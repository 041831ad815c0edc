from __future__ import annotations

import pytest
import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.agents.toys import GPU
from trainers import attention


def _model(device: str = "cpu", **sizes: int) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64, hidden_size=48, intermediate_size=32, num_attention_heads=6, num_key_value_heads=2,
        num_hidden_layers=2, attn_implementation="sdpa", **sizes,
    )  # fmt: skip
    return LlamaForCausalLM(config).to(device)


@pytest.fixture
def ours():
    attention.attend_in_one_kernel()
    yield
    AttentionInterface.register(attention.NAME, sdpa_attention_forward)


@pytest.mark.parametrize("padded", [False, True])
def test_heads_spelled_out_give_the_same_logits_and_gradients(ours, monkeypatch, padded):
    model, ids = _model(), torch.arange(24).reshape(2, 12)
    mask = torch.ones_like(ids)
    mask[0, :3] = 0 if padded else 1
    found, asked = [], []
    for spelled_out in (False, True):
        monkeypatch.setattr(attention, "no_grouped_kernel", lambda query, on=spelled_out: asked.append(on) or on)
        model.zero_grad()
        out = model(input_ids=ids, attention_mask=mask).logits
        out[mask.bool()].logsumexp(-1).sum().backward()
        found.append((out[mask.bool()], model.model.layers[0].self_attn.k_proj.weight.grad.clone()))
    for grouped, spelled in zip(*found, strict=True):
        torch.testing.assert_close(spelled, grouped, rtol=1e-4, atol=1e-6)
    assert bool(asked) is not padded, "with padding transformers spells them out itself"


def test_a_processor_keeps_its_kernels():
    assert not attention.no_grouped_kernel(torch.zeros(1, 6, 12, 8))


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
