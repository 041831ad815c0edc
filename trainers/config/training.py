"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields, and the defaults of TRL's that are wrong here."""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import GRPOConfig

from trainers.config.credit import CreditFields
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.rollouts import RolloutFields


@dataclass
class GiGPOConfig(CreditFields, HeldOutFields, RolloutFields, GuardFields, GRPOConfig):
    """TRL's GRPO settings with GiGPO credit, held-out selection, rollouts and guards of ours."""

    output_dir: str = field(default="runs/run", metadata={"help": "The run folder; refused when occupied."})
    resume: bool = field(
        default=False, metadata={"help": "Continue in an occupied `output_dir` from its last checkpoint (or start)."}
    )
    save_trajectories: bool = field(default=True, metadata={"help": "Write every training episode to the run folder."})

    # TRL's defaults that are wrong here, each with its reason.
    max_steps: int = field(default=100, metadata={"help": "Optimizer steps."})
    learning_rate: float = field(default=1e-5, metadata={"help": "Peak rate; 1e-5 suits LoRA, all weights want less."})
    num_generations_eval: int | None = field(default=1, metadata={"help": "Not used: held-out has its own rule."})
    scale_rewards: str = field(
        default="none", metadata={"help": "What divides the episode term: none | group (GRPO) | batch."}
    )
    bf16: bool | None = field(
        default=False,
        metadata={"help": "Autocast in training only: sampled and trained log-probabilities then differ by ~0.03."},
    )
    disable_dropout: bool = field(default=True, metadata={"help": "Dropout makes sampled and trained ids disagree."})
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Slower, less memory."})
    logging_steps: float = field(default=1, metadata={"help": "Log every N steps."})
    shuffle_dataset: bool | None = field(default=True, metadata={"help": "Draw tasks in a seeded random order."})
    eval_strategy: str = field(default="steps", metadata={"help": "Held-out evaluation: steps | no."})
    eval_on_start: bool = field(default=True, metadata={"help": "Measure the step-0 baseline; it competes for best."})
    eval_steps: float | None = field(default=10, metadata={"help": "Held-out evaluation every N steps."})
    save_strategy: str = field(default="steps", metadata={"help": "Checkpoints for --resume: steps | no."})
    save_steps: float = field(default=10, metadata={"help": "Checkpoint every N steps."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept; `best/` is outside of it."})
    loss_type: str = field(default="dapo", metadata={"help": "dapo | grpo | bnpo | dr_grpo | cispo | sapo | luspo."})
