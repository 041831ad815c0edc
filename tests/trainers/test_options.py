"""Every option of TRL and transformers: it acts, passes through without an effect on credit, or is refused.

An option that a new version brings and nobody has looked at fails the first test.
"""

from __future__ import annotations

import dataclasses
import re

import pytest
import torch
from peft import LoraConfig
from trl import GRPOConfig

from tests.shared_data import REPOSITORY
from tests.trainers.test_gigpo import rows_of
from tests.trainers.toy import make_config, make_tokenizer, make_trainer
from trainers.errors import ConfigError
from trainers.settings import GiGPOConfig
from trainers.settings.checks import LIGER_EXACT, check_config, check_parts, config_notes
from trainers.settings.gigpo_config import ALWAYS
from trainers.settings.parsing import parse
from trainers.settings.training import LOSSES

pytestmark = pytest.mark.filterwarnings("ignore")

ACTS = {
    # Credit and loss: where the test stands.
    "loss_type": "test_stock.py",
    "scale_rewards": "test_stock.py",
    "beta": "test_kl.py",
    "use_bias_correction_kl": "test_kl.py",
    "epsilon": "test_losses.py",
    "epsilon_high": "test_losses.py",
    "delta": "test_losses.py",
    "sapo_temperature_neg": "here",
    "sapo_temperature_pos": "here",
    "max_completion_length": "test_losses.py: divides the dr_grpo loss",
    "off_policy_mask_threshold": "here",
    "top_entropy_quantile": "here",
    "entropy_coef": "here",
    "use_adaptive_entropy": "here",
    "entropy_coef_min": "with use_adaptive_entropy",
    "entropy_coef_max": "with use_adaptive_entropy",
    "entropy_coef_delta": "with use_adaptive_entropy",
    "entropy_target": "with use_adaptive_entropy",
    "mask_truncated_completions": "test_masking.py",
    "num_iterations": "test_stock.py",
    "steps_per_generation": "test_stock.py",
    "gradient_accumulation_steps": "test_gigpo.py",
    "generation_batch_size": "here",
    "num_generations": "test_gigpo.py",
    "per_device_train_batch_size": "test_gigpo.py",
    "temperature": "test_gigpo.py",
    "disable_dropout": "must stay on",
    "cast_lm_head_to_fp32": "here",
    "gradient_checkpointing": "here",
    "pad_to_multiple_of": "here",
    "log_completions": "here",
    "num_completions_to_print": "with log_completions",
    "log_unique_prompts": "with log_completions",
    "shuffle_dataset": "test_resume.py",
    "seed": "test_resume.py",
    # Held-out and resume have their own tests.
    "load_best_model_at_end": "test_heldout.py",
    "metric_for_best_model": "test_heldout.py",
    "greater_is_better": "test_heldout.py",
    "eval_strategy": "test_heldout.py",
    "eval_steps": "test_heldout.py",
    "eval_on_start": "test_heldout.py",
    "eval_delay": "test_heldout.py",
    "save_strategy": "test_resume.py",
    "save_steps": "test_resume.py",
    "save_total_limit": "test_resume.py",
    "max_steps": "test_gigpo.py",
    "output_dir": "run/test_folder.py",
}

