"""What the libraries compute, with less kept or launched: LoRA over bfloat16 and float32, attention in float32."""

from __future__ import annotations

import copy
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from tests.agents.toys import GPU, model
from trainers import activations
from trainers.activations import KnownMask, keep_less


def adapted(dtype: torch.dtype = torch.bfloat16, kind: str = "gqa", **settings: Any) -> Any:
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", **settings)
    made = get_peft_model(model(kind).to(dtype), config)
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


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activations, "sums_in_products", lambda weight: weight.dtype == torch.float32)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("kind", ["gqa", "qwen2"])  # without and with biases
def test_over_float32_all_is_the_same_up_to_rounding(as_on_a_gpu: None, kind: str, device: str) -> None:
    made = adapted(torch.float32, kind).to(device)
    logits, gradients, kept = learned(made)
    assert keep_less(made) == 14
    ours, own, as_much = learned(made)
    torch.testing.assert_close(ours, logits, rtol=1e-4, atol=1e-4)
    assert own.keys() == gradients.keys() and as_much == kept
    for name, gradient in gradients.items():
        assert (own[name] - gradient).norm() < 1e-4 * gradient.norm(), name
    layer, x = made.base_model.model.model.layers[0].self_attn.q_proj, torch.randn(2, 24, 64, device=device)
    learns = layer(x)
    with torch.no_grad():
        assert learns.requires_grad and torch.equal(layer(x), learns), "scored as it is learned"


@pytest.mark.parametrize("device", [GPU])
def test_a_gpu_computes_adapters_over_float32_so(device: str) -> None:
    made = adapted(torch.float32)
    assert keep_less(made) == 0 and keep_less(made.to(device)) == 14
    assert keep_less(adapted(torch.float32).to(device, torch.bfloat16)) == 0, "adapters in bfloat16, too"


def _sizes(dtype: torch.dtype = torch.float64, bias: bool = True) -> tuple[Any, ...]:
    """x of shape (2, 3, 5) whose rows lie apart, a weight (7, 5), its bias, A of rank 4 and B."""
    generator = torch.Generator().manual_seed(2)

    def some(*shape: int, learns: bool = True) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(learns)

    x = some(3, 2, 5).transpose(0, 1)
    return x, some(7, 5, learns=False), some(7, learns=False) if bias else None, some(4, 5), some(7, 4)


@pytest.mark.parametrize("bias", [False, True])
def test_the_gradients_are_those_of_the_formula(bias: bool) -> None:
    x, weight, shift, a, b = _sizes(bias=bias)
    apply = activations._Adapted.apply
    expected = x @ weight.T + 2.5 * (x @ a.T) @ b.T + (0.0 if shift is None else shift)
    torch.testing.assert_close(apply(x, weight, shift, a, b, 2.5), expected)
    torch.autograd.gradcheck(lambda *learns: apply(learns[0], weight, shift, *learns[1:], 2.5), (x, a, b))
    # A gradient whose rows lie apart, as attention leaves it.
    apart = torch.arange(42.0, dtype=x.dtype).view(3, 2, 7).transpose(0, 1)
    found = torch.autograd.grad(apply(x, weight, shift, a, b, 2.5), (x, a, b), apart)
    for own, gradient in zip(found, torch.autograd.grad(expected, (x, a, b), apart), strict=True):
        torch.testing.assert_close(own, gradient)


def test_no_kernel_is_left_beside_the_products() -> None:
    x, weight, bias, a, b = _sizes(torch.float32)
    x = x.detach().contiguous().requires_grad_()
    gradient = torch.ones(2, 3, 7)
    with _Counts() as forward:
        out = activations._Adapted.apply(x, weight, bias, a, b, 2.5)
    with _Counts() as backward:
        torch.autograd.grad(out, (x, a, b), gradient)
    assert forward.found == {"addmm": 1, "mm": 1, "addmm_": 1}  # with a bias, else two `mm`
    assert backward.found == {"mm": 2, "addmm": 2, "addmm_": 1}
    with _Counts() as alone:
        torch.autograd.grad(activations._Adapted.apply(x.detach(), weight, bias, a, b, 2.5), (a, b), gradient)
    assert alone.found.total() == 3 + 3, "none for an x that needs no gradient"


