"""TRL and transformers options that would do nothing here: refused when set, so that nobody believes they act.

Options that act and would do harm stand in `refusals`. `tests/trainers/test_options.py` has the whole list: every field
of `GRPOConfig` acts, passes through without an effect on credit, or is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from functools import cache
from typing import Any

from trainers.config import GiGPOConfig
from trainers.config.schedule import logging_note
from trainers.rollouts.names import IN_PROCESS, SAME

ALWAYS = {
    "trust_remote_code": "the model is loaded before the trainer is made, and never runs code of its own",
    "chat_template_kwargs": "episodes render the chat template themselves",
    "max_tool_calling_iterations": "the environment owns the turn loop; max_turns caps it",
    "reward_weights": "there is one reward, the environment's; alpha_episode weights the episode term",
    "multi_objective_aggregation": "there is one reward, the environment's",
    "ref_model_mixup_alpha": "the reference policy stays as it was (sync_ref_model is refused)",
    "ref_model_sync_steps": "the reference policy stays as it was (sync_ref_model is refused)",
    "transformers_continuous_batching_config": "sampling does not go through `generate`",
    "log_multimodal": "tasks have no images",
    "data_seed": "tasks are drawn by seed",
    "liger_kernel_config": "use_liger_kernel is refused",
    "ds3_gather_for_generation": "DeepSpeed is not supported",
    "num_generations_eval": "held-out tasks are measured by their own rule (held_out_*)",
    "per_device_eval_batch_size": "held-out tasks are measured by their own rule (held_out_*)",
    "eval_accumulation_steps": "held-out tasks are measured by their own rule (held_out_*)",
    "eval_do_concat_batches": "held-out tasks are measured by their own rule (held_out_*)",
    "eval_use_gather_object": "held-out tasks are measured by their own rule (held_out_*)",
    "include_for_metrics": "held-out tasks are measured by their own rule (held_out_*)",
    "batch_eval_metrics": "held-out tasks are measured by their own rule (held_out_*)",
    "prediction_loss_only": "held-out tasks are measured by their own rule (held_out_*)",
    "bf16_full_eval": "held-out tasks are measured with the weights as they are (dtype)",
    "fp16_full_eval": "held-out tasks are measured with the weights as they are (dtype)",
    "label_smoothing_factor": "the loss has no labels",
    "label_names": "the loss has no labels",
    "num_train_epochs": "max_steps says how long a run is",
    "train_sampling_strategy": "groups are drawn whole; shuffle_dataset says whether in random order",
    "length_column_name": "groups are drawn whole; shuffle_dataset says whether in random order",
    "optim_target_modules": "optimizers that choose modules are refused",
    "hub_model_id": "a run uploads nothing",
    "hub_strategy": "a run uploads nothing",
    "hub_token": "a run uploads nothing; models are fetched with HF_TOKEN of the environment",
    "hub_private_repo": "a run uploads nothing",
    "hub_always_push": "a run uploads nothing",
    "hub_revision": "a run uploads nothing",
}
"""Option: why it never acts."""

_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")


def idle_problems(c: GiGPOConfig) -> Iterator[str]:
    """One line per option that is not at its default and would do nothing."""
    for name, reason in ALWAYS.items():
        if _changed(c, name):
            value = "" if name == "hub_token" else f"={getattr(c, name)!r}"  # a secret is not printed
            yield f"{name}{value}: would do nothing, {reason}. Leave it out."
    for name in _defaults():
        if name.startswith("vllm_") and _changed(c, name):
            yield f"{name}={getattr(c, name)!r}: would do nothing, nothing is sampled by TRL's vLLM. Leave it out."
        if name.startswith("vespo_") and _changed(c, name):
            yield f"{name}={getattr(c, name)!r}: would do nothing without loss_type vespo, which is refused."
    for name, acts, condition in _conditional(c):
        if not acts and _changed(c, name):
            yield f"{name}={getattr(c, name)!r}: does nothing without {condition}. Set that too, or leave it out."


def idle_notes(c: GiGPOConfig) -> Iterator[str]:
    """Options that act only with others and stand in many people's settings: said, not refused. One sentence each."""
    if c.gradient_accumulation_steps % ((c.steps_per_generation or 1) * c.num_iterations) == 0:
        for name in ("epsilon", "epsilon_high", "delta", "sapo_temperature_neg", "sapo_temperature_pos"):
            if _changed(c, name):
                yield (
                    f"{name}={getattr(c, name)} does nothing: samples are trained on once, in the step that made them, "
                    "so every ratio is 1 (num_iterations, steps_per_generation)"
                )
        if _changed(c, "off_policy_mask_threshold") and _exact(c):
            yield (
                f"off_policy_mask_threshold={c.off_policy_mask_threshold} does nothing: the weights that train are "
                "those that sampled (num_iterations, steps_per_generation, sampler)"
            )
    if _changed(c, "importance_cap") and _exact(c):
        yield f"importance_cap={c.importance_cap} does nothing: this sampler is exact, so there is no such weight"
    yield from logging_note(c)
    if c.curriculum and _changed(c, "shuffle_dataset"):
        yield f"shuffle_dataset={c.shuffle_dataset} does nothing: the curriculum names the tasks"


def _exact(c: GiGPOConfig) -> bool:
    """Whether sampling surely reads the very weights that are trained (a copy in their own type may, too)."""
    return bool(c.sampler == IN_PROCESS and c.sample_dtype == SAME)


def _conditional(c: GiGPOConfig) -> Iterator[tuple[str, bool, str]]:
    yield (
        "max_completion_length",
        c.loss_type == "dr_grpo",
        "loss_type dr_grpo, whose sum it divides",
    )
    for name in ("sapo_temperature_neg", "sapo_temperature_pos"):
        yield name, c.loss_type == "sapo", "loss_type sapo"
    yield "delta", c.loss_type in _CLIPPED, f"a loss_type of {', '.join(_CLIPPED)}"
    yield "epsilon", c.loss_type in (*_CLIPPED, "cispo"), "a loss_type that clips"
    yield "epsilon_high", c.loss_type in (*_CLIPPED, "cispo"), "a loss_type that clips"
    yield "use_bias_correction_kl", c.beta != 0, "beta above 0"
    for name in ("entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target"):
        yield name, c.use_adaptive_entropy, "use_adaptive_entropy"
    for name in ("num_completions_to_print", "log_unique_prompts"):
        yield name, c.log_completions, "log_completions"
    for name in ("dataloader_persistent_workers", "dataloader_multiprocessing_context"):
        yield name, c.dataloader_num_workers > 0, "dataloader_num_workers"
    for name in ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"):
        acts = c.gradient_checkpointing or getattr(c, "activation_checkpointing", False)
        yield name, acts, "gradient_checkpointing"


def _changed(c: GiGPOConfig, name: str) -> bool:
    return name in _defaults() and bool(getattr(c, name) != _defaults()[name])


@cache
def _defaults() -> dict[str, Any]:
    """Default of every option that this version of TRL has."""
    return {
        f.name: f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
        for f in dataclasses.fields(GiGPOConfig)
    }