PASSES = {
    # Optimizer and schedule: they see a gradient, not advantages.
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args"),
    *("weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    # Memory and machine.
    *("gradient_checkpointing_kwargs", "activation_checkpointing", "activation_checkpointing_kwargs", "use_cache"),
    *("torch_empty_cache_steps", "tf32", "use_cpu", "full_determinism"),
    *("torch_compile_backend", "torch_compile_mode", "average_tokens_across_devices", "accelerator_config"),
    *("ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph"),
    *("ddp_backend", "ddp_timeout", "local_rank", "fsdp_config", "router_aux_loss_coef"),
    # The loader hands over rows with a task id each; the sampler is ours.
    *("dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
    *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order"),
    # Reports.
    *("logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "logging_nan_inf_filter"),
    *("include_num_input_tokens_seen", "log_level", "log_level_replica", "disable_tqdm", "report_to", "run_name"),
    *("project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id"),
    *("debug", "skip_memory_metrics", "save_on_each_node"),
    # Only without effect on what is trained: transformers' own callbacks.
    "restore_callback_states_from_checkpoint",
    # Set by transformers itself.
    *("do_train", "do_eval", "do_predict"),
}

BY_TRL = {"auto_find_batch_size"}
"""TRL refuses these itself when the settings are made."""

REFUSED = {
    "importance_sampling_level": "sequence",
    "top_p": 0.9,
    "top_k": 20,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "use_vllm": True,
    "use_transformers_continuous_batching": True,
    "use_transformers_paged": True,
    "bf16": True,
    "push_to_hub": True,
    "log_completions_hub_repo": "someone/completions",
    "fp16": True,
    "generation_kwargs": {"num_beams": 2},
    "cache_implementation": "static",
    "resume_from_checkpoint": "checkpoint-1",
    "neftune_noise_alpha": 5.0,
    "remove_unused_columns": True,
    "sync_ref_model": True,
    "model_init_kwargs": {"dtype": "bfloat16"},
    "use_liger_kernel": True,
    "torch_compile": True,
    "save_only_model": True,
    "ignore_data_skip": True,
    "enable_jit_checkpoint": True,
    "deepspeed": "zero3.json",
    "fsdp": "full_shard",
    "parallelism_config": object(),
    # Would do nothing: each by itself.
    **dict.fromkeys(ALWAYS, "changed"),
    **{f.name: 7 for f in dataclasses.fields(GRPOConfig) if f.name.startswith(("vllm_", "vespo_"))},
}

NEEDS_ANOTHER = {
    "max_completion_length": 100,
    "sapo_temperature_neg": 2.0,
    "sapo_temperature_pos": 2.0,
    "use_bias_correction_kl": False,
    "entropy_coef_min": 0.1,
    "entropy_coef_max": 0.5,
    "entropy_coef_delta": 0.1,
    "entropy_target": 0.5,
    "num_completions_to_print": 3,
    "log_unique_prompts": True,
    "dataloader_persistent_workers": True,
    "dataloader_multiprocessing_context": "fork",
    "gradient_checkpointing_kwargs": {"use_reentrant": True},
    "activation_checkpointing_kwargs": {"use_reentrant": True},
    "optim_args": "foreach=False",
    # What would fail only once a model is loaded, or follow something that is not there.
    "optim": "schedule_free_adamw",
    "lr_scheduler_type": "reduce_lr_on_plateau",
    "lr_scheduler_kwargs": {"num_decay_steps": 3},
    "logging_strategy": "no",
    "logging_steps": 1000,
}
"""Options that act only with another one: alone they are refused, too."""


def test_every_option_is_classified_once():
    fields = {f.name for f in dataclasses.fields(GRPOConfig)}
    groups = [set(ACTS), PASSES, BY_TRL, set(REFUSED)]
    known = set().union(*groups)
    assert not fields - known, "new in TRL or transformers: decide what each does to credit"
    assert sum(map(len, groups)) == len(known), "an option stands in two groups"


@pytest.mark.parametrize("name", [*REFUSED, *NEEDS_ANOTHER])
def test_refused_options_name_themselves(tmp_path, name):
    config = make_config(tmp_path)
    if not hasattr(config, name):
        pytest.skip(f"this version of transformers has no {name}")
    setattr(config, name, {**REFUSED, **NEEDS_ANOTHER}[name])
    with pytest.raises(ConfigError) as error:
        check_config(config)
    assert name in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"delta": 4.0, "loss_type": "sapo"},
        {"delta": 4.0, "loss_type": "cispo"},
        {"epsilon": 0.1, "loss_type": "sapo"},
        {"epsilon_high": 0.3, "loss_type": "sapo"},
    ],
)
def test_clip_bounds_without_a_clip_are_refused(tmp_path, change):
    with pytest.raises(ConfigError, match=f"{next(iter(change))}=.*does nothing"):
        check_config(make_config(tmp_path, **change))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"alpha_episode": -1.0}, "alpha_episode"),
        ({"beta_turn": float("nan")}, "beta_turn"),
        ({"beta": float("nan")}, "beta"),
        ({"importance_cap": float("nan")}, "importance_cap"),
        ({"temperature": float("nan")}, "temperature"),
        ({"held_out_temperature": float("nan")}, "held_out_temperature"),
        ({"sepa_decay": float("nan")}, "sepa_decay"),
        ({"learning_rate": float("inf")}, "learning_rate"),
        ({"entropy_coef": -1.0}, "entropy_coef"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"top_entropy_quantile": 0.0}, "top_entropy_quantile"),
        ({"loss_type": "sapo", "sapo_temperature_neg": 0.0}, "sapo_temperature_neg"),
        ({"num_iterations": 0}, "num_iterations"),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "lr_scheduler_type"),
        ({"lr_scheduler_type": "constant", "lr_scheduler_kwargs": {"num_cycles": 2}}, "lr_scheduler_kwargs"),
        ({"logging_steps": -1}, "logging_steps"),
        ({"num_iterations": 0, "max_staleness": 0}, "num_iterations"),
        ({"sampler": "vllm:http://127.0.0.1:1", "token_operators": "gtpo", "token_signal": "entropy"}, "token_signal"),
    ],
    ids=str,
)
def test_values_that_would_train_nothing_or_nonsense_are_refused(tmp_path, change, names):
    with pytest.raises(ConfigError) as error:
        check_config(make_config(tmp_path, **change))
    (line,) = str(error.value).splitlines()
    assert line.startswith(f"{names}=")


