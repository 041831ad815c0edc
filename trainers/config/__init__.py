"""What a run is made of: four dataclasses, one YAML file, flags on top.

`GiGPOConfig` is TRL's `GRPOConfig` with our fields (credit, held-out, rollouts, guards: one file each); the other three
say which tasks, which policy and which T2PO switches. `trainers.run.cli` parses them; every field has its help here.
"""

from trainers.config.credit import CreditFields
from trainers.config.environment import EnvArguments
from trainers.config.guards import GuardFields
from trainers.config.held_out import HeldOutFields
from trainers.config.policy import PolicyArguments
from trainers.config.rollouts import RolloutFields
from trainers.config.t2po import T2POArguments
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
]
