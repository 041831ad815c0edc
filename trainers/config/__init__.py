"""What a run is made of: four dataclasses, one YAML file, flags on top.

`GiGPOConfig` is TRL's `GRPOConfig` with our fields (credit, held-out, rollouts, guards: one file each); the other three
say which tasks, which policy and which T2PO switches. `trainers.run.cli` parses them; every field has its help here.
"""

from typing import TYPE_CHECKING, Any

from trainers.config.credit import CreditFields
from trainers.config.environment import EnvArguments
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.policy import PolicyArguments
from trainers.config.rollouts import RolloutFields
from trainers.config.t2po import T2POArguments
from trainers.config.trl_fields import TRLFields

if TYPE_CHECKING:
    from trainers.config.training import GiGPOConfig

__all__ = [
    "CreditFields",
    "EnvArguments",
    "GiGPOConfig",
    "GuardFields",
    "HeldOutFields",
    "PolicyArguments",
    "RolloutFields",
    "T2POArguments",
    "TRLFields",
]


def __getattr__(name: str) -> Any:
    """`GiGPOConfig` at first use: it brings in TRL and torch, which takes seconds, and help text needs neither."""
    if name == "GiGPOConfig":
        from trainers.config.training import GiGPOConfig

        return GiGPOConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
