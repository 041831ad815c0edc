"""TRL options that cannot hold per-token advantages or exact sampling: refused with the reason, before a model loads.

Found by comparing gradients with token advantages against their row means (an option under which both give the same
gradient has silently lost the credit), and by reading which options change what was sampled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from math import ceil
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from agents.t2po import T2POConfig
from trainers.config import GiGPOConfig
from trainers.config.backends import backend_problems
from trainers.config.idle import idle_problems
from trainers.config.policy import dropout_problem
from trainers.config.schedule import schedule_problems
from trainers.credit import EpisodeScale
from trainers.errors import ConfigError

LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo")
"""Loss types of TRL under which token advantages reach the gradient as they are."""


def check_config(config: GiGPOConfig) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigError: One line per setting that is refused.
    """
    problems = list(_problems(config))
    problems += [line for line in not_finite(config) if not any(p.startswith(line.split(":")[0]) for p in problems)]
    if problems:
        raise ConfigError("\n".join(problems))


def not_finite(settings: Any) -> Iterator[str]:
    """One line per number among the fields of a dataclass that is none, or endless: it would reach the weights."""
    for f in dataclasses.fields(settings):
        value = getattr(settings, f.name, None)
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{f.name}={value}: a finite number is needed."


def check_parts(processing_class: Any, peft_config: Any) -> None:
    """Refuse a processor or an adapter that cannot work.

    Raises:
        ConfigError: It cannot; the message says why.
    """
    if not isinstance(processing_class, PreTrainedTokenizerBase):
        raise ConfigError(
            f"processing_class: a tokenizer is needed, got {type(processing_class).__name__}. Environments speak "
            "text; models for images cannot be trained here."
        )
    if dropout := getattr(peft_config, "lora_dropout", 0.0):
        raise ConfigError(dropout_problem(dropout))


