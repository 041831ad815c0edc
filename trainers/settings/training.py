"""`GiGPOConfig`: TRL's `GRPOConfig` with our fields, and the defaults of TRL's that are wrong here."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from trl import GRPOConfig

from tasks.settings import problems
from trainers.credit.settings import CreditSettings
from trainers.settings.groups import GuardFields, HeldOutFields, RolloutFields
from trainers.settings.trl_options import INHERITED, TRLFields

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
