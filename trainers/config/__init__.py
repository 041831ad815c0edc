"""What a run is made of: dataclasses of settings, one YAML file, flags on top.

`GiGPOConfig` is TRL's `GRPOConfig` with our fields (credit, held-out, rollouts, guards: one file each); the
others say which tasks, which policy and which T2PO switches (`agents.t2po.T2POConfig`). `trainers.run.cli` parses them;
`tasks.settings` says what a field declares.
"""

from typing import TYPE_CHECKING, Any

from trainers.config.environment import EnvArguments
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.policy import PolicyArguments
from trainers.config.rollouts import RolloutFields
from trainers.config.trl_fields import TRLFields
from trainers.credit.settings import CreditSettings

if TYPE_CHECKING:
    from trainers.config.training import GiGPOConfig

__all__ = [
    "CreditSettings",
    "EnvArguments",
    "GiGPOConfig",
    "GuardFields",
    "HeldOutFields",
    "PolicyArguments",
    "RolloutFields",
    "TRLFields",
]


def __getattr__(name: str) -> Any:
    """`GiGPOConfig` at first use: it brings in TRL and torch, which takes seconds, and help text needs neither."""
    if name == "GiGPOConfig":
        from trainers.config.training import GiGPOConfig

        return GiGPOConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
