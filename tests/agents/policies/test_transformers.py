from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.policies.cuda import GraphStepper
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, FinishReason, Policy, PolicyError, Request, Sampling, abilities
from tests.agents.toys import full_forward, model, tokenizer

WARM = Sampling(temperature=0.7, max_tokens=12)


def make(kind: str = "llama", **changes: object) -> TransformersPolicy:
    return TransformersPolicy(model(kind), tokenizer(), **changes)  # type: ignore[arg-type]


def prompt(n: int, length: int) -> list[int]:
    return [10 + (n * 7 + i * i) % 200 for i in range(length)]


def ask(n: int, length: int = 5, **changes: object) -> Request:
    return Request(f"c{n}", prompt(n, length), seed=100 + n, **changes)  # type: ignore[arg-type]


def one(policy: TransformersPolicy, request: Request, sampling: Sampling = WARM) -> Completion:
    return policy.complete([request], sampling)[0]


def check_numbers(policy_model: object, request: Request, completion: Completion, temperature: float) -> None:
    expected = full_forward(policy_model, list(request.prompt_ids), completion.ids, temperature)
    for got, want in zip((completion.logprobs, completion.entropies, completion.max_logprobs), expected, strict=True):
        assert torch.tensor(got, dtype=torch.float64) == pytest.approx(want.numpy(), abs=1e-5)


def test_is_a_policy() -> None:
    assert isinstance(make(), Policy)


@pytest.mark.parametrize("kind", ["llama", "gqa", "qwen3", "qwen3-windows", "mistral", "gemma2", "granite", "gpt2"])
@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_numbers_are_those_of_a_full_forward_over_three_turns(kind: str, temperature: float) -> None:
    made = model(kind)
    policy = TransformersPolicy(made, tokenizer())
    sampling = Sampling(temperature, 10)
    contexts = {f"c{n}": prompt(n, 3 + 5 * n) for n in range(4)}
    for turn in range(3):
        # c2 sits out the second turn: its cache waits.
        names = [name for name in contexts if (turn, name) != (1, "c2")]
        requests = [Request(name, contexts[name], seed=turn * 10 + i) for i, name in enumerate(names)]
        for request, completion in zip(requests, policy.complete(requests, sampling), strict=True):
            check_numbers(made, request, completion, temperature)
            contexts[request.conversation] = [*request.prompt_ids, *completion.ids, *prompt(turn, 1 + 9 * turn)]


def test_greedy_is_the_argmax_of_the_full_forward() -> None:
    made = model()
    completion = one(TransformersPolicy(made, tokenizer()), ask(1), Sampling(0.0, 8))
    with torch.no_grad():
        ids = made(torch.tensor([prompt(1, 5) + completion.ids])).logits[0, 4:-1].argmax(-1).tolist()
    assert completion.ids == ids


def test_of_one_likeliest_id_the_draw_is_the_argmax_and_certain() -> None:
    """Also while somebody looks at each id, and with the uncertainty of the whole vocabulary."""
    made = model("gqa")
    greedy = one(TransformersPolicy(made, tokenizer()), ask(1), Sampling(0.0, 8))
    for cut in ({"top_k": 1}, {"top_p": 1e-6}):
        sampled = one(TransformersPolicy(made, tokenizer()), ask(1), Sampling(1.0, 8, **cut))
        assert sampled.ids == greedy.ids and sampled.logprobs == pytest.approx([0.0] * len(greedy.ids), abs=1e-6)
        assert sampled.entropies == pytest.approx(greedy.entropies, abs=1e-5)
    assert abilities(TransformersPolicy(made, tokenizer())).truncates
    drawn = one(TransformersPolicy(made, tokenizer()), ask(1), Sampling(1.0, 8))
    assert one(TransformersPolicy(made, tokenizer()), ask(1), Sampling(1.0, 8, top_k=10**6)).ids == drawn.ids