@pytest.mark.parametrize("name", ["steps_per_generation", "gradient_accumulation_steps", "num_generations"])
def test_sizes_of_0_are_refused_before_trl_divides_by_them(tmp_path, name):
    with pytest.raises(ValueError, match=rf"{name}=0: \d or more"):
        make_config(tmp_path, **{name: 0})


SEVERAL = {"num_iterations": 2}


@pytest.mark.parametrize(
    ("change", "acts"),
    [
        ({"epsilon": 0.01}, SEVERAL),
        ({"epsilon_high": 0.9}, {"steps_per_generation": 2}),
        (
            {"delta": 1.5},
            {
                "steps_per_generation": 3,
                "gradient_accumulation_steps": 2,
                "num_generations": 3,
                "per_device_train_batch_size": 9,
            },
        ),
        ({"off_policy_mask_threshold": 0.1}, {"sample_dtype": "bfloat16"}),
        ({"loss_type": "sapo", "sapo_temperature_pos": 9.0}, SEVERAL),
        ({"importance_cap": 9.0}, {"sample_dtype": "bfloat16"}),
        ({"curriculum": "/tmp", "shuffle_dataset": False}, {"curriculum": ""}),
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_acts_only_with_other_settings_is_noted_without_them(tmp_path, change, acts):
    idle = make_config(tmp_path, **change)
    check_config(idle)
    (note,) = config_notes(idle)
    assert note.split("=")[0] in change and "does nothing" in note
    assert not list(config_notes(make_config(tmp_path, **{**change, **acts})))


@pytest.mark.parametrize("loss_type", LOSSES)
def test_allowed_losses_are_accepted(tmp_path, loss_type):
    check_config(make_config(tmp_path, loss_type=loss_type))


def test_the_quickstart_and_its_overrides_are_accepted():
    """With held-out evaluation on, as people run it: transformers then sets options of its own."""
    check_config(parse([]).config)
    check_config(parse(["--loss_type", "sapo", "--sapo_temperature_neg", "1.2", "--beta", "0.01"]).config)


def test_tf32_is_no_error_without_a_gpu_and_says_that_it_does_nothing(tmp_path, monkeypatch):
    config = make_config(tmp_path, tf32=True)
    check_config(config)
    assert config.tf32 is True
    assert [note for note in config_notes(config) if "tf32=True does nothing" in note]
    assert not [note for note in config_notes(make_config(tmp_path)) if "tf32" in note]
    monkeypatch.setattr("transformers.utils.is_torch_tf32_available", lambda: True)
    assert not [note for note in config_notes(config) if "tf32" in note]


def test_liger_needs_its_package_and_a_sampler_that_is_corrected(tmp_path, monkeypatch):
    def refusals(**changes):
        try:
            check_config(make_config(tmp_path, use_liger_kernel=True, **changes))
        except ConfigError as error:
            return str(error).splitlines()
        return []

    corrected = [{"sample_dtype": "bfloat16"}, {"sampler": "vllm:http://127.0.0.1:1"}, {"overlap": 1}]
    monkeypatch.setattr("trainers.settings.checks.is_liger_kernel_available", lambda: False)
    assert all("the package liger-kernel is not installed" in line for c in corrected for (line,) in [refusals(**c)])
    monkeypatch.setattr("trainers.settings.checks.is_liger_kernel_available", lambda: True)
    assert [refusals(**changes) for changes in corrected] == [[], [], []]
    (exact,) = refusals()
    assert exact == LIGER_EXACT
    trainer = make_trainer(tmp_path)
    trainer.args.use_liger_kernel, trainer.args.sample_dtype = True, "float32"  # its own type: nothing is copied
    with pytest.raises(ConfigError, match="use_liger_kernel"):
        _ = trainer.policy
    trainer.close()


def test_a_batch_size_that_finds_itself_is_refused_by_trl(tmp_path):
    with pytest.raises(ValueError, match="auto_find_batch_size"):
        make_config(tmp_path, auto_find_batch_size=True)


def test_processors_and_dropout_are_refused_before_a_trainer_is_made():
    with pytest.raises(ConfigError, match="tokenizer is needed, got object"):
        check_parts(object(), None)
    with pytest.raises(ConfigError, match="lora_dropout=0.1"):
        check_parts(make_tokenizer(), LoraConfig(lora_dropout=0.1))
    check_parts(make_tokenizer(), LoraConfig())


def gradient_of(trainer, inputs):
    trainer.model.zero_grad()
    trainer.compute_loss(trainer.model, dict(inputs)).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters() if p.grad is not None])


