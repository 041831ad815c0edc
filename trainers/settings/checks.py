"""Settings that cannot work, or do nothing, together or on this machine."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from types import SimpleNamespace
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, get_scheduler
from transformers.integrations import get_available_reporting_integrations
from transformers.utils import is_liger_kernel_available

from agents.t2po import T2PO, T2POConfig
from agents.uncertainty import OFFICIAL_SKIP, Signal
from tasks.settings import default_of, idle, plain, problems
from trainers.credit import EpisodeOperator, EpisodeScale, Planning, TurnGrouping, advantage_bound
from trainers.credit.episode import GTPONorm, episode_operator
from trainers.credit.settings import CreditSettings, follows_schedule
from trainers.credit.token import OPERATORS, DelightMode, DelightNorm, SepaSchedule, operator_names
from trainers.errors import ConfigError
from trainers.guards.levels import level_problems
from trainers.rollouts.partial import NO_RESUME
from trainers.settings import GiGPOConfig
from trainers.settings.gigpo_config import INHERITED, LORA, REFUSED, SMALLER, WITHOUT_KWARGS
from trainers.settings.groups import NO_DROPOUT

# -- Ways to hold and run a model that this trainer was never run with: refused by name, before a model loads ---------
# Each would change what is sampled, what is trained, or what a checkpoint holds, and none of them can be tried without
# several GPUs or another package. A refusal is a line of text; a wrong number would be a month. Plain switches stand
# in `trainers.settings.gigpo_config`.

_LAUNCHERS = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor or context parallelism",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron",
}
"""What `accelerate launch` sets in the environment."""
_FILLED_IN = ("min_num_params", "xla", "xla_fsdp_v2")
"""Keys of `fsdp_config` that transformers sets itself."""


def backend_problems(config: Any) -> Iterator[str]:
    """One line per setting of the `TrainingArguments` that needs a backend which is not supported."""
    sharding = getattr(config, "fsdp_config", None)
    if isinstance(sharding, Mapping):
        sharding = any(value for key, value in sharding.items() if key not in _FILLED_IN)
    if sharding and not getattr(config, "fsdp", None):
        yield f"fsdp_config: {REFUSED['fsdp']}"
    yield from _reporting_problems(config.report_to)
    yield from _liger_problems(config)
    for variable, name in _LAUNCHERS.items():
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            yield f"accelerate launches {name} ({variable}): untested here. Choose plain multi-GPU. {SMALLER}."


LIGER_EXACT = (
    "use_liger_kernel: its kernels round otherwise than this sampler, whose tokens are not weighted for that. Use a "
    "sample_dtype that is not the weights' own, a server or overlap=1, or leave it off."
)


def _liger_problems(config: Any) -> Iterator[str]:
    """Why Liger's kernels cannot be used: they replace layers of the model in place, for training alone."""
    if not config.use_liger_kernel:
        return
    if not is_liger_kernel_available():
        yield "use_liger_kernel: the package liger-kernel is not installed. Install it, or leave this off."
    if config.samples_with_itself:
        yield LIGER_EXACT


def _reporting_problems(report_to: Any) -> Iterator[str]:
    """One line per tracker that transformers does not know or that is not installed."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    there = get_available_reporting_integrations()
    for name in names:
        if name not in ("none", "all", *there):
            here = f"here there are {', '.join(there)}" if there else "none is installed here"
            yield f"report_to={name}: no tracker of that name is installed ({here}). Install it, or leave it out."


def quantization_problem(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config.json cannot be trained: its weights are quantized. `None` where they are not."""
    found = config.get("quantization_config")
    if not found:
        return None
    method = found.get("quant_method", "unknown") if isinstance(found, Mapping) else "unknown"
    bits = next((b for b in ("4", "8") if isinstance(found, Mapping) and found.get(f"load_in_{b}bit")), "")
    return (
        f"its weights are quantized ({method}{f', {bits} bits' if bits else ''}): training on them is untested here. "
        f"{LORA} on the unquantized model"
    )


# -- Optimizer, learning-rate schedule and lines of metrics, judged before a model loads ------------------------------
# Refused is what transformers would fail at only then, and what would do something else than what it says.

_BY_LOSS = ("reduce_lr_on_plateau", "greedy")


def schedule_problems(c: Any) -> Iterator[str]:
    """One line per setting that cannot work here, beyond the values that each takes."""
    name = plain(c.lr_scheduler_type)
    if name in _BY_LOSS:
        yield f"lr_scheduler_type={name}: it follows the loss of an evaluation, held-out tasks have none. Use linear."
    elif not (c.lr_scheduler_kwargs and name in WITHOUT_KWARGS):
        yield from _unbuildable(c, name)
    every = c.logging_steps
    if every > c.max_steps > 0:
        yield (
            f"logging_steps={every:g}: none of the {c.max_steps} steps would be logged, and guards would hear nothing. "
            "Use a lower number."
        )