def test_cached_turns_equal_a_fresh_policy() -> None:
    kept = make("gqa")
    context = prompt(0, 9)
    for turn in range(4):
        request = Request("talk", context, seed=turn)
        completion, fresh = one(kept, request), one(make("gqa"), request)
        assert completion.ids == fresh.ids
        assert completion.logprobs == pytest.approx(fresh.logprobs, abs=1e-5)
        context = context + completion.ids + prompt(turn, 4)


def test_only_the_new_ids_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    first = one(policy, ask(0, 20))
    computed: list[int] = []
    hidden = policy._decoder.hidden
    monkeypatch.setattr(
        policy._decoder, "hidden", lambda ids, *rest: (computed.append(ids.shape[1]), hidden(ids, *rest))[1]
    )
    one(policy, Request("c0", prompt(0, 20) + first.ids + [11, 12, 13], seed=1))
    # The last sampled id was never fed; after it come three new ones.
    assert computed[0] == 4
    assert set(computed[1:]) <= {1}


def test_a_fork_takes_over_what_is_cached_and_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model("gqa")
    policy = TransformersPolicy(made, tokenizer())
    one(policy, ask(0, 20))
    computed: list[int] = []
    hidden = policy._decoder.hidden
    monkeypatch.setattr(
        policy._decoder, "hidden", lambda ids, *rest: (computed.append(ids.shape[1]), hidden(ids, *rest))[1]
    )
    again = [Request("c0", prompt(0, 20), seed=1), Request("x", prompt(0, 20), seed=2, fork_of="c0")]
    other = Request("y", prompt(0, 12) + [7, 8], seed=3, fork_of="c0")
    for request, completion in zip([*again, other], policy.complete([*again, other], WARM), strict=True):
        check_numbers(made, request, completion, WARM.temperature)
    assert set(computed) <= {1, 2}
    request = Request("z", prompt(3, 5), seed=3, fork_of="nobody")
    check_numbers(made, request, one(policy, request), WARM.temperature)


def test_a_prompt_that_does_not_extend_the_cache_is_cropped_to_the_common_prefix() -> None:
    made = model()
    policy = TransformersPolicy(made, tokenizer())
    one(policy, ask(0, 20))
    for length in (20, 7, 1):
        changed = prompt(0, length) + [200, 201, 202]
        request = Request("c0", changed, seed=3)
        check_numbers(made, request, one(policy, request), WARM.temperature)
        # And the very same prompt again: everything is cached, the last id is computed anew.
        check_numbers(made, request, one(policy, request), WARM.temperature)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]])
def test_a_seed_gives_its_reply_whatever_else_is_in_the_batch(order: list[int]) -> None:
    alone = {n: one(make(), ask(n, 3 + 40 * (n % 2) + n)).ids for n in range(5)}
    policy = make()
    got = policy.complete([ask(n, 3 + 40 * (n % 2) + n) for n in order], WARM)
    assert {n: completion.ids for n, completion in zip(order, got, strict=True)} == alone


def test_seeds_matter_and_zero_is_a_seed() -> None:
    replies = {seed: tuple(one(make(), Request("a", prompt(0, 5), seed=seed)).ids) for seed in range(6)}
    assert len(set(replies.values())) == 6
    assert one(make(), Request("b", prompt(0, 5), seed=0)).ids == list(replies[0])


def test_a_longer_cap_continues_the_same_reply() -> None:
    short = one(make(), ask(0, max_tokens=4))
    long = one(make(), ask(0, max_tokens=9))
    assert long.ids[:4] == short.ids
    assert short.finish is FinishReason.LENGTH


def test_attempts_with_one_prompt_share_its_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    one(policy, ask(9))  # the engine's check of the architecture is behind us
    rows: list[tuple[int, ...]] = []
    hidden = policy._decoder.hidden
    monkeypatch.setattr(
        policy._decoder, "hidden", lambda ids, *rest: (rows.append(tuple(ids.shape)), hidden(ids, *rest))[1]
    )
    requests = [Request(f"try{i}", prompt(0, 30), seed=i) for i in range(6)]
    got = policy.complete(requests, WARM)
    assert rows[0] == (1, 30)
    for request, completion in zip(requests, got, strict=True):
        assert completion.ids == one(make(), request).ids


