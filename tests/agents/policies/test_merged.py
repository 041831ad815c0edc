"""A policy that samples from a merged copy of its model."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from agents.policies.merged import sampling_dtype
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, PolicyError, Request, Sampling
from tests.agents.toys import full_forward, model, tokenizer

PROMPT = [11, 12, 40, 99, 7]


def adapted(**settings: Any) -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.5, **settings)
    wrapped = peft.get_peft_model(model("gqa"), config)
    shake(wrapped, 1)
    return wrapped.eval()


def shake(wrapped: Any, seed: int) -> None:
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)


def ask(policy: TransformersPolicy, temperature: float = 0.7) -> Completion:
    return policy.complete([Request("a", PROMPT, seed=1)], Sampling(temperature, 12))[0]


def expected(made: Any, completion: Completion, temperature: float = 0.7) -> torch.Tensor:
    return full_forward(made, PROMPT, completion.ids, temperature)[0]


def equal(completion: Completion, want: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert torch.tensor(completion.logprobs, dtype=torch.float64) == pytest.approx(want.numpy(), abs=tolerance)


def test_a_copy_samples_as_the_model_with_its_adapter_and_follows_it() -> None:
    wrapped = adapted()
    policy = TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.float32)
    first = ask(policy)
    equal(first, expected(wrapped, first))
    shake(wrapped, 2)
    second = ask(policy)
    equal(second, expected(wrapped, second))
    assert (expected(wrapped, first) - torch.tensor(first.logprobs)).abs().max() > 1e-2
    with wrapped.disable_adapter():
        bare = ask(policy)
        equal(bare, expected(wrapped, bare))
    wrapped.merge_adapter()
    merged = ask(policy)
    assert merged.ids == second.ids
    equal(merged, expected(wrapped, merged))
    for parameter in wrapped.get_base_model().lm_head.parameters():
        parameter.data.mul_(0.5)  # leaves no trace
    policy.invalidate()
    changed = ask(policy)
    equal(changed, expected(wrapped, changed))


def test_the_model_itself_is_left_alone() -> None:
    wrapped = adapted()
    before = copy.deepcopy(wrapped.state_dict())
    ask(TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.bfloat16))
    after = wrapped.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gemma2", "gpt2"])
def test_any_model_in_half_precision(kind: str) -> None:
    made = model(kind)
    policy = TransformersPolicy(made, tokenizer(), sample_dtype=torch.bfloat16)
    completion = ask(policy, 1.0)
    equal(completion, expected(made, completion, 1.0), 0.1)
    half = copy.deepcopy(made).to(torch.bfloat16)
    equal(completion, expected(half, completion, 1.0), 0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"use_dora": True}, "does not merge by addition"),
        ({"lora_bias": True, "target_modules": ["q_proj"]}, "does not merge by addition"),
        ({"modules_to_save": ["lm_head"]}, "trained as a whole"),
        ({"target_modules": ["lm_head"], "tied": True}, "shares its weight"),
        ({"target_modules": ["embed_tokens"], "tied": True}, "shares its weight"),
    ],
)
def test_what_cannot_be_merged_is_refused(settings: dict[str, Any], message: str) -> None:
    peft = pytest.importorskip("peft")
    made = model("gqa")
    if settings.pop("tied", False):
        made.config.tie_word_embeddings = True
        made.tie_weights()
    if settings.get("lora_bias"):
        for layer in made.model.layers:
            layer.self_attn.q_proj.bias = torch.nn.Parameter(torch.zeros(64))
    config = peft.LoraConfig(**{"r": 4, "target_modules": "all-linear", "task_type": "CAUSAL_LM", **settings})
    policy = TransformersPolicy(peft.get_peft_model(made, config).eval(), tokenizer(), sample_dtype=torch.float32)
    with pytest.raises(PolicyError, match=message):
        ask(policy)


def test_an_adapter_on_a_bare_parameter_is_merged_where_it_is_that_of_a_layer() -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=[], target_parameters=["q_proj.weight"], task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(model("gqa"), config).eval()
    shake(wrapped, 1)
    completion = ask(TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.float32))
    equal(completion, expected(wrapped, completion))
    with wrapped.disable_adapter():
        assert (expected(wrapped, completion) - torch.tensor(completion.logprobs)).abs().max() > 1e-3


@pytest.mark.parametrize("targets", [["experts.down_proj"], ["experts.down_proj", "experts.gate_up_proj"]])
def test_an_adapter_on_the_experts_is_merged_or_refused(targets: list[str]) -> None:
    peft = pytest.importorskip("peft")
    made = model("moe")
    config = peft.LoraConfig(r=2, target_modules=[], target_parameters=targets, task_type="CAUSAL_LM")
    wrapped = peft.get_peft_model(made, config).eval()
    shake(wrapped, 1)
    policy = TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.float32)
    if len(targets) > 1:  # one wrapper in another
        with pytest.raises(PolicyError, match="sample with the model itself|was not found in it"):
            ask(policy)
        return
    completion = ask(policy)
    equal(completion, expected(wrapped, completion))


def test_adapters_that_do_not_act_are_no_obstacle() -> None:
    peft = pytest.importorskip("peft")
    wrapped = adapted()
    wrapped.add_adapter("idle", peft.LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    completion = ask(TransformersPolicy(wrapped, tokenizer(), sample_dtype=torch.float32))
    equal(completion, expected(wrapped, completion))


def test_a_parameter_that_would_be_in_the_copy_nowhere_is_refused() -> None:
    made = model("gqa")
    policy = TransformersPolicy(made, tokenizer(), sample_dtype=torch.bfloat16)
    made.model.layers[1].mlp.gain = torch.nn.Parameter(torch.ones(64))
    with pytest.raises(PolicyError, match=r"layers\.1\.mlp\.gain has no place in a merged copy: sample with the model"):
        ask(policy)


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="sample_dtype is 'half'"):
        TransformersPolicy(model(), tokenizer(), sample_dtype="half")


@pytest.mark.parametrize(("amx", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_takes_what_the_machine_multiplies_in_hardware(
    amx: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "cpu", SimpleNamespace(get_capabilities=lambda: {"amx_tile": amx}))
    assert sampling_dtype(torch.device("cpu")) is dtype
