"""Decoding in fixed shapes. On a CPU the same step runs uncaptured; on a GPU as a CUDA graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.policies.cuda import MOST, GraphStepper, padded_prefill, padded_rows
from agents.policies.fused import FusedDecoder
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, FinishReason, Request, Sampling
from tests.agents.toys import GPU, full_forward, model, tokenizer


def fixed(made: Any, device: str = "cpu", **changes: Any) -> TransformersPolicy:
    policy = TransformersPolicy(made.to(device), tokenizer(), **changes)
    if device == "cpu":
        policy._stepper = GraphStepper(policy._decoder, policy._table.cache, capture=False)
    return policy


def prompt(n: int, length: int) -> list[int]:
    return [10 + (n * 7 + i * i) % 200 for i in range(length)]


def check(made: Any, request: Request, completion: Completion, temperature: float) -> None:
    made = made.to("cpu")
    expected = full_forward(made, list(request.prompt_ids), completion.ids, temperature)
    for got, want in zip((completion.logprobs, completion.entropies, completion.max_logprobs), expected, strict=True):
        assert torch.tensor(got, dtype=torch.float64) == pytest.approx(want.numpy(), abs=1e-4)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen3", "mistral", "gemma2", "gpt2"])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_three_turns_equal_the_eager_engine(kind: str, temperature: float, device: str) -> None:
    made = model(kind)
    policy, eager = fixed(made, device), TransformersPolicy(model(kind), tokenizer())
    contexts = {f"c{n}": prompt(n, 3 + 5 * n) for n in range(5)}
    for turn in range(3):
        # c2 sits out the second turn: what it has cached must survive the rows that only fill up.
        names = [name for name in contexts if (turn, name) != (1, "c2")]
        requests = [
            Request(name, contexts[name], seed=turn * 10 + i, max_tokens=20 + i) for i, name in enumerate(names)
        ]
        sampling = Sampling(temperature, 40)
        for request, ours, theirs in zip(
            requests, policy.complete(requests, sampling), eager.complete(requests, sampling), strict=True
        ):
            assert (ours.ids, ours.finish) == (theirs.ids, theirs.finish)
            check(made, request, ours, temperature)
            made.to(device)
            contexts[request.conversation] = [*request.prompt_ids, *ours.ids, *prompt(turn, 1 + 9 * turn)]


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.6}, {"top_p": 0.9, "top_k": 5}])
def test_cuts_draw_what_the_eager_engine_draws(cut: dict[str, Any], device: str) -> None:
    policy, eager = fixed(model("gqa"), device), TransformersPolicy(model("gqa"), tokenizer())
    sampling = Sampling(1.0, 24, **cut)
    requests = [Request(f"c{n}", prompt(n, 3 + 5 * n), seed=n, max_tokens=20 + n) for n in range(5)]
    for ours, theirs in zip(policy.complete(requests, sampling), eager.complete(requests, sampling), strict=True):
        assert (ours.ids, ours.finish) == (theirs.ids, theirs.finish)
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)
    whole = policy.complete([Request("w", prompt(1, 8), seed=3, max_tokens=24)], Sampling(1.0, 24))[0]
    assert whole.ids != policy.complete([Request("v", prompt(1, 8), seed=3, max_tokens=24)], sampling)[0].ids


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_long_context_passes_from_one_read_length_to_the_next(device: str) -> None:
    made = model("gqa")
    policy = fixed(made, device)
    request = Request("a", prompt(3, 250), seed=5, max_tokens=30)
    completion = policy.complete([request], Sampling(1.0, 30))[0]
    assert len(completion.ids) > 10
    check(made, request, completion, 1.0)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_controls_are_asked_at_every_position(device: str) -> None:
    class Every:
        def __init__(self) -> None:
            self.seen: list[int] = []

        def force(self, ids: Any, entropy: float, max_logprob: float) -> int | None:
            self.seen.append(len(ids))
            return 42 if len(ids) % 3 == 2 else None

    made, control = model("gqa"), Every()
    request = Request("a", prompt(1, 6), seed=1, max_tokens=10, control=control)
    completion = fixed(made, device, eos_ids=[319]).complete([request], Sampling(0.7, 10))[0]
    assert control.seen == list(range(len(completion.ids)))
    assert completion.forced == [at % 3 == 2 for at in range(len(completion.ids))]
    check(made, request, completion, 0.7)


def test_rows_that_end_inside_a_block_keep_nothing_behind_their_end() -> None:
    policy = fixed(model("gqa"), eos_ids=[1000])
    requests = [Request(f"c{n}", prompt(n, 5), seed=n, max_tokens=n + 1) for n in range(2 * MOST)]
    completions = policy.complete(requests, Sampling(1.0, 64))
    assert [len(c.ids) for c in completions] == [n + 1 for n in range(2 * MOST)]
    assert {c.finish for c in completions} == {FinishReason.LENGTH}


def test_an_optimizer_step_keeps_the_graphs_and_empties_the_cache() -> None:
    made = model("gqa")
    policy = fixed(made)
    stepper = policy._stepper
    assert isinstance(stepper, GraphStepper)
    request = Request("a", prompt(1, 6), seed=1, max_tokens=6)
    policy.complete([request], Sampling(1.0, 6))
    captured = list(stepper._steps.values())
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(1.05)
    check(made, request, policy.complete([request], Sampling(1.0, 6))[0], 1.0)
    assert list(stepper._steps.values()) == captured
    for parameter in made.parameters():
        parameter.data = parameter.data * 0.9
    check(made, request, policy.complete([request], Sampling(1.0, 6))[0], 1.0)
    assert not any(step in captured for step in stepper._steps.values())


@pytest.mark.parametrize(
    ("kind", "fits"),
    [("llama", True), ("gqa", True), ("qwen3", True), ("mistral", False), ("qwen3-windows", False), ("gemma2", False),
     ("granite", False), ("gpt2", False)],
)  # fmt: skip
def test_only_the_known_shape_is_fused(kind: str, fits: bool) -> None:
    assert FusedDecoder.fits(TransformersPolicy(model(kind), tokenizer())._decoder) is fits


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen2", "qwen3"])
def test_a_copy_joins_layers_with_the_same_input(kind: str, device: str) -> None:
    made = model(kind)
    policy = fixed(made, device, sample_dtype=torch.float32, frozen=True)
    fused = FusedDecoder(policy._decoder)
    assert all(one is not None for block in fused._joined for one in block)
    assert all(
        one is None for block in FusedDecoder(TransformersPolicy(made, tokenizer())._decoder)._joined for one in block
    )
    contexts = {f"c{n}": prompt(n, 3 + 5 * n) for n in range(5)}
    for turn in range(2):
        requests = [
            Request(name, ids, seed=turn * 10 + i, max_tokens=9) for i, (name, ids) in enumerate(contexts.items())
        ]
        for request, done in zip(requests, policy.complete(requests, Sampling(1.0, 9)), strict=True):
            check(made, request, done, 1.0)
            made.to(device)
            contexts[request.conversation] = [*request.prompt_ids, *done.ids, *prompt(turn, 4)]
        with torch.no_grad():
            for parameter in made.parameters():
                parameter.mul_(1.01)
        policy.renew()  # in place: what is joined has the new weights
    assert all(one is not None for block in FusedDecoder(policy._decoder)._joined for one in block)


def test_a_fused_step_that_disagrees_with_the_model_is_not_used() -> None:
    made = model("gqa")
    for layer in made.model.layers:
        layer.self_attn.scaling *= 2  # as the model's own modules and the fused step see it alike
    policy = fixed(made)
    policy.complete([Request("a", prompt(1, 6), seed=1)], Sampling(1.0, 3))
    assert policy._stepper._hidden != policy._decoder.hidden  # type: ignore[attr-defined]
    for layer in made.model.layers:
        layer.mlp.forward = lambda x, mlp=layer.mlp: 0.5 * mlp.down_proj(mlp.act_fn(mlp.gate_proj(x)) * mlp.up_proj(x))
    changed = fixed(made)
    request = Request("a", prompt(1, 6), seed=1)
    with pytest.warns(UserWarning, match="does something that the fused step does not know"):
        completion = changed.complete([request], Sampling(1.0, 3))[0]
    check(made, request, completion, 1.0)


def test_a_fused_step_that_raises_is_not_used_where_the_models_own_modules_run() -> None:
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(
        model("gqa"), peft.AdaptionPromptConfig(adapter_len=4, adapter_layers=1, task_type="CAUSAL_LM")
    ).eval()
    policy = fixed(wrapped)
    assert FusedDecoder.fits(policy._decoder)
    request = Request("a", prompt(1, 6), seed=1)
    with pytest.warns(UserWarning, match=r"the fused step does not know \(.*cannot run LlamaForCausalLM"):
        completion = policy.complete([request], Sampling(1.0, 3))[0]
    eager = TransformersPolicy(wrapped, tokenizer()).complete([request], Sampling(1.0, 3))[0]
    assert completion.ids == eager.ids and completion.logprobs == pytest.approx(eager.logprobs, abs=1e-4)


def test_few_shapes_serve_all_numbers_of_rows() -> None:
    for count in range(1, 600):
        padded = padded_rows(count)
        assert count <= padded <= max(2 * count, 4)
        assert count <= 16 or padded < 1.5 * count
    assert [padded_rows(n) for n in (1, 5, 9, 17, 25, 64, 65, 97)] == [4, 8, 16, 24, 32, 64, 96, 128]
    assert len({padded_rows(n) for n in range(1, 257)}) == 11


def test_a_prefill_is_padded_as_far_as_padding_costs_little() -> None:
    assert [padded_prefill(n, 50, 7000) for n in (1, 4, 5, 16, 17, 64)] == [
        (4, 64), (4, 64), (16, 64), (16, 64), (64, 64), (64, 64),
    ]  # fmt: skip
    assert [padded_prefill(n, 50, 142) for n in (1, 3, 16, 17)] == [(1, 64), (4, 64), (16, 64), (32, 64)]
    assert padded_prefill(2, 3, 7000) == (4, 16) and padded_prefill(32, 300, 7000) == (32, 512)
    for rows in range(1, 70):
        for tokens in (1, 15, 17, 70, 500):
            padded = padded_prefill(rows, tokens, 500)
            assert padded[0] >= rows and padded[1] >= tokens


def test_graphs_without_a_gpu_are_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(ValueError, match="graphs=True needs a model on one GPU; this one is on cpu"):
        TransformersPolicy(model(), tokenizer(), graphs=True)
