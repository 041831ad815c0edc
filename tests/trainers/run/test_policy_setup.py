from __future__ import annotations

import json
import shutil

import pytest
import torch
from peft import LoraConfig, get_peft_model

from agents.models.loading import QUICKSTART, ModelKind, load_model
from tasks.settings import problems
from tests.trainers.toy import ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers import sft
from trainers.errors import ConfigError
from trainers.gigpo import GiGPOTrainer
from trainers.run.policy import check_tokenizer, find_policy, make_peft, prefix_preserving, what_is_trained
from trainers.run.setup import prepare
from trainers.settings import GiGPOConfig, PolicyArguments
from trainers.settings.checks import backend_problems, check_config, quantization_problem
from trainers.settings.parsing import parse
from trainers.warmstart.model import SFTConfigError, SFTSettings

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "adapter"
    settings = LoraConfig(r=3, lora_alpha=6, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    get_peft_model(load_model("quickstart")[0], settings).save_pretrained(folder)
    return folder


def test_an_adapter_goes_on_with_its_own_settings(adapter, tmp_path):
    policy = PolicyArguments(model_name_or_path=str(adapter), lora_r=64)
    source = find_policy(policy)
    assert source.kind is ModelKind.ADAPTER and make_peft(policy, source) is None
    trained = what_is_trained(policy, source)
    assert (trained.lora_r, trained.targets) == (3, "q_proj, v_proj") and "rank 3, alpha 6" in trained.text
    assert list(policy.idle_settings(is_adapter=True)) == [
        f"lora_r=64 does nothing: the adapter in {adapter} has its own settings"
    ]
    content = json.loads((adapter / "adapter_config.json").read_text())
    content["target_modules"] = [
        f"model.layers.{i}.self_attn.{name}" for i in range(4) for name in ("q_proj", "v_proj")
    ]
    (tmp_path / "adapter_config.json").write_text(json.dumps(content))
    paths = PolicyArguments(model_name_or_path=str(tmp_path))
    assert what_is_trained(paths, find_policy(paths)).targets == "q_proj, v_proj"
    assert check_tokenizer(source).tokenizer is not None, "its base's tokenizer"
    learned = {name for name, p in load_model(adapter, trainable=True)[0].named_parameters() if p.requires_grad}
    assert learned and all("lora_" in name for name in learned)
    assert not any(p.requires_grad for p in load_model(adapter)[0].parameters())


def test_all_weights_of_an_adapter_cannot_be_trained(adapter, tmp_path):
    with pytest.raises(ConfigError, match="adapter=none.*is an adapter.*Merge it first"):
        find_policy(PolicyArguments(model_name_or_path=str(adapter), adapter="none"))
    with pytest.raises(SFTConfigError, match="is an adapter. Merge it first"):
        sft.load_policy(SFTSettings(model_name_or_path=str(adapter)))
    other = tmp_path / "other"
    shutil.copytree(adapter, other)
    (other / "adapter_config.json").write_text(
        json.dumps({"peft_type": "IA3", "base_model_name_or_path": "quickstart"})
    )
    with pytest.raises(ConfigError, match="type IA3; only LoRA"):
        find_policy(PolicyArguments(model_name_or_path=str(other)))


def test_a_new_adapter_has_the_settings_of_the_flags():
    policy = PolicyArguments(
        model_name_or_path="owner/name", lora_r=8, lora_alpha=4, lora_target_modules="q_proj, o_proj"
    )
    made = make_peft(policy)
    assert (made.r, made.lora_alpha, set(made.target_modules)) == (8, 4, {"q_proj", "o_proj"})
    assert make_peft(PolicyArguments()) is None, "the quickstart is trained in full"
    assert make_peft(PolicyArguments(adapter="lora")).target_modules == "all-linear"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"adapter": "qlora"}, "adapter='qlora': one of auto, lora, none"),
        ({"dtype": "int8"}, "dtype='int8': one of float32"),
        ({"lora_r": 0}, "lora_r=0"),
        ({"lora_dropout": 0.05}, "lora_dropout=0.05: would do nothing"),
        ({"lora_target_modules": " ,"}, "lora_target_modules"),
    ],
)
def test_policy_settings_that_cannot_work(changes, message):
    made = PolicyArguments(**changes)
    [problem] = [*problems(made), *made.policy_problems()]
    assert message in problem