def test_rows_that_ended_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    rows: list[int] = []
    hidden = policy._decoder.hidden
    monkeypatch.setattr(
        policy._decoder, "hidden", lambda ids, *rest: (rows.append(ids.shape[0]), hidden(ids, *rest))[1]
    )
    caps = [2, 30, 3, 2, 2, 20, 2, 2]
    requests = [ask(n, 4 + n, max_tokens=cap) for n, cap in enumerate(caps)]
    got = policy.complete(requests, WARM)
    assert rows[-1] == 1
    assert [len(completion.ids) for completion in got if completion.finish is FinishReason.LENGTH]
    for request, completion in zip(requests, got, strict=True):
        assert completion.ids == one(make(), request).ids
    # Slots were swapped on the way: every conversation still has its own cache.
    later = [Request(r.conversation, [*r.prompt_ids, *c.ids, 44], seed=9) for r, c in zip(requests, got, strict=True)]
    for request, completion in zip(later, policy.complete(later, WARM), strict=True):
        check_numbers(policy._decoder.base, request, completion, WARM.temperature)


def test_every_end_id_stops_and_nothing_after_it_is_kept() -> None:
    long = one(make(), ask(0, max_tokens=12), Sampling(1.0))
    for position in (0, 3, 7):
        stopped = one(make(eos_ids=[long.ids[position], 319]), ask(0, max_tokens=12), Sampling(1.0))
        at = long.ids.index(long.ids[position])
        assert stopped.ids == long.ids[: at + 1]
        assert stopped.finish is FinishReason.STOP


def test_end_ids_come_from_tokenizer_and_generation_config() -> None:
    made = model()
    made.generation_config.eos_token_id = [0, 7]
    assert TransformersPolicy(made, tokenizer()).eos_ids == {tokenizer().eos_token_id, 0, 7}


class Force:
    """Forces an id at some positions; remembers what it was told."""

    def __init__(self, wanted: dict[int, int]) -> None:
        self.wanted = wanted
        self.told: list[tuple[int, float, float]] = []

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        self.told.append((len(ids), entropy, max_logprob))
        return self.wanted.get(len(ids))


def test_forced_ids_enter_the_context_and_are_flagged() -> None:
    made = model()
    policy = TransformersPolicy(made, tokenizer())
    control = Force({1: 50, 4: 60})
    controlled, free = ask(0, control=control), ask(1)
    completion, other = policy.complete([controlled, free], WARM)
    assert (completion.ids[1], completion.ids[4]) == (50, 60)
    assert [at for at, forced in enumerate(completion.forced) if forced] == [1, 4]
    assert not any(other.forced)
    check_numbers(made, controlled, completion, WARM.temperature)
    assert [told[0] for told in control.told] == list(range(len(completion.ids)))
    assert [told[1] for told in control.told] == pytest.approx(completion.entropies)
    assert [told[2] for told in control.told] == pytest.approx(completion.max_logprobs)


class Watches(Force):
    """Also reads the likeliest ids."""

    def watch(self, top_mean: float) -> None:
        self.tops = [*getattr(self, "tops", []), top_mean]


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_the_likeliest_ids_are_reported_where_they_are_asked_for(temperature: float, fixed: bool) -> None:
    made = model()
    policy = TransformersPolicy(made, tokenizer())
    if fixed:
        policy._stepper = GraphStepper(policy._decoder, policy._table.cache, capture=False)
    control = Watches({1: 50})
    requests = [ask(0, control=control, top=5), ask(1, top=10_000), ask(2), ask(3, control=Force({}), top=5)]
    replies = policy.complete(requests, Sampling(temperature, 12))
    for request, reply in zip(requests, replies, strict=True):
        assert (reply.top_means is not None) == (request.top > 0)
        if reply.top_means is None:
            continue
        with torch.no_grad():
            ids = torch.tensor([[*request.prompt_ids, *reply.ids]])
            logits = made(ids).logits[0, len(request.prompt_ids) - 1 : -1].double()
        exact = logits.log_softmax(-1).topk(min(request.top, logits.shape[-1])).values.mean(-1)
        assert reply.top_means == pytest.approx(exact.tolist(), abs=1e-4)
    assert control.tops == replies[0].top_means
    alone = TransformersPolicy(made, tokenizer()).complete([ask(2)], Sampling(temperature, 12))
    assert alone[0].ids == replies[2].ids  # looking changes nothing