def _unbuildable(c: Any, name: str) -> Iterator[str]:
    """Why transformers cannot make the schedule."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    try:
        get_scheduler(
            name,
            optimizer,
            num_warmup_steps=0,
            num_training_steps=max(1, c.max_steps),
            scheduler_specific_kwargs=c.lr_scheduler_kwargs,
        )
    except (TypeError, ValueError) as error:
        given = f" with {c.lr_scheduler_kwargs}" if c.lr_scheduler_kwargs else ""
        yield f"lr_scheduler_type={name}{given}: {error}. Its own settings stand in lr_scheduler_kwargs."


def logging_note(c: Any) -> Iterator[str]:
    """What a line for several steps means for the guards."""
    every = c.logging_steps if c.logging_steps >= 1 else math.ceil(c.max_steps * c.logging_steps)
    if every > 1:
        yield (
            f"logging_steps={c.logging_steps:g}: guards hear the mean of {every:.0f} steps at a time, so they speak "
            f"later, and 3 steps in what they say of metrics are {3 * every:.0f}"
        )


# -- Credit settings that cannot work together, and those that were given and do nothing ------------------------------

_SCALED_BY_ITSELF = {
    EpisodeOperator.DR_GRPO: "Dr. GRPO divides by nothing",
    EpisodeOperator.MAXRL: "MaxRL divides by the group's mean",
    EpisodeOperator.REINFORCE_PP: "REINFORCE++ normalises over the step itself",
    EpisodeOperator.DISCOVER: "its size is set by its own divergence",
    EpisodeOperator.GTPO: "GTPO divides by the deviation of its tokens' rewards",
}


def credit_problems(c: CreditSettings) -> Iterator[str]:
    """One line per setting that cannot work with the others; `tasks.settings.problems` judges each by itself."""
    scaled = ""
    try:
        operator = episode_operator(c.episode_operator)
        own = not isinstance(operator, EpisodeOperator)
        scaled = "one of your own divides by itself" if own else _SCALED_BY_ITSELF.get(EpisodeOperator(operator), "")
    except ValueError as error:
        yield f"episode_operator={c.episode_operator!r}: {error}."
    if scaled and c.scale_rewards != EpisodeScale.NONE:
        yield (
            f"scale_rewards={c.scale_rewards} with episode_operator={c.episode_operator}: {scaled}. Use "
            "scale_rewards=none, or episode_operator=grpo."
        )
    if c.alpha_episode == 0 and not _has_turn_term(c):
        yield "alpha_episode=0 without a turn term: every advantage would be 0 and nothing could be learned."
    try:
        operator_names(c.token_operators)
    except ValueError as error:
        yield f"token_operators={c.token_operators!r}: {error}."
    if c.delight_eta_min > c.delight_eta_max:
        yield f"delight_eta_min={c.delight_eta_min} is above delight_eta_max={c.delight_eta_max}."
    try:
        _ = Planning(c.planning, c.planning_window).detector
    except ValueError as error:
        yield f"planning={c.planning!r}: {error}."


def _has_turn_term(c: CreditSettings) -> bool:
    return c.beta_turn != 0 and c.turn_grouping != TurnGrouping.NONE


def idle_credit(c: CreditSettings) -> Iterator[str]:
    """What was given and does nothing, one sentence each, beyond the needs that fields declare."""
    operators = operator_names(c.token_operators)
    yield from _idle_readers(c, operators)
    if c.episode_operator == EpisodeOperator.DR_GRPO and getattr(c, "loss_type", "dr_grpo") != "dr_grpo":
        yield (
            "episode_operator=dr_grpo is what grpo with scale_rewards=none does; the other half of Dr. GRPO is "
            "loss_type=dr_grpo"
        )
    if c.episode_operator == EpisodeOperator.GTPO and c.gtpo_norm == GTPONorm.SIDES:
        yield (
            "episode_operator=gtpo with gtpo_norm=sides (as published): passed and failed attempts each average 0, so "
            "nothing in the episode term says that passing is better; gtpo_norm=group keeps the difference"
        )
    if operators and c.alpha_episode == 0:
        yield f"token_operators={c.token_operators} does nothing with alpha_episode=0: they weigh the episode term"
    if "sepa" in operators and "gtpo" not in operators:
        yield "token_operators=sepa does nothing without gtpo, which turns its signal into weights"
    if "gtpo" in operators and c.gtpo_beta == 0:
        yield "gtpo_beta=0 does nothing: every weight is 1"
    if "hicra" in operators and c.hicra_alpha == 0:
        yield "hicra_alpha=0 does nothing: every weight is 1"
    if "entropy_mask" in operators and c.entropy_mask_share == 1:
        yield "entropy_mask_share=1 does nothing: every token is kept"
    if "delight" in operators and c.delight_mode != DelightMode.SOFT and c.delight_lambda == 0:
        yield "delight_lambda=0 does nothing: every weight is 1"
    fixed = c.delight_norm == DelightNorm.NONE and not c.delight_adaptive
    if "delight" in operators and c.delight_mode != DelightMode.HARD and fixed and c.delight_eta >= 1:
        yield (
            "token_operators=delight does next to nothing with delight_norm=none and delight_eta="
            f"{c.delight_eta:g}: tokens surprise by fractions of a nat, nearly all gates lie between 0.4 and 0.6, "
            "and the episode term is halved. delight_norm=mad, or delight_adaptive, spreads the gates"
        )
    annealed = "delight" in operators and follows_schedule(c)
    steps = _last_generation(c)
    ramp = c.sepa_schedule == SepaSchedule.LINEAR and ("sepa" in operators or annealed)
    if ramp and (not c.sepa_steps or 0 < steps <= c.sepa_delay + 1):
        ends = f"{getattr(c, 'max_steps', 0)} steps end before sepa_delay={c.sepa_delay}"
        why = "sepa_steps=0 has no ramp" if not c.sepa_steps else ends
        yield f"sepa_schedule=linear does nothing: {why}, and lambda stays 0"
    if c.advantage_cap and not operators and not _has_turn_term(c):
        bound = advantage_bound(c.episode_operator, c.scale_rewards, getattr(c, "num_generations", 0) or 0)
        if bound and c.alpha_episode * bound <= c.advantage_cap:
            yield (
                f"advantage_cap={c.advantage_cap:g} does nothing for rewards between 0 and 1: no advantage exceeds "
                f"{c.alpha_episode * bound:.3g} here"
            )


def _idle_readers(c: CreditSettings, operators: tuple[str, ...]) -> Iterator[str]:
    """What is read by whichever operator says that it does: ours, and those of others."""
    known = {**OPERATORS, **{name: OPERATORS.find(name) for name in operators}}
    planning = [name for name, operator in known.items() if operator.planning]
    signal = [name for name, operator in known.items() if operator.signal]
    for name, readers in (("token_signal", signal), ("planning", planning), ("planning_window", planning)):
        default = default_of(CreditSettings.__dataclass_fields__[name])
        by_episode = name == "token_signal" and c.episode_operator == EpisodeOperator.GTPO
        if getattr(c, name) != default and not set(readers) & set(operators) and not by_episode:
            yield f"{name}={getattr(c, name)} does nothing without token_operators={' or '.join(readers)}"


def _last_generation(c: CreditSettings) -> int:
    """Optimizer steps up to the last generation, it included: lambda moves when episodes are played."""
    steps: int = getattr(c, "max_steps", 0)
    passes = (getattr(c, "steps_per_generation", None) or 1) * getattr(c, "num_iterations", 1)
    every = passes // max(1, getattr(c, "gradient_accumulation_steps", 1))  # steps that one generation lasts
    return steps if every < 2 or not steps else (steps - 1) // every * every + 1


# -- T2PO switches of a run: what they need of its policy and tasks, and which of them do nothing here ----------------


def make_t2po(config: T2POConfig) -> T2POConfig | None:
    """The switches that the policy is wrapped with; `None` when all are off (the turn cap is the sampler's own).

    Raises:
        ConfigError: Measurements without and with resampling would be compared.
    """
    if config.turn_resample and config.turn_resample_evaluate and config.turn_resample_eta is None:
        raise ConfigError(
            "turn_resample_evaluate needs turn_resample_eta: a calibrated eta is not known at the first measurements, "
            "so measurements without and with resampling would be compared. Give turn_resample_eta (for example the "
            "one that an earlier run calibrated), or leave turn_resample_evaluate out."
        )
    return replace(config, max_turn_tokens=None) if config.thinks or config.turn_resample else None


def check_t2po(config: T2POConfig | None, tokenizer: Any) -> None:
    """Refuse switches that the model's tokenizer has no tokens for, before the run folder is made.

    Raises:
        ConfigError: With the reason.
    """
    if config is None:
        return
    try:
        T2PO(SimpleNamespace(tokenizer=tokenizer), config)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def idle_settings(
    config: T2POConfig, cap: int, *, greedy_arm: bool, held_out: bool = True, turns: int | None = None
) -> Iterator[str]:
    """Settings that were given and do nothing in this run, one sentence each.

    Args:
        config: The settings.
        cap: Tokens of one reply at most, by the flag and by the tasks' budgets.
        greedy_arm: Held-out tasks are also measured greedily.
        held_out: There are held-out tasks.
        turns: Most turns of an episode, where that is known.
    """
    c = config
    if c.max_turn_tokens is not None and c.max_turn_tokens > cap:
        yield f"max_turn_tokens={c.max_turn_tokens} does nothing: no task allows more than {cap} tokens a turn"
    if c.turn_resample and turns == 1:
        yield "turn_resample does nothing: an episode is one reply here, and only later turns are resampled"
    if not held_out:
        for name in ("think_evaluate", "turn_resample_evaluate"):
            if getattr(c, name):
                yield f"{name} does nothing without held-out tasks"
    yield from idle(c)
    if c.turn_resample and c.turn_resample_signal is Signal.OFFICIAL and cap <= OFFICIAL_SKIP:
        yield (
            f"turn_resample does nothing: turn_resample_signal=official leaves out the first {OFFICIAL_SKIP} tokens of "
            f"a reply, and replies have at most {cap}"
        )
    if c.think_budget is not None and c.think_budget >= cap - c.think_answer_reserve - 1:
        yield (
            f"think_budget={c.think_budget} never acts: of at most {cap} tokens of a reply, "
            f"think_answer_reserve={c.think_answer_reserve} are kept, which closes a block sooner"
        )
    if c.turn_resample and c.turn_resample_evaluate and greedy_arm:
        yield (
            "turn_resample_evaluate does nothing in the greedy held-out arm: turn_resample with greedy sampling would "
            "draw the same reply again"
        )


# ---------------------------------------------------------------------------------------------------------------------
# What is refused before a model loads, and what is said to do nothing: each setting by itself, and those together.


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
        raise no_such_layer(",".join(sorted(targets)), sorted(layers))


def no_such_layer(named: str, known: Sequence[str]) -> ConfigError:
    """The refusal of an adapter for layers that a model does not have."""
    return ConfigError(
        f"lora_target_modules={named}: the model has no such layer. Use all-linear, or of {', '.join(known)}."
    )


def check_processes(config: GiGPOConfig, t2po: T2POConfig | None) -> None:
    """Refuse what cannot be shared by several processes.

    Raises:
        ConfigError: One of the settings.
    """
    if config.world_size > 1 and config.overlap:
        raise ConfigError(
            f"overlap={config.overlap}: {config.world_size} processes would each have to drop and keep the same "
            "generations at the same moment, which is not built. Train in one process, or leave overlap out."
        )
    if config.world_size > 1 and config.gradient_cosine_steps:
        raise ConfigError(
            f"gradient_cosine_steps={config.gradient_cosine_steps}: the second gradient is that of one process alone. "
            "Measure it in a run with one process, or leave it out."
        )
    if config.world_size > 1 and t2po is not None and t2po.turn_resample and t2po.turn_resample_eta is None:
        raise ConfigError(
            "turn_resample_eta: with several processes it must be given. Each would calibrate it on its own turns, and "
            "the attempts of one group would be resampled by different rules. A run with one process prints its eta."
        )
    if config.world_size > 1 and t2po is not None and t2po.turn_resample_run_budget is not None:
        raise ConfigError(
            f"turn_resample_run_budget={t2po.turn_resample_run_budget}: {config.world_size} processes would each spend "
            "it. Use turn_resample_episode_budget, or train in one process."
        )


def _together(c: GiGPOConfig) -> Iterator[str]:
    """One line per setting that cannot work with the others, or here."""
    yield from credit_problems(c)
    yield from c.held_out_problems()
    yield from c.rollout_problems()
    yield from level_problems(c.guards)
    yield from backend_problems(c)
    yield from schedule_problems(c)
    if c.token_budget and c.top_entropy_quantile < 1:
        yield (
            f"micro_batch_tokens={c.micro_batch_tokens} with top_entropy_quantile={c.top_entropy_quantile:g}, which "
            "ranks the tokens of a whole step: no pass has seen them all. Leave one of them out."
        )
    if c.resume and c.overwrite:
        yield "resume and overwrite: one goes on with the run that is there, the other starts anew. Say one of them."
    if c.resume and c.partial_batches:
        yield NO_RESUME
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