def test_half_precision_for_all_weights_is_named():
    full = PolicyArguments(adapter="none", dtype="bfloat16", lora_r=4)
    rounded, unused = full.idle_settings(is_adapter=False)
    assert "rounded away" in rounded and "lora_r=4 does nothing" in unused
    assert not list(PolicyArguments(model_name_or_path="owner/name", dtype="bfloat16").idle_settings(is_adapter=False))


def test_what_four_bits_need_is_said_in_one_line_each(monkeypatch):
    four = PolicyArguments(model_name_or_path="owner/name", quantize="4bit")
    monkeypatch.setattr(
        "trainers.settings.groups.four_bit_problem", lambda: "the package bitsandbytes is not installed"
    )
    (missing,) = four.quantize_problems(copies=False)
    assert missing.startswith("quantize=4bit: the package bitsandbytes is not installed")
    monkeypatch.setattr("trainers.settings.groups.four_bit_problem", lambda: None)
    assert not list(four.quantize_problems(copies=False)) and not list(PolicyArguments().quantize_problems(copies=True))
    (copied,) = four.quantize_problems(copies=True)
    assert "sample_dtype=same and overlap=0" in copied
    (full,) = PolicyArguments(quantize="4bit").quantize_problems(copies=False)
    assert "adapter=lora" in full
    for flags in (["--sample_dtype", "bfloat16"], ["--overlap", "1"]):
        with pytest.raises(ConfigError, match="no merged copy is made of weights in 4 bits"):
            prepare(parse(["--use_cpu", "true", "--adapter", "lora", "--quantize", "4bit", *flags]))


@pytest.mark.parametrize("loaded", [False, True])
def test_an_adapter_over_four_bits_learns_in_float32(tmp_path, loaded):
    """TRL makes it bfloat16. The weights here are whole ones that call themselves 4 bits."""
    lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM")
    model = make_model(make_tokenizer())
    model.is_loaded_in_4bit = True
    model = get_peft_model(model, lora) if loaded else model
    before = [p.detach().clone() for p in model.parameters() if p.requires_grad] if loaded else []
    trainer = GiGPOTrainer(
        model, make_config(tmp_path), make_tokenizer(), [make_task(0)], ToyEnv, peft_config=None if loaded else lora
    )
    trained = [p for p in trainer.model.parameters() if p.requires_grad]
    assert {p.dtype for p in trained} == {torch.float32}
    assert all(torch.equal(a, b) for a, b in zip(before, trained, strict=loaded))
    trainer.close()


def config(tmp_path, **changes):
    return GiGPOConfig(output_dir=str(tmp_path), use_cpu=True, **changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"fsdp": "full_shard"},
        {"fsdp_config": {"fsdp_version": 2}},
        {"torch_compile": True},
        {"use_liger_kernel": True},
        {"optim": "adamw_bnb_8bit"},
        {"optim": "paged_adamw_32bit"},
        {"model_init_kwargs": {"quantization_config": {"load_in_4bit": True}}},
        {"sync_ref_model": True, "beta": 0.1},
        {"beta": -0.1},
        {"adam_epsilon": 0.0},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_was_never_tried_is_refused_by_name(tmp_path, changes):
    with pytest.raises(ConfigError, match=next(iter(changes))):
        check_config(config(tmp_path, **changes))


def test_plain_settings_and_checkpointing_are_not_refused(tmp_path):
    assert not list(backend_problems(config(tmp_path)))
    assert not list(backend_problems(config(tmp_path, gradient_checkpointing=True)))


def test_deepspeed_is_refused_without_looking_for_it():
    with pytest.raises(ConfigError, match="deepspeed='ds.json': DeepSpeed is untested here.*Use LoRA"):
        parse(["--use_cpu", "true", "--deepspeed", "ds.json"])


