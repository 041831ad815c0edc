"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields; the rules of TRL's options that we do not declare."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from transformers.utils import is_torch_tf32_available
from trl import GRPOConfig

from tasks.settings import Need, Rules, never, problems, unless, without
from trainers.credit.settings import CreditSettings
from trainers.settings.groups import GuardFields, HeldOutFields
from trainers.settings.rollouts import RolloutFields
from trainers.settings.training import AUTOCAST, HELD_OUT, TRLFields

# ---------------------------------------------------------------------------------------------------------------------
# TRL's and transformers' options that we do not declare ourselves: where their numbers may lie, and which are
# refused.
#
# Refused is what cannot hold per-token advantages or exact sampling (found by comparing gradients with token
# advantages against their row means: an option under which both give the same gradient has silently lost the credit),
# what this trainer was never run with, and what would do nothing, so that nobody believes that it acts.
# `tests/trainers/test_options.py` has the whole list: every field of `GRPOConfig` acts, passes through without an
# effect on credit, or is refused.

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
    "liger_kernel_config": "use_liger_kernel takes all of its kernels but the loss, which is TRL's",
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
    lambda c: not c.checkpoints_activations,
    " without gradient_checkpointing",
)
_ON_POLICY = unless(
    lambda c: c.gradient_accumulation_steps % ((c.steps_per_generation or 1) * c.num_iterations) == 0,
    ": samples are trained on once, in the step that made them, so every ratio is 1 (num_iterations, "
    "steps_per_generation)",
)
_SAME_WEIGHTS = unless(
    lambda c: _ON_POLICY(c) and c.samples_exactly,
    ": the weights that train are those that sampled (num_iterations, steps_per_generation, sampler, overlap)",
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
    "pad_to_multiple_of": _rules(
        needs=unless(
            lambda c: c.token_budget and c.pad_to_multiple_of,
            ": with micro_batch_tokens a pass is as wide as its own rows",
        )
    ),
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


# -- The settings of a training run ------------------------------------------------------------------------------------

_SIZES = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
"""TRL divides by them while it reads the settings."""


@dataclass
class GiGPOConfig(CreditSettings, HeldOutFields, RolloutFields, GuardFields, TRLFields, GRPOConfig):
    """TRL's GRPO settings with GiGPO credit, held-out selection, rollouts and guards of ours."""

    def __post_init__(self) -> None:
        """Complete the settings as TRL does.

        Raises:
            ValueError: A value does not fit.
        """
        early = ["deepspeed", *_SIZES]
        if not self.use_cpu and not torch.cuda.is_available():
            early += ["bf16", "fp16"]  # transformers' own message would send people astray
        wrong = list(problems(self, INHERITED, only=early))
        if self.eval_strategy == "steps" and self.eval_steps is not None and not 0 < self.eval_steps < math.inf:
            wrong.append(f"eval_steps={self.eval_steps}: above 0; to measure nothing before the end: eval_strategy=no.")
        if wrong:
            raise ValueError("\n".join(wrong))
        self.fold_accumulation()
        tf32 = self.tf32
        if not is_torch_tf32_available():
            self.tf32 = None  # transformers would refuse it; here a note says that it does nothing
        try:
            super().__post_init__()
        except ValueError as error:
            if wrong := [f.name for f in fields(self) if _broken_json(getattr(self, f.name))]:
                raise ValueError(f"{', '.join(wrong)}: no JSON ({error}).") from error
            if "divisible by num_generations" not in str(error):
                raise
            raise ValueError(
                f"{error} The first is per_device_train_batch_size x processes x steps_per_generation "
                "(gradient_accumulation_steps unless it is given): change one of them, or num_generations."
            ) from error
        finally:
            self.tf32 = tf32


def _broken_json(value: Any) -> bool:
    """Whether a setting is meant as a JSON object and is none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return False
    try:
        json.loads(value)
    except ValueError:
        return True
    return False
