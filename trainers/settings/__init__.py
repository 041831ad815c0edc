"""What a run is made of: dataclasses of settings, one YAML file, flags on top.

`GiGPOConfig` is TRL's `GRPOConfig` with our fields (credit, held-out, rollouts, guards: one file each); the others say
which tasks, which policy and which T2PO switches (`agents.t2po.T2POConfig`). `parsing` reads flags and files;
`tasks.settings` says what a field declares.
"""

from typing import TYPE_CHECKING, Any

from trainers.credit.settings import CreditSettings
from trainers.settings.groups import EnvArguments, GuardFields, HeldOutFields, PolicyArguments
from trainers.settings.rollouts import RolloutFields
from trainers.settings.training import TRLFields

if TYPE_CHECKING:
    from trainers.settings.gigpo_config import GiGPOConfig


def __getattr__(name: str) -> Any:
    """`GiGPOConfig` at first use: it brings in TRL and torch, which takes seconds, and help text needs neither."""
    if name == "GiGPOConfig":
        from trainers.settings.gigpo_config import GiGPOConfig

        return GiGPOConfig
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
