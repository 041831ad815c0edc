from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM
from trl.trainer.utils import add_fused_lm_head

from agents.models.loading import QUICKSTART
from agents.policies.slots import SlotCache
from sandboxes import probe
from tests.trainers.toy import make_model, make_tokenizer
from trainers import grpo
from trainers.activations import keep_less
from trainers.run.dry_run import (
    COMPARED,
    GIB,
    PROGRAM,
    REPLAYS,
    SLACK,
    Load,
    Machine,
    activation_bytes,
    cache_length,
    episodes_at_once,
    estimate,
    lines,
    load_of,
    longest_episode,
    remedies,
    too_large,
)
from trainers.run.memory import check_fits
from trainers.run.policy import NAMED, shape_of, shape_of_name
from trainers.run.setup import prepare
from trainers.settings import preset
from trainers.settings.parsing import parse
from trainers.settings.preset import Gpu

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 96, "vocab_size": 300, "max_position_embeddings": 128,
}  # fmt: skip
VARIANTS = [
    ("llama", {}),
    ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    ("mistral", {"head_dim": 16}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen3", {"head_dim": 32}),
    ("qwen3", {"head_dim": 16, "attention_bias": True}),
]


def built(kind: str, changes: dict):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SMALL, **changes})
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize(("kind", "changes"), VARIANTS)
def test_parameters_are_counted_exactly(kind, changes):
    model = built(kind, changes)
    shape = shape_of(json.loads(model.config.to_json_string(use_diff=False)))
    assert shape is not None
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    for targets, named in (("all-linear", "all-linear"), ("q_proj, v_proj", ["q_proj", "v_proj"])):
        adapter = LoraConfig(r=4, target_modules=named, task_type="CAUSAL_LM")
        with torch.device("meta"):
            adapted = get_peft_model(built(kind, changes), adapter)
        trained = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
        assert shape.lora_parameters(4, targets) == trained


def test_the_shipped_policy_and_the_toy_are_counted_exactly():
    shipped = shape_of(json.loads((QUICKSTART / "config.json").read_text()))
    toy = make_model(make_tokenizer())
    assert shipped is not None and shipped.parameters == shipped_parameters()
    shape = shape_of(toy.config.to_dict())
    assert shape is not None and shape.parameters == sum(p.numel() for p in toy.parameters())


def shipped_parameters() -> int:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(QUICKSTART))
    return sum(p.numel() for p in model.parameters())


PUBLISHED = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": 134_515_008,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-Coder-0.5B-Instruct": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "Qwen/Qwen2.5-7B-Instruct": 7_615_616_512,
    "Qwen/Qwen3-0.6B": 596_049_920,
    "Qwen/Qwen3-4B-Base": 4_022_468_096,
    "Qwen/Qwen3-8B": 8_190_735_360,
    "meta-llama/Llama-3.2-1B-Instruct": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_named_models_have_their_published_size(name):
    shape = shape_of_name(name)
    assert shape is not None and shape.parameters == PUBLISHED[name]


def test_the_adapter_of_the_field_notes_has_its_40_million_weights():
    assert shape_of(NAMED["qwen2.5-7b"]).lora_parameters(16, "all-linear") == 40_370_176


def test_a_shape_costs_no_memory_and_no_random_number():
    before = torch.random.get_rng_state()
    shape = shape_of({**NAMED["llama-3.2-1b"], "quantization_config": {"quant_method": "none such"}})
    assert shape is not None and (shape.hidden, shape.query, shape.key, shape.feed_forward) == (2048, 2048, 512, 8192)
    assert (shape.layers, shape.vocabulary, shape.context, shape.qk_norm) == (16, 128256, 131072, False)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_unknown_models_are_unknown():
    assert shape_of({"model_type": "mamba"}) is None
    assert shape_of_name("someone/else-7B") is None and shape_of_name("someone/Qwen2.5-7B") is None