def test_a_forced_end_id_ends_the_turn() -> None:
    completion = one(make(), ask(0, control=Force({2: tokenizer().eos_token_id})))
    assert len(completion.ids) == 3
    assert completion.finish is FinishReason.STOP


def test_an_optimizer_step_is_noticed() -> None:
    made = model()
    policy = TransformersPolicy(made, tokenizer())
    request = ask(0, 12)
    one(policy, request)
    optimizer = torch.optim.AdamW(made.parameters(), lr=1e-2)
    made(torch.tensor([prompt(0, 6)]), labels=torch.tensor([prompt(0, 6)])).loss.backward()
    optimizer.step()
    check_numbers(made, request, one(policy, request), WARM.temperature)


def test_invalidate_covers_changes_that_leave_no_trace() -> None:
    made = model()
    policy = TransformersPolicy(made, tokenizer())
    request = ask(0, 12)
    one(policy, request)
    made.model.embed_tokens.weight.data.mul_(1.5)
    policy.invalidate()
    check_numbers(made, request, one(policy, request), WARM.temperature)


def test_forget_frees_the_slot() -> None:
    policy = make()
    for n in range(20):
        one(policy, ask(n))
        policy.forget([f"c{n}"])
    assert len(policy._table.slots) == 1
    assert one(policy, ask(3)).ids == one(make(), ask(3)).ids


def test_training_flags_and_gradients_are_as_before() -> None:
    made = model("gpt2")  # has dropout: evaluation mode matters
    made.train()
    made.transformer.h[0].eval()
    made.gradient_checkpointing_enable()
    flags = {name: module.training for name, module in made.named_modules()}
    policy = TransformersPolicy(made, tokenizer())
    first, second = (one(policy, Request(name, prompt(0, 8), seed=1)) for name in ("a", "b"))
    assert {name: module.training for name, module in made.named_modules()} == flags
    assert first.ids == second.ids and first.logprobs == second.logprobs
    check_numbers(copy.deepcopy(made).eval(), ask(0, 8), first, WARM.temperature)
    loss = made(torch.tensor([prompt(0, 6)]), labels=torch.tensor([prompt(0, 6)])).loss
    loss.backward()
    assert made.transformer.wte.weight.grad.abs().sum() > 0


def test_flags_are_restored_when_sampling_fails() -> None:
    made = model().train()
    with pytest.raises(PolicyError, match="do not fit"):
        one(TransformersPolicy(made, tokenizer(), max_context=8), ask(0, 8))
    assert made.training


def test_lora_is_sampled_with_its_adapter() -> None:
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(
        model("gqa"), peft.LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM", lora_dropout=0.5)
    )
    torch.manual_seed(1)
    with torch.no_grad():
        for name, parameter in wrapped.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.2)
    wrapped.train()
    completion = one(TransformersPolicy(wrapped, tokenizer()), ask(0, 8))
    check_numbers(copy.deepcopy(wrapped).eval(), ask(0, 8), completion, WARM.temperature)
    with wrapped.disable_adapter():
        plain = full_forward(copy.deepcopy(wrapped).eval(), prompt(0, 8), completion.ids, WARM.temperature)[0]
    assert (torch.tensor(completion.logprobs) - plain).abs().max() > 1e-3


def test_a_patched_forward_does_not_matter() -> None:
    utils = pytest.importorskip("trl.trainer.utils")
    if not hasattr(utils, "add_fused_lm_head"):
        pytest.skip("this TRL has no fused head")
    made = model()
    plain = copy.deepcopy(made)
    utils.add_fused_lm_head(made, temperature=0.5)
    check_numbers(plain, ask(0), one(TransformersPolicy(made, tokenizer()), ask(0)), WARM.temperature)


