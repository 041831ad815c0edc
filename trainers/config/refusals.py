"""What is refused before a model loads, and what is said to do nothing: each setting by itself, and those together."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from agents.t2po import T2POConfig
from tasks.settings import idle, problems
from trainers.config import GiGPOConfig
from trainers.config.backends import backend_problems
from trainers.config.credit import credit_problems, idle_credit
from trainers.config.inherited import INHERITED
from trainers.config.policy import NO_DROPOUT
from trainers.config.schedule import logging_note, schedule_problems
from trainers.errors import ConfigError
from trainers.guards.levels import level_problems


def check_config(config: GiGPOConfig) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigError: One line per setting that is refused.
    """
    found = [*problems(config, INHERITED), *_together(config)]
    if found:
        raise ConfigError("\n".join(found))


def config_notes(config: GiGPOConfig) -> Iterator[str]:
    """Settings that were given and do nothing, or not what one would think, one sentence each."""
    yield from idle_credit(config)
    yield from idle(config, INHERITED)
    yield from config.idle_trl_settings()
    yield from logging_note(config)


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
        raise ConfigError(f"lora_dropout={dropout}: {NO_DROPOUT}")


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


def _together(c: GiGPOConfig) -> Iterator[str]:
    """One line per setting that cannot work with the others, or here."""
    yield from credit_problems(c)
    yield from c.held_out_problems()
    yield from c.rollout_problems()
    yield from level_problems(c.guards)
    yield from backend_problems(c)
    yield from schedule_problems(c)
    if c.resume and c.overwrite:
        yield "resume and overwrite: one goes on with the run that is there, the other starts anew. Say one of them."
    if c.n_gpu > 1:
        yield (
            f"{c.n_gpu} GPUs are visible and a plain start uses one: `accelerate launch --num_processes {c.n_gpu} -m "
            "trainers.grpo ...` uses all, CUDA_VISIBLE_DEVICES=0 makes it one."
        )
    if c.save_strategy != "steps":
        return
    if c.save_steps < 1 or int(c.save_steps) != c.save_steps:
        yield f"save_steps={c.save_steps}: a whole number of steps."
        return
    log_every = c.logging_steps if c.logging_steps >= 1 else ceil(c.max_steps * c.logging_steps)
    if c.save_steps % max(1, log_every):
        yield (
            f"save_steps={int(c.save_steps)}: a checkpoint between two lines of metrics (logging_steps="
            f"{c.logging_steps:g}) cannot be resumed exactly. Use a multiple of it, or logging_steps=1."
        )
