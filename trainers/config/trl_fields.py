"""TRL's fields that a run is most often changed by: our help, and our defaults where TRL's are wrong here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class _Range(StrEnum):
    """Where a number may lie; what is no finite number lies nowhere."""

    WEIGHT = "a finite number, 0 or more"
    ABOVE = "a finite number above 0"
    SHARE = "a share above 0, at most 1"
    COUNT = "1 or more"
    DECAY = "0 or more, below 1"
    SEED = "0 or more, below 2**32"

    def holds(self, value: float) -> bool:
        """Whether `value` lies there."""
        if self is _Range.WEIGHT:
            return 0 <= value < math.inf
        if self is _Range.COUNT:
            return value >= 1
        if self in (_Range.DECAY, _Range.SEED):
            return 0 <= value < (1 if self is _Range.DECAY else 2**32)
        return 0 < value <= 1 if self is _Range.SHARE else 0 < value < math.inf


_RANGES = {
    **dict.fromkeys(("beta", "learning_rate", "weight_decay", "warmup_steps"), _Range.WEIGHT),
    **dict.fromkeys(("epsilon", "epsilon_high", "max_grad_norm", "dataloader_num_workers"), _Range.WEIGHT),
    **dict.fromkeys(("entropy_coef", "entropy_coef_delta", "entropy_coef_min", "entropy_coef_max"), _Range.WEIGHT),
    **dict.fromkeys(("adam_epsilon", "delta", "off_policy_mask_threshold"), _Range.ABOVE),
    **dict.fromkeys(("sapo_temperature_pos", "sapo_temperature_neg"), _Range.ABOVE),
    "top_entropy_quantile": _Range.SHARE,
    "num_iterations": _Range.COUNT,
    **dict.fromkeys(("adam_beta1", "adam_beta2"), _Range.DECAY),
    "seed": _Range.SEED,
}
COUNTS = ("num_generations", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation")
"""Sizes that TRL divides by while it reads the settings."""


def refuse_counts(config: Any) -> None:
    """Refuse sizes below 1 before TRL reads them, and steps that it would take for others.

    Raises:
        ValueError: One line per size.
    """
    given = {name: getattr(config, name, None) for name in COUNTS}
    wrong = [f"{name}={value}: {_Range.COUNT}." for name, value in given.items() if value is not None and value < 1]
    if config.eval_strategy == "steps" and config.eval_steps is not None and not 0 < config.eval_steps < math.inf:
        wrong.append(f"eval_steps={config.eval_steps}: above 0; to measure nothing before the end: eval_strategy=no.")
    if wrong:
        raise ValueError("\n".join(wrong))


@dataclass
class TRLFields:
    """What TRL's own settings are here.

    Sources of the optimizer's defaults: `adam_epsilon` 1e-5 with 30 steps of warm-up are those of the good runs of the
    RLVR notes (learning rates 1e-6 to 1e-5); the quickstart, whose recipe was measured with other ones, pins its own.
    """

    output_dir: str = field(default="runs/run", metadata={"help": "The run folder; refused when occupied."})
    resume: bool = field(
        default=False, metadata={"help": "Continue in an occupied `output_dir` from its last checkpoint (or start)."}
    )
    overwrite: bool = field(
        default=False,
        metadata={"help": "Start anew where a run is; the old folder is kept as `<output_dir>.replaced-<n>`."},
    )
    save_trajectories: bool = field(default=True, metadata={"help": "Write every training episode to the run folder."})
    seed: int = field(default=42, metadata={"help": "Seeds tasks, sampling and new weights: same seed, same run."})

    max_steps: int = field(default=100, metadata={"help": "Optimizer steps."})
    num_generations: int = field(default=8, metadata={"help": "K: attempts at each task of a step, 2 or more."})
    per_device_train_batch_size: int = field(
        default=8, metadata={"help": "Episodes of one forward and backward pass: it decides the memory that is needed."}
    )
    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "Passes before an optimizer step; a step has this many times the batch size."}
    )
    learning_rate: float = field(default=1e-5, metadata={"help": "Peak rate; 1e-5 suits LoRA, all weights want less."})
    lr_scheduler_type: str = field(
        default="linear", metadata={"help": "linear | constant_with_warmup | constant (no warm-up) | cosine."}
    )
    warmup_steps: float = field(default=30, metadata={"help": "Steps over which the rate rises from 0 to its peak."})
    adam_epsilon: float = field(
        default=1e-5, metadata={"help": "Adam's epsilon: at 1e-5 a weight whose gradient is all noise hardly moves."}
    )
    temperature: float = field(default=1.0, metadata={"help": "Of the sampling that is trained on."})
    beta: float = field(
        default=0.0,
        metadata={"help": "Weight of the KL (k3) from where the run started; 0 keeps no reference in memory."},
    )
    scale_rewards: str = field(
        default="none", metadata={"help": "What divides the episode term: none | group (GRPO) | batch."}
    )
    loss_type: str = field(default="dapo", metadata={"help": "dapo | grpo | bnpo | dr_grpo | cispo | sapo | luspo."})
    eval_steps: float | None = field(default=10, metadata={"help": "Held-out evaluation every N steps."})
    save_steps: float = field(default=10, metadata={"help": "Checkpoint every N steps."})

    # TRL's defaults that are wrong here, each with its reason.
    num_generations_eval: int | None = field(default=1, metadata={"help": "Not used: held-out has its own rule."})
    bf16: bool | None = field(
        default=False,
        metadata={"help": "Autocast: always refused, sampled and trained log-probabilities would differ; see dtype."},
    )
    disable_dropout: bool = field(default=True, metadata={"help": "Dropout makes sampled and trained ids disagree."})
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Slower, less memory."})
    logging_steps: float = field(default=1, metadata={"help": "Log every N steps."})
    shuffle_dataset: bool | None = field(default=True, metadata={"help": "Draw tasks in a seeded random order."})
    eval_strategy: str = field(default="steps", metadata={"help": "Held-out evaluation: steps | no."})
    eval_on_start: bool = field(default=True, metadata={"help": "Measure the step-0 baseline; it competes for best."})
    save_strategy: str = field(default="steps", metadata={"help": "Checkpoints for --resume: steps | no."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept; `best/` is outside of it."})

    def trl_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        for name, kind in _RANGES.items():
            value = getattr(self, name, None)
            if value is not None and not kind.holds(value):
                yield f"{name}={value}: {kind}."

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