def test_what_does_not_fit_is_refused() -> None:
    policy = make(max_context=20)
    with pytest.raises(PolicyError, match=r"9 prompt ids and up to 12 reply ids do not fit into the context of 20"):
        one(policy, ask(0, 9))
    assert len(one(policy, ask(0, 8, max_tokens=12)).ids) <= 12
    with pytest.raises(PolicyError, match="0 prompt ids"):
        one(policy, Request("a", [], seed=0))
    with pytest.raises(PolicyError, match="same conversation"):
        policy.complete([ask(0), ask(0)], WARM)
    assert policy.complete([], WARM) == []


def test_no_end_id_is_refused() -> None:
    made = model()
    made.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match="no end-of-turn id"):
        TransformersPolicy(made, type("Bare", (), {"eos_token_id": None})())


@pytest.mark.gpu
def test_cuda_gives_the_numbers_of_the_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    policy = TransformersPolicy(model("gqa"), tokenizer(), device="cuda")
    completion = one(policy, ask(0, 8))
    expected = full_forward(model("gqa"), prompt(0, 8), completion.ids, WARM.temperature)[0]
    assert torch.tensor(completion.logprobs).double() == pytest.approx(expected.numpy(), abs=1e-3)


@pytest.mark.parametrize("fixed", [False, True])
def test_the_last_learned_position_is_the_last_that_is_asked_for(fixed: bool) -> None:
    made = model("gpt2")  # 1,024 positions in a table
    policy = TransformersPolicy(made, tokenizer(), eos_ids=[1000])
    if fixed:
        policy._stepper = GraphStepper(policy._decoder, policy._table.cache, capture=False)
    assert policy.max_context == 1024
    requests = [ask(0, 1018, max_tokens=6), ask(1, 1, max_tokens=1), ask(2, 990, max_tokens=34)]
    for request, completion in zip(requests, policy.complete(requests, WARM), strict=True):
        check_numbers(made, request, completion, WARM.temperature)
    with pytest.raises(ValueError, match="max_context is 1025, and this model knows 1024 positions"):
        TransformersPolicy(made, tokenizer(), max_context=1025)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
@pytest.mark.parametrize("fixed", [False, True])
def test_rotations_that_change_with_the_longest_row_end_the_context_before_they_do(kind: str, fixed: bool) -> None:
    torch.manual_seed(0)
    base = model("gqa").config.to_dict()
    rotary = {"rope_type": kind, "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
    if kind == "longrope":
        rotary |= {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8}
    base |= {"max_position_embeddings": 64 if kind == "dynamic" else 256, "rope_parameters": rotary}
    made = LlamaForCausalLM(LlamaConfig(**base)).eval()
    policy = TransformersPolicy(made, tokenizer(), eos_ids=[1000])
    if fixed:
        policy._stepper = GraphStepper(policy._decoder, policy._table.cache, capture=False)
    assert policy.max_context == 64
    requests = [ask(0, 52, max_tokens=12), ask(1, 3, max_tokens=12), ask(2, 30, max_tokens=30)]
    for request, completion in zip(requests, policy.complete(requests, WARM), strict=True):
        check_numbers(made, request, completion, WARM.temperature)


def test_logits_that_are_no_numbers_are_an_error() -> None:
    policy = make()
    one(policy, ask(0))
    policy._decoder.base.model.norm.weight.data[3] = float("nan")
    policy.invalidate()
    with pytest.raises(PolicyError, match="logits are not numbers"):
        one(policy, ask(0))


def test_an_index_that_the_model_lacks_is_the_engines_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make()
    with pytest.raises(PolicyError, match="the model's forward failed: IndexError"):
        one(policy, Request("a", [11, 10**6], seed=1))
    assert one(policy, ask(0)).ids == one(make(), ask(0)).ids

    def broken(*args: object, **settings: object) -> None:
        raise IndexError("a defect")

    monkeypatch.setattr(policy._table, "place", broken)
    with pytest.raises(IndexError, match="a defect"):
        one(policy, ask(0))
