"""What training and measuring share: the environments by id, and how many threads torch gets."""

from __future__ import annotations

import os
from typing import Any

from envs.clawgym import ClawGymEnv

ENVIRONMENTS: dict[str, type[ClawGymEnv]] = {"ClawGym-v0": ClawGymEnv}
"""What can be trained and measured."""

SMALL_POLICY = 20_000_000
"""Parameters below which one torch thread is faster than several: on a busy machine two take several times longer."""


def set_threads(model: Any, threads: int) -> None:
    """Give torch `threads` CPU threads; 0 chooses by the size of the model."""
    import torch  # slow, and a scripted policy needs none

    small = sum(p.numel() for p in model.parameters()) < SMALL_POLICY
    torch.set_num_threads(threads or (1 if small else os.cpu_count() or 1))