@pytest.mark.parametrize(
    "change",
    [
        {"top_entropy_quantile": 0.3},
        {"entropy_coef": 0.1},
        {"use_adaptive_entropy": True, "entropy_coef": 0.1, "entropy_target": 100.0},
        {"off_policy_mask_threshold": 1e-4, "num_iterations": 2},
        {"delta": 1.5, "num_iterations": 2},
        {"loss_type": "sapo", "sapo_temperature_pos": 3.0, "sapo_temperature_neg": 9.0, "num_iterations": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_options_of_the_loss_act_and_keep_token_credit(tmp_path, change):
    """The option changes the gradient, and under it token advantages and their row means still differ."""
    trainer = make_trainer(tmp_path, max_steps=1, **change)
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    if "num_iterations" in change:  # as in a later pass: the weights have moved
        noise = torch.Generator().manual_seed(0)
        shape = inputs["old_per_token_logps"].shape
        inputs["old_per_token_logps"] = inputs["old_per_token_logps"] + 0.5 * torch.randn(shape, generator=noise)
        inputs["sampling_per_token_logps"] = inputs["old_per_token_logps"]
    if "use_adaptive_entropy" in change:
        trainer._last_world_entropy = 0.0
    with_option = gradient_of(trainer, inputs)
    on = inputs["turn_ids"] >= 0
    mean = (inputs["advantages"] * on).sum(1, keepdim=True) / on.sum(1, keepdim=True)
    by_rows = gradient_of(trainer, dict(inputs, advantages=mean.expand_as(inputs["advantages"])))
    assert (with_option - by_rows).norm() / by_rows.norm() > 0.01
    trainer.top_entropy_quantile, trainer._entropy_bonus_enabled = 1.0, False
    trainer.off_policy_mask_threshold = trainer.args.delta = None
    trainer.args.sapo_temperature_pos = trainer.args.sapo_temperature_neg = 1.0
    without = gradient_of(trainer, inputs)
    assert (with_option - without).norm() / without.norm() > 0.01
    trainer.close()


@pytest.mark.parametrize(
    "change",
    [
        {"pad_to_multiple_of": 64},
        {"gradient_checkpointing": True},
        {"cast_lm_head_to_fp32": True},
        {"log_completions": True, "num_completions_to_print": 1},
        {"generation_batch_size": 16},
    ],
    ids=lambda change: next(iter(change)),
)
def test_options_around_the_loss_train_what_was_sampled(tmp_path, change, capsys):
    trainer = make_trainer(tmp_path, max_steps=1, **change)
    trainer.train()
    trainer.close()
    sampled = {tuple(e.flat().ids) for e in trainer.played[0]}
    trained = [tuple(ids) for batch in trainer.batches for _, ids, _, _, _ in rows_of(batch)]
    assert len(trained) == 8 and set(trained) <= sampled
    assert trainer.logged[0]["sampling/logp_difference_max"] < 1e-4
    assert trainer.logged[0]["grad_norm"] > 0
    if "pad_to_multiple_of" in change:
        assert trainer.batches[0]["completion_ids"].size(1) % 64 == 0
    if "log_completions" in change:
        assert len(list((tmp_path / "run" / "completions").glob("*.parquet"))) == 1


def default_of(config: type, name: str):
    (field,) = (f for f in dataclasses.fields(config) if f.name == name)
    return field.default_factory() if field.default is dataclasses.MISSING else field.default


def test_the_manual_lists_every_default_that_is_not_trl_s():
    page = (REPOSITORY / "docs/trainers.md").read_text(encoding="utf-8")
    section = page.partition("#### Defaults that are not TRL's\n")[2].partition("\nRefused are")[0]
    listed = {
        name: (theirs, ours)
        for name, theirs, ours in re.findall(r"^\| `(\w+)` \| `(.*?)` \| `(.*?)` \|$", section, re.M)
    }
    names = [field.name for field in dataclasses.fields(GRPOConfig)]
    pairs = {name: (default_of(GRPOConfig, name), default_of(GiGPOConfig, name)) for name in names}
    differ = {name: tuple(map(str, pair)) for name, pair in pairs.items() if pair[0] != pair[1]}
    assert listed == differ
    assert f"`GiGPOConfig` has {len(differ)} defaults other than" in section
