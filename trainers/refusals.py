"""TRL options that cannot hold per-token advantages or exact sampling: refused with the reason, before a model loads.

Found by comparing gradients with token advantages against their row means (an option under which both give the same
gradient has silently lost the credit), and by reading which options change what was sampled.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainers.config import GiGPOConfig
from trainers.credit import EpisodeScale, TurnGrouping


class ConfigError(ValueError):
    """A setting that cannot work; the message names it and the remedy."""


def check_config(config: GiGPOConfig) -> None:
    """Refuse what cannot work.

    Raises:
        ConfigError: One line per setting that is refused.
    """
    problems = list(_problems(config))
    if problems:
        raise ConfigError("\n".join(problems))


def _problems(c: GiGPOConfig) -> Iterator[str]:
    if c.importance_sampling_level != "token":
        yield (
            f"importance_sampling_level={c.importance_sampling_level!r}: the gradient then sees only the mean "
            "advantage of a sequence and turn credit is lost. Use 'token'."
        )
    if c.loss_type in ("vespo",):
        yield "loss_type='vespo': its weights are meant per sequence. Use 'dapo', 'grpo', 'dr_grpo', 'bnpo' or 'cispo'."
    if c.mask_truncated_completions:
        yield "mask_truncated_completions: it looks at the last id only, which a turn cap makes wrong. Leave it off."
    if c.top_p != 1.0 or c.top_k not in (0, None) or c.min_p is not None:
        yield "top_p, top_k, min_p: training log-probabilities cover the whole vocabulary. Only temperature can be set."
    if c.repetition_penalty != 1.0:
        yield "repetition_penalty: it changes what is sampled and not what is trained. Leave it at 1."
    if c.use_vllm:
        yield "use_vllm: sampling runs in process in this version. Leave it off."
    if c.use_transformers_continuous_batching or c.use_transformers_paged:
        yield "continuous batching: it casts the training weights in place. Leave it off."
    if c.bf16 or c.fp16:
        yield (
            "bf16/fp16 autocast: sampling runs without it, so sampled and trained log-probabilities would differ. "
            "Leave them off and choose the weights' type with dtype."
        )
    if c.temperature <= 0:
        yield f"temperature={c.temperature}: training samples, so it must be above 0 (held-out has its own greedy arm)."
    if c.num_generations is None or c.num_generations < 2:
        yield f"num_generations={c.num_generations}: a group of one has nothing to be compared with. Use 2 or more."
    yield from _choices(c)
    yield from _steps(c)


def _choices(c: GiGPOConfig) -> Iterator[str]:
    if c.turn_grouping not in tuple(TurnGrouping):
        yield f"turn_grouping={c.turn_grouping!r}: one of {', '.join(TurnGrouping)}."
    if c.scale_rewards not in tuple(EpisodeScale):
        yield f"scale_rewards={c.scale_rewards!r}: one of {', '.join(EpisodeScale)}."
    if c.alpha_episode == 0 and (c.beta_turn == 0 or c.turn_grouping == TurnGrouping.NONE):
        yield "alpha_episode=0 without a turn term: every advantage would be 0 and nothing could be learned."
    settings = ["sampled"] + (["greedy"] if c.held_out_greedy else [])
    figures = ["pass_rate", "assertion_rate", "reward"]
    known = [f"{setting}_{figure}" for setting in settings for figure in figures]
    if c.best_metric not in known:
        yield f"best_metric={c.best_metric!r}: one of {', '.join(known)}."
    if not 0.0 <= c.turn_gamma <= 1.0:
        yield f"turn_gamma={c.turn_gamma}: a discount lies between 0 and 1."
    if c.load_best_model_at_end:
        yield "load_best_model_at_end: `best/` already holds the best held-out weights. Leave it off."


def _steps(c: GiGPOConfig) -> Iterator[str]:
    generate_every = (c.steps_per_generation or 1) * c.num_iterations
    if c.save_strategy == "steps" and (c.save_steps < 1 or int(c.save_steps) != c.save_steps):
        yield f"save_steps={c.save_steps}: a whole number of steps."
    elif c.save_strategy == "steps" and (int(c.save_steps) * c.gradient_accumulation_steps) % generate_every:
        yield (
            f"save_steps={int(c.save_steps)}: a checkpoint in the middle of a generation cycle cannot be resumed "
            f"exactly. Use a multiple of {generate_every} micro-steps / {c.gradient_accumulation_steps} accumulation."
        )