def test_a_launcher_that_splits_weights_is_refused(tmp_path, monkeypatch):
    made = config(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match="accelerate launches FSDP"):
        check_config(made)


def test_quantized_weights_are_refused(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(QUICKSTART, folder)
    content = json.loads((folder / "config.json").read_text())
    content["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    (folder / "config.json").write_text(json.dumps(content))
    with pytest.raises(ConfigError, match=r"quantized \(bitsandbytes, 4 bits\).*Use LoRA"):
        find_policy(PolicyArguments(model_name_or_path=str(folder)))
    assert quantization_problem({}) is None


def test_the_schedule_says_when_its_warm_up_does_nothing(tmp_path):
    assert not list(config(tmp_path).idle_trl_settings())
    assert "does nothing with lr_scheduler_type constant" in next(
        config(tmp_path, lr_scheduler_type="constant").idle_trl_settings()
    )
    assert "never reached" in next(config(tmp_path, max_steps=20).idle_trl_settings())


def save_tokenizer(folder, template: str | None = None):
    tokenizer = make_tokenizer()
    if template is not None:
        tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    return find_policy(PolicyArguments(model_name_or_path=str(folder)))


def test_template_and_stops_are_checked_without_the_weights(tmp_path):
    about = check_tokenizer(save_tokenizer(tmp_path / "good")).lines
    assert about[0] == "template: renders, and only appends" and "<|im_end|>" in about[1]
    (tmp_path / "good" / "generation_config.json").write_text('{"eos_token_id": [3, 99999]}')
    with pytest.raises(ConfigError, match=r"ends a turn with \[99999\]"):
        check_tokenizer(find_policy(PolicyArguments(model_name_or_path=str(tmp_path / "good"))))
    zephyr = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{{ eos_token }}\n{% endfor %}<|assistant|>\n"
    plain = check_tokenizer(save_tokenizer(tmp_path / "plain", zephyr)).lines
    assert any(line.startswith("headers: '<|assistant|>', '<|user|>'") and "a backslash" in line for line in plain)
    assert not any(line.startswith("headers:") for line in about)
    arrow = "{% for m in messages %}> {{ m.content }}{{ eos_token if m.role == 'assistant' }}\n{% endfor %}> "
    with pytest.raises(ConfigError, match="says in ordinary text who speaks: '>' .* special tokens of the tokenizer"):
        check_tokenizer(save_tokenizer(tmp_path / "arrow", arrow))
    with pytest.raises(ConfigError, match="shows a message 0 times"):
        check_tokenizer(save_tokenizer(tmp_path / "bad", "a fixed text"))
    assert find_policy(PolicyArguments(model_name_or_path="owner/name")).kind is ModelKind.HUB
    unknown = check_tokenizer(find_policy(PolicyArguments(model_name_or_path="owner/name")))
    assert unknown.tokenizer is None and "not checked" in unknown.lines[0]


def test_a_template_that_drops_thoughts_is_named():
    tokenizer = make_tokenizer()
    assert prefix_preserving(tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "{{ m.content }}", "{{ m.content if loop.last else m.content.split('</think>')[-1] }}"
    )
    assert not prefix_preserving(tokenizer)


@pytest.mark.parametrize(
    ("targets", "there"), [("foo", False), ("q_proj,foo", True), ("model.layers.0.mlp.up_proj", True)]
)
def test_layers_that_a_known_model_lacks_are_refused_before_it_loads(targets, there):
    policy = PolicyArguments(adapter="lora", lora_target_modules=targets)
    source = find_policy(policy)
    if there:
        assert make_peft(policy, source).target_modules == set(targets.split(","))
        return
    with pytest.raises(ConfigError, match="lora_target_modules=foo: the model has no such layer.*q_proj"):
        make_peft(policy, source)


def test_an_adapter_on_the_head_is_refused():
    """TRL would refuse it, too, once the model is loaded."""
    (problem,) = PolicyArguments(adapter="lora", lora_target_modules="q_proj, lm_head").policy_problems()
    assert problem.startswith("lora_target_modules: lm_head: ")
