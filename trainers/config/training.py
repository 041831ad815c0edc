"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields, and the defaults of TRL's that are wrong here."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from trl import GRPOConfig

from trainers.config.backends import refuse_early
from trainers.config.credit import CreditFields
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.rollouts import RolloutFields
from trainers.config.trl_fields import TRLFields, refuse_counts


@dataclass
class GiGPOConfig(CreditFields, HeldOutFields, RolloutFields, GuardFields, TRLFields, GRPOConfig):
    """TRL's GRPO settings with GiGPO credit, held-out selection, rollouts and guards of ours."""

    def __post_init__(self) -> None:
        """Complete the settings as TRL does.

        Raises:
            ValueError: A value does not fit.
        """
        asked = next((name for name in ("bf16", "fp16") if getattr(self, name)), "")
        refuse_early(self.deepspeed, autocast="" if self.use_cpu or torch.cuda.is_available() else asked)
        refuse_counts(self)
        super().__post_init__()
