"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields, and the defaults of TRL's that are wrong here."""

from __future__ import annotations

from dataclasses import dataclass

from trl import GRPOConfig

from trainers.config.backends import refuse_early
from trainers.config.credit import CreditFields
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.rollouts import RolloutFields
from trainers.config.trl_fields import TRLFields


@dataclass
class GiGPOConfig(CreditFields, HeldOutFields, RolloutFields, GuardFields, TRLFields, GRPOConfig):
    """TRL's GRPO settings with GiGPO credit, held-out selection, rollouts and guards of ours."""

    def __post_init__(self) -> None:
        """Complete the settings as TRL does.

        Raises:
            ValueError: A value does not fit.
        """
        refuse_early(self.deepspeed)
        super().__post_init__()