class _Counts(TorchDispatchMode):
    """How often which operation ran that is more than a view."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not func.is_view and func is not torch.ops.aten._unsafe_view.default:
            self.found[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
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
def test_all_else_is_what_peft_says(as_on_a_gpu: None, settings: Any, does: Any, dtype: torch.dtype) -> None:
    made = adapted(dtype, **settings)
    made.add_adapter("other", LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM"))
    does(made)
    plain = copy.deepcopy(made)
    assert keep_less(made)
    ids = torch.arange(3, 23).view(2, 10)
    assert torch.equal(made(input_ids=ids).logits, plain(input_ids=ids).logits)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_bias_that_is_trained_gets_its_gradient(as_on_a_gpu: None, dtype: torch.dtype) -> None:
    made = get_peft_model(
        model("qwen2").to(dtype),
        LoraConfig(r=4, target_modules=["q_proj"], bias="lora_only", task_type="CAUSAL_LM"),
    )
    assert keep_less(made) == 2
    made(input_ids=torch.arange(3, 23).view(2, 10)).logits.logsumexp(-1).sum().backward()
    assert made.base_model.model.model.layers[0].self_attn.q_proj.base_layer.bias.grad.count_nonzero()


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


# -- Masks that the host knows -----------------------------------------------------------------------------------------


def taken(states: torch.Tensor, mode: Any) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What a mask chooses of hidden states, put into its places again, and the gradient of the states."""
    device, states = states.device, states.clone().requires_grad_()
    mask = torch.zeros(3, 5, dtype=torch.bool, device=device)
    mask[0, 1:4] = mask[2, 1:2] = True
    with mode or nullcontext():
        chosen = states[:, :-1][mask]
        whole = torch.zeros(3, 5, device=device).masked_scatter(mask, chosen.sum(1).exp())
        ids = torch.arange(15, device=device).view(3, 5)[mask]
    (whole * torch.arange(15, device=device).view(3, 5)).sum().backward()
    return [chosen, whole, ids], states.grad


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_a_known_mask_chooses_the_same_and_nobody_waits_for_it(device: str) -> None:
    states = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(0)).to(device)
    plain, gradient = taken(states, None)
    known = KnownMask(1, [3, 0, 1], 5, torch.device(device))
    if device != "cpu":
        torch.cuda.set_sync_debug_mode("error")
    try:
        ours, own = taken(states, known)
    finally:
        if device != "cpu":
            torch.cuda.set_sync_debug_mode("default")
    assert all(map(torch.equal, ours, plain)) and torch.equal(own, gradient)
    assert ours[2].tolist() == [1, 2, 3, 11] and known.wrong == 0


@pytest.mark.parametrize("counts", [[3, 0, 2], [3, 1, 1], [2, 0, 1]], ids=["more", "elsewhere", "fewer"])
def test_a_mask_that_is_not_as_known_is_counted(counts: list[int]) -> None:
    known, mask = KnownMask(1, counts, 5, torch.device("cpu")), torch.zeros(3, 5, dtype=torch.bool)
    mask[0, 1:4] = mask[2, 1:2] = True
    with known:
        torch.ones(3, 5)[mask]
    assert known.wrong > 0


def test_other_masks_are_taken_as_ever() -> None:
    with KnownMask(0, [1, 1], 3, torch.device("cpu")) as known:
        assert torch.arange(3)[torch.tensor([True, False, True])].tolist() == [0, 2]
        assert torch.arange(6).view(2, 3)[:, 1].tolist() == [1, 4]
    assert known.wrong == 0
