"""TRL's own options here: our defaults, and rules for what we do not declare."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trl import GRPOConfig

from tasks.settings import Need, Rules, Settings, never, setting, unless, without
from trainers.rollouts.samplers import IN_PROCESS, SAME

# -- TRL's fields that a run is most often changed by: our help, and our defaults where TRL's are wrong here ----------

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo")
"""Loss types of TRL under which token advantages reach the gradient as they are."""
HELD_OUT = "held-out tasks are measured by their own rule (held_out_*)"
AUTOCAST = (
    "autocast: sampling runs without it, so sampled and trained log-probabilities would differ (with bf16 by 0.03 nats "
    "a token in the mean, 3 % of the tokens by more than 10 %). Leave it off and choose the weights' type with dtype, "
    "which sampling and training share."
)


@dataclass
class TRLFields(Settings):
    """What TRL's own settings are here.

    Sources of the optimizer's defaults: `adam_epsilon` 1e-5 with 30 steps of warm-up are those of the good runs of the
    RLVR notes (learning rates 1e-6 to 1e-5); the quickstart, whose recipe was measured with other ones, pins its own.
    """

    output_dir: str = setting("runs/run", "The run folder; refused when occupied.", common=True)
    resume: bool = setting(
        False, "Continue in an occupied `output_dir` from its last checkpoint (or start).", common=True
    )
    overwrite: bool = setting(
        False, "Start anew where a run is; the old folder is kept as `<output_dir>.replaced-<n>`.", common=True
    )
    save_trajectories: bool = setting(True, "Write every training episode to the run folder.")
    seed: int = setting(
        42, "Seeds tasks, sampling and new weights: same seed, same run.", low=0, below=2**32, common=True
    )

    max_steps: int = setting(
        100, "Optimizer steps.", low=1, why="epochs are not counted here", unit="steps", common=True
    )
    num_generations: int = setting(
        8,
        "K: attempts at each task of a step, 2 or more.",
        low=2,
        why="a group of one has nothing to be compared with",
        common=True,
    )
    per_device_train_batch_size: int = setting(
        8,
        "Episodes of one forward and backward pass: it decides the memory that is needed.",
        low=1,
        unit="episodes",
        common=True,
    )
    gradient_accumulation_steps: int = setting(
        1, "Passes before an optimizer step; a step has this many times the batch size.", low=1, common=True
    )
    learning_rate: float = setting(1e-5, "Peak rate; 1e-5 suits LoRA, all weights want less.", low=0, common=True)
    lr_scheduler_type: str = setting("linear", "linear | constant_with_warmup | constant (no warm-up) | cosine.")
    warmup_steps: float = setting(
        30, "Steps over which the rate rises from 0 to its peak.", low=0, unit="steps", common=True
    )
    adam_epsilon: float = setting(
        1e-5, "Adam's epsilon: at 1e-5 a weight whose gradient is all noise hardly moves.", above=0
    )
    temperature: float = setting(
        1.0,
        "Of the sampling that is trained on.",
        above=0,
        why="training samples (held-out has its own greedy arm)",
        common=True,
    )
    beta: float = setting(
        0.0, "Weight of the KL (k3) from where the run started; 0 keeps no reference in memory.", low=0, common=True
    )
    loss_type: str = setting(
        "dapo",
        "dapo | grpo | bnpo | dr_grpo | cispo | sapo | luspo.",
        choices=LOSSES,
        why="under others token advantages do not reach the gradient as they are (vespo weighs whole sequences)",
        common=True,
    )
    eval_steps: float | None = setting(10, "Held-out evaluation every N steps.", common=True)
    save_steps: float = setting(10, "Checkpoint every N steps.", common=True)

    # TRL's defaults that are wrong here, each with its reason.
    num_generations_eval: int | None = setting(
        1, "Not used: held-out has its own rule.", requires=(never(HELD_OUT),), recorded=False
    )
    bf16: bool | None = setting(
        False,
        "Autocast: always refused, sampled and trained log-probabilities would differ; see dtype.",
        refused=AUTOCAST,
        recorded=False,
    )
    disable_dropout: bool = setting(True, "Dropout makes sampled and trained ids disagree.")
    gradient_checkpointing: bool = setting(False, "Slower, less memory.")
    logging_steps: float = setting(1, "Log every N steps.", above=0, unit="steps", recorded=False)
    shuffle_dataset: bool | None = setting(
        True,
        "Draw tasks in a seeded random order.",
        recorded=False,
        needs=(unless(lambda c: c.curriculum, ": the curriculum names the tasks"),),
    )
    eval_strategy: str = setting("steps", "Held-out evaluation: steps | no.", choices=("steps", "no"), recorded=False)
    eval_on_start: bool = setting(True, "Measure the step-0 baseline; it competes for best.", recorded=False)
    save_strategy: str = setting(
        "steps", "Checkpoints for --resume: steps | no.", choices=("steps", "no"), recorded=False
    )
    save_total_limit: int | None = setting(2, "Checkpoints kept; `best/` is outside of it.", recorded=False)

    def idle_trl_settings(self) -> Iterator[str]:
        """Settings of the schedule that do nothing, or not what one would think, one sentence each."""
        warmup: Any = self.warmup_steps
        schedule = str(getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type))
        if self.learning_rate == 0:
            yield "learning_rate=0: nothing is learned"
        if warmup and schedule == "constant":
            yield f"warmup_steps={warmup:g} does nothing with lr_scheduler_type constant (constant_with_warmup has one)"
        elif warmup >= 1 and self.max_steps <= warmup:
            yield (
                f"max_steps={self.max_steps} ends within the warm-up of {warmup:g} steps: learning_rate is never "
                "reached. Set warmup_steps lower"
            )


# ---------------------------------------------------------------------------------------------------------------------
# TRL's and transformers' options that we do not declare ourselves: where their numbers may lie, and which are
# refused.
#
# Refused is what cannot hold per-token advantages or exact sampling (found by comparing gradients with token
# advantages
# against their row means: an option under which both give the same gradient has silently lost the credit), what this
# trainer was never run with, and what would do nothing, so that nobody believes that it acts.
# `tests/trainers/test_options.py` has the whole list: every field of `GRPOConfig` acts, passes through without an
# effect
# on credit, or is refused.

_GROUPS = "groups are drawn whole; shuffle_dataset says whether in random order"
_UPLOADS = "a run uploads nothing"
_DTYPE = "held-out tasks are measured with the weights as they are (dtype)"
_REFERENCE = "the reference policy stays as it was (sync_ref_model is refused)"
ALWAYS = {
    "trust_remote_code": "the model is loaded before the trainer is made, and never runs code of its own",
    "chat_template_kwargs": "episodes render the chat template themselves",
    "max_tool_calling_iterations": "the environment owns the turn loop; max_turns caps it",
    "reward_weights": "there is one reward, the environment's; alpha_episode weights the episode term",
    "multi_objective_aggregation": "there is one reward, the environment's",
    **dict.fromkeys(("ref_model_mixup_alpha", "ref_model_sync_steps"), _REFERENCE),
    "transformers_continuous_batching_config": "sampling does not go through `generate`",
    "log_multimodal": "tasks have no images",
    "data_seed": "tasks are drawn by seed",
    "liger_kernel_config": "use_liger_kernel is refused",
    "ds3_gather_for_generation": "DeepSpeed is not supported",
    "num_generations_eval": HELD_OUT,
    **dict.fromkeys(("per_device_eval_batch_size", "eval_accumulation_steps", "eval_do_concat_batches"), HELD_OUT),
    **dict.fromkeys(("eval_use_gather_object", "include_for_metrics", "batch_eval_metrics"), HELD_OUT),
    "prediction_loss_only": HELD_OUT,
    **dict.fromkeys(("bf16_full_eval", "fp16_full_eval"), _DTYPE),
    **dict.fromkeys(("label_smoothing_factor", "label_names"), "the loss has no labels"),
    "num_train_epochs": "max_steps says how long a run is",
    **dict.fromkeys(("train_sampling_strategy", "length_column_name"), _GROUPS),
    "optim_target_modules": "optimizers that choose modules are refused",
    **dict.fromkeys(("hub_model_id", "hub_strategy", "hub_private_repo", "hub_always_push", "hub_revision"), _UPLOADS),
    "hub_token": f"{_UPLOADS}; models are fetched with HF_TOKEN of the environment",
}
"""Option: why it never acts."""

LORA = "Use LoRA (adapter=lora) with dtype=bfloat16"
SMALLER = f"{LORA}, gradient_checkpointing, or a smaller per_device_train_batch_size"
_VOCABULARY = "training log-probabilities cover the whole vocabulary. Only temperature can be set."
_BATCHING = "it casts the training weights in place. Leave it off."
REFUSED = {
    **dict.fromkeys(("top_p", "top_k", "min_p"), _VOCABULARY),
    "repetition_penalty": "it changes what is sampled and not what is trained. Leave it at 1.",
    "use_vllm": "TRL's vLLM is not used. Leave it off and name your server with --sampler vllm:URL.",
    **dict.fromkeys(("use_transformers_continuous_batching", "use_transformers_paged"), _BATCHING),
    "fp16": AUTOCAST,
    "generation_kwargs": "sampling does not go through `generate`. Leave it out.",
    "cache_implementation": "sampling has its own cache. Leave it out.",
    "resume_from_checkpoint": "use --resume: it finds the last whole checkpoint.",
    "push_to_hub": "a run uploads nothing. Upload `best/` of the run folder when it is done.",
    "log_completions_hub_repo": (
        "a run uploads nothing. The episodes are in trajectories/ of the run folder. Leave it out."
    ),
    "neftune_noise_alpha": "it would train on noise that sampling does not have. Leave it out.",
    "remove_unused_columns": "it would remove the tasks. Leave it out.",
    "save_only_model": "a checkpoint without the optimizer's state cannot be resumed. Leave it out.",
    "ignore_data_skip": "a resumed run would train on other tasks. Leave it out.",
    "enable_jit_checkpoint": (
        "a checkpoint in the middle of a step cannot be resumed exactly; --resume goes on from the last one. Leave it "
        "out."
    ),
    # Backends: each would change what is sampled, trained or saved, and needs several GPUs or another package to try.
    "deepspeed": f"DeepSpeed is untested here: it splits the weights that sampling reads. {SMALLER}.",
    "fsdp": f"FSDP is untested here: it splits the weights that sampling reads. {SMALLER}.",
    "parallelism_config": f"tensor, context and sequence parallelism are untested here. {SMALLER}.",
    "torch_compile": (
        "compiled training is untested here, and sampling would go around it; on a GPU sampling has its own CUDA "
        "graphs. Leave it off."
    ),
    "use_liger_kernel": (
        "Liger's kernels replace layers in training only, so sampled and trained log-probabilities would differ. "
        "Leave it off: the log-probabilities are computed in chunks without it."
    ),
    "model_init_kwargs": "the model is loaded before the trainer is made. Use model_name_or_path and dtype.",
    "sync_ref_model": "the KL is measured from where the run started, so the reference never moves. Leave it off.",
}
"""Option: why it cannot be set, and what to do instead."""

OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "adafactor", "adagrad", "rmsprop", "sgd")
_TAKE_ARGS = ("adagrad", "rmsprop", "sgd")
WITHOUT_KWARGS = ("constant", "constant_with_warmup")
_CLIPPED = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
_CLIPS = unless(lambda c: c.loss_type not in (*_CLIPPED, "cispo"), " without a loss_type that clips")
_ADAPTS, _PRINTS, _LOADS = (
    without("use_adaptive_entropy"),
    without("log_completions"),
    without("dataloader_num_workers"),
)
_CHECKPOINTS = unless(
    lambda c: not (c.gradient_checkpointing or getattr(c, "activation_checkpointing", False)),
    " without gradient_checkpointing",
)
_ON_POLICY = unless(
    lambda c: c.gradient_accumulation_steps % ((c.steps_per_generation or 1) * c.num_iterations) == 0,
    ": samples are trained on once, in the step that made them, so every ratio is 1 (num_iterations, "
    "steps_per_generation)",
)
_SAME_WEIGHTS = unless(
    lambda c: _ON_POLICY(c) and c.sampler == IN_PROCESS and c.sample_dtype == SAME,
    ": the weights that train are those that sampled (num_iterations, steps_per_generation, sampler)",
)


def _rules(low: float | None = None, *, requires: Need | None = None, needs: Need | None = None, **more: Any) -> Rules:
    return Rules(low=low, requires=(requires,) if requires else (), needs=(needs,) if needs else (), **more)


_ACTING = {
    **dict.fromkeys(("weight_decay", "max_grad_norm", "dataloader_num_workers", "entropy_coef"), _rules(0)),
    "epsilon": _rules(0, requires=_CLIPS, needs=_ON_POLICY),
    "epsilon_high": _rules(0, requires=_CLIPS, needs=_ON_POLICY),
    "delta": _rules(
        above=0,
        requires=unless(lambda c: c.loss_type not in _CLIPPED, f" without a loss_type of {', '.join(_CLIPPED)}"),
        needs=_ON_POLICY,
    ),
    "off_policy_mask_threshold": _rules(above=0, needs=_SAME_WEIGHTS),
    **dict.fromkeys(
        ("sapo_temperature_pos", "sapo_temperature_neg"),
        _rules(above=0, requires=without("loss_type", "sapo"), needs=_ON_POLICY),
    ),
    "top_entropy_quantile": _rules(above=0, high=1),
    "optim": _rules(
        choices=OPTIMIZERS,
        why="others need another package (bitsandbytes, torchao), hold other weights while they are measured (schedule "
        "free), or step within the backward pass (LOMO, layerwise): untested here. With LoRA adamw_torch is small",
    ),
    "optim_args": _rules(requires=without("optim", *_TAKE_ARGS)),
    "lr_scheduler_kwargs": _rules(
        requires=unless(lambda c: c.lr_scheduler_type in WITHOUT_KWARGS, " with this lr_scheduler_type, which has none")
    ),
    "logging_strategy": _rules(choices=("steps",), why="guards and the report read the lines of the steps"),
    **dict.fromkeys(("num_iterations", "steps_per_generation"), _rules(1)),
    **dict.fromkeys(("adam_beta1", "adam_beta2"), _rules(0, below=1)),
    **dict.fromkeys(("entropy_coef_min", "entropy_coef_max", "entropy_coef_delta"), _rules(0, requires=_ADAPTS)),
    "entropy_target": _rules(requires=_ADAPTS),
    "max_completion_length": _rules(requires=without("loss_type", "dr_grpo")),
    "use_bias_correction_kl": _rules(requires=without("beta")),
    **dict.fromkeys(("num_completions_to_print", "log_unique_prompts"), _rules(requires=_PRINTS)),
    **dict.fromkeys(("dataloader_persistent_workers", "dataloader_multiprocessing_context"), _rules(requires=_LOADS)),
    **dict.fromkeys(
        ("gradient_checkpointing_kwargs", "activation_checkpointing_kwargs"), _rules(requires=_CHECKPOINTS)
    ),
    "importance_sampling_level": _rules(
        choices=("token",),
        why="otherwise the gradient sees only the mean advantage of a sequence and turn credit is lost",
    ),
}


def _of_prefix(prefix: str, reason: str) -> dict[str, Rules]:
    names = [f.name for f in dataclasses.fields(GRPOConfig) if f.name.startswith(prefix)]
    return dict.fromkeys(names, _rules(requires=never(reason)))


INHERITED = {
    **_of_prefix("vllm_", "nothing is sampled by TRL's vLLM"),
    **_of_prefix("vespo_", "loss_type vespo is refused"),
    **{name: _rules(requires=never(reason), secret=name == "hub_token") for name, reason in ALWAYS.items()},
    **{name: Rules(refused=reason) for name, reason in REFUSED.items()},
    **_ACTING,
}
"""The rules of each option, by name."""