def check_targets(model: Any, peft_config: Any) -> None:
    """Refuse an adapter for layers that the model does not have; PEFT would fail in the middle of the start.

    Raises:
        ConfigError: None of its target modules is there.
    """
    targets = getattr(peft_config, "target_modules", None)
    if not targets or isinstance(targets, str):  # all-linear, or an expression, which PEFT matches
        return
    names = [name for name, _ in model.named_modules()]
    if not any(name == target or name.endswith(f".{target}") for target in targets for name in names):
        layers = {n.rsplit(".", 1)[-1] for n, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
        layers -= {"lm_head"}  # see `PolicyArguments.policy_problems`
        raise ConfigError(
            f"lora_target_modules={','.join(sorted(targets))}: the model has no such layer. Use all-linear, or of "
            f"{', '.join(sorted(layers))}."
        )


def check_processes(config: GiGPOConfig, t2po: T2POConfig | None) -> None:
    """Refuse what cannot be shared by several processes.

    Raises:
        ConfigError: One of the settings.
    """
    if config.world_size > 1 and t2po is not None and t2po.turn_resample and t2po.turn_resample_eta is None:
        raise ConfigError(
            "turn_resample_eta: with several processes it must be given. Each would calibrate it on its own turns, and "
            "the attempts of one group would be resampled by different rules. A run with one process prints its eta."
        )


def _problems(c: GiGPOConfig) -> Iterator[str]:
    if c.importance_sampling_level != "token":
        yield (
            f"importance_sampling_level={c.importance_sampling_level!r}: the gradient then sees only the mean "
            "advantage of a sequence and turn credit is lost. Use 'token'."
        )
    if c.loss_type == "vespo":
        yield (
            "loss_type='vespo': its weights are meant per sequence and would follow the sign of each token's "
            f"advantage. Use one of {', '.join(LOSSES)}."
        )
    elif c.loss_type not in LOSSES:
        yield f"loss_type={c.loss_type!r}: one of {', '.join(LOSSES)}."
    if c.top_p != 1.0 or c.top_k not in (0, None) or c.min_p is not None:
        yield "top_p, top_k, min_p: training log-probabilities cover the whole vocabulary. Only temperature can be set."
    if c.repetition_penalty != 1.0:
        yield "repetition_penalty: it changes what is sampled and not what is trained. Leave it at 1."
    if c.use_vllm:
        yield "use_vllm: TRL's vLLM is not used. Leave it off and name your server with --sampler vllm:URL."
    if c.use_transformers_continuous_batching or c.use_transformers_paged:
        yield (
            "use_transformers_continuous_batching, use_transformers_paged: they cast the training weights in place. "
            "Leave them off."
        )
    if c.bf16 or c.fp16:
        yield (
            "bf16/fp16 autocast: sampling runs without it, so sampled and trained log-probabilities would differ (with "
            "bf16 by 0.03 nats a token in the mean, 3 % of the tokens by more than 10 %). Leave them off and choose "
            "the weights' type with dtype, which sampling and training share."
        )
    if not 0 < c.temperature < math.inf:
        yield f"temperature={c.temperature}: training samples, so it must be above 0 (held-out has its own greedy arm)."
    if c.num_generations is None or c.num_generations < 2:
        yield f"num_generations={c.num_generations}: a group of one has nothing to be compared with. Use 2 or more."
    if c.resume and c.overwrite:
        yield "resume and overwrite: one goes on with the run that is there, the other starts anew. Say one of them."
    yield from _choices(c)
    yield from _steps(c)
    yield from _harm(c)
    yield from idle_problems(c)
    if c.n_gpu > 1:
        yield (
            f"{c.n_gpu} GPUs are visible and a plain start uses one: `accelerate launch --num_processes {c.n_gpu} -m "
            "trainers.grpo ...` uses all, CUDA_VISIBLE_DEVICES=0 makes it one."
        )


_HARM = {
    "generation_kwargs": "sampling does not go through `generate`",
    "cache_implementation": "sampling has its own cache",
    "resume_from_checkpoint": "use --resume: it finds the last whole checkpoint",
    "push_to_hub": "a run uploads nothing. Upload `best/` of the run folder when it is done",
    "log_completions_hub_repo": "a run uploads nothing. The episodes are in trajectories/ of the run folder",
    "neftune_noise_alpha": "it would train on noise that sampling does not have",
    "remove_unused_columns": "it would remove the tasks",
    "save_only_model": "a checkpoint without the optimizer's state cannot be resumed",
    "ignore_data_skip": "a resumed run would train on other tasks",
    "enable_jit_checkpoint": (
        "a checkpoint in the middle of a step cannot be resumed exactly; --resume goes on from the last one"
    ),
}
"""Options that would lose state, or change what is sampled or trained. What would do nothing stands in
`trainers.config.idle`, what needs another backend in `trainers.config.backends`."""


def _harm(c: GiGPOConfig) -> Iterator[str]:
    for name, reason in _HARM.items():
        if value := getattr(c, name, None):
            yield f"{name}={value!r}: {reason}. Leave it out."


def _choices(c: GiGPOConfig) -> Iterator[str]:
    if c.scale_rewards not in tuple(EpisodeScale):
        yield f"scale_rewards={c.scale_rewards!r}: one of {', '.join(EpisodeScale)}."
    yield from c.credit_problems()
    yield from c.held_out_problems()
    yield from c.rollout_problems()
    yield from c.guard_problems()
    yield from c.trl_problems()
    yield from backend_problems(c)
    yield from schedule_problems(c)


def _steps(c: GiGPOConfig) -> Iterator[str]:
    if c.max_steps < 1:
        yield f"max_steps={c.max_steps}: at least 1 (epochs are not counted here)."
    for name in ("eval_strategy", "save_strategy"):
        if getattr(c, name) not in ("steps", "no"):
            yield f"{name}={getattr(getattr(c, name), 'value', getattr(c, name))}: steps or no."
    if c.save_strategy == "steps" and (c.save_steps < 1 or int(c.save_steps) != c.save_steps):
        yield f"save_steps={c.save_steps}: a whole number of steps."
        return
    log_every = c.logging_steps if c.logging_steps >= 1 else ceil(c.max_steps * c.logging_steps)
    if c.save_strategy == "steps" and c.save_steps % max(1, log_every):
        yield (
            f"save_steps={int(c.save_steps)}: a checkpoint between two lines of metrics (logging_steps="
            f"{c.logging_steps:g}) cannot be resumed exactly. Use a multiple of it, or logging_steps=1."
        )
