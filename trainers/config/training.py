"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields, and the defaults of TRL's that are wrong here."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

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


def _broken_json(value: Any) -> bool:
    """Whether a setting is meant as a JSON object and is none."""
    if not isinstance(value, str) or not value.startswith("{"):
        return False
    try:
        json.loads(value)
    except ValueError:
        return True
    return False
