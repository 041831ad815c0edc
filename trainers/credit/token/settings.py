"""The constants of token operators; `trainers.config.CreditFields` explains each to people."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainers.credit.token.signals import TokenSignal


class SepaMode(StrEnum):
    """What SEPA does to the signal of execution tokens."""

    POOL = "pool"
    """Moves it towards the execution tokens' mean."""
    AMP = "amp"
    """Moves it away from the mean; it may become negative."""
    AMP_CLAMPED = "amp_clamped"
    """The same, at least 0."""


class SepaSchedule(StrEnum):
    """How lambda grows."""

    LINEAR = "linear"
    """From 0 after `delay` optimizer steps to 1 after `delay + steps`."""
    AUTO = "auto"
    """As the variance of the execution signal falls below its first value; at least the linear value."""


class MaskScope(StrEnum):
    """Among which tokens the most uncertain share is chosen."""

    GROUP = "group"
    """The K episodes of a task."""
    BATCH = "batch"
    """All episodes of a generation."""


class DelightMode(StrEnum):
    """How Delight gates tokens."""

    SOFT = "soft"
    """A sigmoid of advantage times signal."""
    ANNEALED = "annealed"
    """The same, blended in by lambda."""
    HARD = "hard"
    """The most surprising tokens of a good episode, the least surprising of a bad one."""


class DelightNorm(StrEnum):
    """What divides the signal within an episode before Delight reads it."""

    NONE = "none"
    SCALE = "scale"
    """Its standard deviation."""
    MAD = "mad"
    """1.4826 times its median absolute deviation, or the standard deviation where that is 0."""


@dataclass(frozen=True, slots=True)
class TokenSettings:
    """Which token operators, with which constants."""

    operators: tuple[str, ...] = ()
    signal: TokenSignal = TokenSignal.SURPRISAL
    gtpo_beta: float = 0.1
    hicra_alpha: float = 0.2
    sepa_mode: SepaMode = SepaMode.POOL
    sepa_schedule: SepaSchedule = SepaSchedule.LINEAR
    sepa_steps: int = 500
    sepa_delay: int = 50
    sepa_gate: float = 0.1
    sepa_decay: float = 0.99
    sepa_variance: float = 0.2
    sepa_warmup: int = 50
    mask_share: float = 0.2
    mask_scope: MaskScope = MaskScope.GROUP
    delight_mode: DelightMode = DelightMode.SOFT
    delight_norm: DelightNorm = DelightNorm.NONE
    delight_eta: float = 1.0
    delight_adaptive: bool = False
    delight_neutral: float = 0.5
    delight_eta_min: float = 0.05
    delight_eta_max: float = 5.0
    delight_eta_decay: float = 0.8
    delight_lambda: float | None = None
    delight_keep: float = 0.2