def held(model, batch: int, length: int, lora_r: int, checkpointing: bool) -> int:
    """Bytes that autograd holds for the backward pass of the loss that TRL computes, weights left out."""
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if lora_r:
        adapter = LoraConfig(r=lora_r, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(model, adapter)
        keep_less(model)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    seen: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            seen[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    ids = torch.zeros(batch, length, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
    return sum(tensor.untyped_storage().nbytes() for tensor in seen.values())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("lora_r", [0, 8])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_activations_are_what_autograd_holds(kind, dtype, lora_r, checkpointing):
    changes = {"hidden_size": 128, "head_dim": 32, "num_hidden_layers": 4, "intermediate_size": 256}
    config = AutoConfig.for_model(kind, **{**SMALL, **changes})
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype))
    shape = shape_of(model.config.to_dict())
    assert shape is not None
    lora = shape.lora_parameters(lora_r, "all-linear") if lora_r else 0
    load = Load(shape, dtype, lora, lora_r, 0, batch=2, slots=1, longest=64, checkpointing=checkpointing)
    counted, guessed = held(model, 2, 64, lora_r, checkpointing), 2 * 64 * activation_bytes(load)
    if checkpointing:  # the layer that is computed again is not there yet
        layer = 2 * 64 * activation_bytes(replace(load, checkpointing=False)) / shape.layers
        assert guessed - layer == pytest.approx(counted, rel=0.3)
    else:
        assert guessed == pytest.approx(counted, rel=0.15)


def seven(**changes) -> Load:
    shape = shape_of(NAMED["qwen2.5-7b"])
    settings = {
        "dtype": "bfloat16", "lora": 40_370_176, "lora_r": 16, "reference": 0, "batch": 2, "slots": 16, "longest": 4096,
    }  # fmt: skip
    return Load(shape, **{**settings, **changes})


def test_parts_of_a_seven_billion_run():
    lora = estimate(seven()).parts
    assert lora["weights"] == 2 * 7_615_616_512 + 4 * 40_370_176
    assert lora["optimizer (Adam, two states)"] == 2 * lora["gradients"] == 8 * 40_370_176
    assert lora["sampling: keys and values"] == 16 * cache_length(seven()) * 2 * 28 * 4 * 128 * 2
    assert "reference for the KL" not in lora
    full = estimate(seven(lora=0, reference=7_615_616_512))
    assert full.parts["gradients"] == full.parts["reference for the KL"] == 2 * 7_615_616_512
    assert full.total > estimate(seven()).total
    assert estimate(seven(checkpointing=True)).total < estimate(seven()).total
    kept = estimate(seven(start=40_370_176)).parts["the start, for the confirmation"]
    assert kept == 4 * 40_370_176 and "the start, for the confirmation" not in lora
    full = seven(lora=0, start=7_615_616_512)
    text = "\n".join(lines(full, estimate(full), Machine("main memory", 24 * GIB, 20 * GIB)))
    assert estimate(full).parts["the start, for the confirmation"] == 2 * 7_615_616_512
    assert "confirm=0 (no confirmation)" in text


def test_the_gradient_that_is_compared_takes_as_much_as_that_of_the_step():
    load = seven(lora=0, compared=True)
    compared = estimate(load)
    assert compared.parts[COMPARED] == compared.parts["gradients"] and COMPARED not in estimate(seven(lora=0)).parts
    assert compared.total > estimate(seven(lora=0)).total
    text = "\n".join(lines(load, compared, Machine("main memory", 24 * GIB, 20 * GIB)))
    assert "gradient_cosine_steps=0" in text


def test_samples_of_a_turn_that_are_drawn_together_take_a_slot_each():
    one, three = estimate(seven()).parts, estimate(seven(tries=3)).parts
    for name in ("sampling: keys and values", "sampling: logits"):
        assert three[name] == 3 * one[name]
    assert three["activations of one pass"] == one["activations of one pass"]


@pytest.mark.parametrize(("first", "longest"), [(100, 400), (70, 905), (470, 3000), (470, 8192)])
def test_the_cache_is_as_long_as_the_real_one_gets(first, longest):
    real = SlotCache()
    for length in range(first + 1, longest + 1):
        real.reserve(2, length)
    assert cache_length(seven(first=first, longest=longest)) == real.length


@pytest.mark.parametrize(("longest", "length"), [(70, 576), (512, 576), (513, 1088), (3000, 4160), (8192, 8256)])
def test_where_graphs_decode_the_cache_is_a_power_of_two_and_a_block(longest, length):
    assert cache_length(seven(first=70, longest=longest, graphs=True)) == length


def test_sampling_and_learning_share_their_memory_and_a_copy_samples_in_its_own_type():
    load = seven(slots=64, first=400, graphs=True)
    parts = estimate(load).parts
    sampling = parts["sampling: first prompts"] + parts["sampling: logits"]
    learning = parts["gradients"] + parts["activations of one pass"] + parts["log-probabilities"]
    rest = sum(parts.values()) - sampling - learning
    assert estimate(load).total == PROGRAM + int(SLACK * (rest + max(sampling, learning)))
    small = estimate(replace(load, batch=0))
    assert small.total < estimate(load).total and small.parts["sampling: CUDA graphs"] == parts["sampling: CUDA graphs"]
    copied = estimate(replace(load, dtype="float32", copy=2)).parts
    assert copied["sampling: keys and values"] == parts["sampling: keys and values"]
    assert estimate(replace(load, room=GIB)).parts["activations of one pass"] == GIB
    once, twice = estimate(load), estimate(replace(load, replayed=True))
    assert twice.parts[REPLAYS] == parts["activations of one pass"] + parts["gradients"] and REPLAYS not in parts
    assert twice.tensors - once.tensors == pytest.approx(SLACK * twice.parts[REPLAYS], abs=2)  # also while sampling
    assert estimate(replace(load, replayed=True, room=GIB)).parts[REPLAYS] == GIB + parts["gradients"]
    full = replace(load, room=0)  # the weights alone are too much: no pass is short enough
    assert not any("checkpointing" in text for text in remedies(full, estimate(full)))


def test_a_gpu_that_is_too_small_is_refused_and_one_that_may_be_is_warned_of():
    load = seven()
    total = estimate(load).total
    small, close = (Machine("a GPU", int(total / share), 0) for share in (1.26, 1.2))
    assert "What helps most: gradient_checkpointing or" in too_large(load, estimate(load), small)
    assert "a start is refused" in "\n".join(lines(load, estimate(load), small))
    for has in (close, Machine("main memory", int(total / 2), 0)):
        said = "\n".join(lines(load, estimate(load), has))
        assert not too_large(load, estimate(load), has) and "too large by" in said


@needs_sandbox
@pytest.mark.parametrize(("tokens", "taken"), [("auto", 16.2), ("4096", 16.2), ("12288", 36.8)])
def test_passes_that_are_replayed_take_what_was_measured(tmp_path, monkeypatch, tokens, taken):
    """256 rows of shell tasks with LoRA over float32, SmolLM2-135M's shape, on one H200: what torch had reserved."""
    monkeypatch.setattr(preset, "find_gpu", lambda *, use_cpu: Gpu("H200", 139 * GIB, 139 * GIB, tf32=False))
    shape = shape_of_name("HuggingFaceTB/SmolLM2-135M-Instruct")
    args = [*FEW, *WIDE, "--micro_batch_tokens", tokens, "--output_dir", str(tmp_path / "run")]
    load = load_of(prepare(parse(args)), shape)
    assert load.replayed and (load.slots, load.copy) == (256, 2) and 850 < load.longest < 950
    assert estimate(load).tensors == pytest.approx(taken * GIB, rel=0.25)
    assert not load_of(prepare(parse([*args, "--overlap", "1"])), shape).replayed


FEW = ["--tasks", "generated:quickstart?n=40&seed=1", "--held_out", "none", "--confirm", "0"]
WIDE = ["--adapter", "lora", "--lora_r", "16", "--dtype", "float32", "--prompt_style", "compact", "--max_turn_tokens",
        "64", "--slots", "256", "--gradient_accumulation_steps", "32"]  # fmt: skip
QUESTIONS = ["--env", "GSM8K-v0", "--tasks", "gsm8k:sample?limit=16", "--held_out", "none", "--confirm", "0",
             "--prompt_style", "compact", "--max_turn_tokens", "100", "--tools", "false"]  # fmt: skip


@needs_sandbox
def test_a_start_that_does_not_fit_leaves_no_folder(tmp_path, capsys, monkeypatch):
    shape = shape_of(json.loads((QUICKSTART / "config.json").read_text()))
    have = {"size": GIB // 2}
    monkeypatch.setattr(
        preset, "find_gpu", lambda *, use_cpu: Gpu("H200", have["size"], have["size"], tf32=False)
    )  # fmt: skip
    args = [*FEW, "--output_dir", str(tmp_path / "run"), "--micro_batch_tokens", "0"]
    run = prepare(parse(args))
    load = load_of(run, shape)
    assert load.graphs and load.copy == 2 and load.first > 70
    assert grpo.main(args) == 2
    err = capsys.readouterr().err
    assert "trainers.grpo: this run does not fit: it needs about" in err and "the H200 has 0.50 GiB" in err
    assert not (tmp_path / "run").exists()
    have["size"] = int(estimate(load).total / 1.1)
    assert check_fits(run).startswith("memory may run out") and check_fits(run).count(";") == 2
    have["size"] = 100 * GIB
    assert check_fits(run) == ""


@needs_sandbox
def test_a_question_whose_answer_was_cut_is_asked_again(tmp_path):
    """Without tools the reply is the answer, but not one that was cut: those count up to the budget of turns."""
    args = [*QUESTIONS, "--use_cpu", "true", "--output_dir", str(tmp_path / "run")]
    one, every = (longest_episode(prepare(parse([*args, *more]))) for more in (["--max_turns", "1"], []))
    assert every - one == 7 * (100 + 70)


def test_what_does_not_fit_says_by_how_much_and_what_helps_most():
    load = seven(lora=0, dtype="float32")
    text = "\n".join(lines(load, estimate(load), Machine("main memory", 24 * GIB, 20 * GIB)))
    assert "of 24.00 GiB (main memory)" in text and "too large by" in text
    remedies = text[text.index("too large") :]
    assert remedies.index("adapter=lora") < remedies.index("dtype=bfloat16")
    load = seven()
    assert "too large" not in "\n".join(lines(load, estimate(load), Machine("a GPU", 141 * GIB, 140 * GIB)))


@pytest.mark.parametrize(
    ("slots", "samples", "processes", "most"), [(64, 1, 1, 32), (64, 8, 1, 64), (64, 4, 2, 16), (8, 8, 1, 8)]
)
def test_episodes_at_once_are_those_of_the_trainer(slots, samples, processes, most):
    """Held-out episodes count with every attempt; of several processes each plays its share."""
    config = SimpleNamespace(rows_in_flight=32, held_out_samples=samples, world_size=processes)
    sides = {"pool": range(99), "held_out": range(5), "unseen": range(3), "confirm": range(8)}
    tasks = SimpleNamespace(split=SimpleNamespace(sides=sides))
    settings = SimpleNamespace(config=config, env=SimpleNamespace(slots=slots))
    assert episodes_at_once(SimpleNamespace(settings=settings, tasks=tasks)) == most
