"""Settings of token operators: how the episode term is shared out over tokens. Off by default."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainers.credit import Planning
from trainers.credit.planning import WINDOW
from trainers.credit.token import (
    OPERATORS,
    DelightMode,
    DelightNorm,
    MaskScope,
    SepaMode,
    SepaSchedule,
    TokenSettings,
    TokenSignal,
    operator_names,
)


@dataclass
class TokenCreditFields:
    """Token operators and their constants. Source of the defaults: the SEPA study's code, but where one says else."""

    token_operators: str = field(
        default="none",
        metadata={
            "help": f"Weights per token on the episode term: none, or of {', '.join(OPERATORS)} and yours with commas."
        },
    )
    token_signal: str = field(
        default=TokenSignal.SURPRISAL.value,
        metadata={"help": "What they read: surprisal | predictive_variance | entropy (true entropy, if sampled)."},
    )
    gtpo_beta: float = field(default=0.1, metadata={"help": "GTPO: weights lie at or above 1 - beta (0.1 is little)."})
    hicra_alpha: float = field(default=0.2, metadata={"help": "HICRA: gain of planning tokens, 0 to 1."})
    sepa_mode: str = field(default=SepaMode.POOL.value, metadata={"help": "SEPA: pool | amp | amp_clamped."})
    sepa_schedule: str = field(
        default=SepaSchedule.LINEAR.value, metadata={"help": "Growth of SEPA's lambda: linear | auto (variance)."}
    )
    sepa_steps: int = field(default=500, metadata={"help": "Optimizer steps of the linear ramp; 0: no linear part."})
    sepa_delay: int = field(default=50, metadata={"help": "Optimizer steps before the linear ramp starts."})
    sepa_gate: float = field(
        default=0.1, metadata={"help": "Share of passed episodes in a generation that lets lambda leave 0; 0: no gate."}
    )
    sepa_decay: float = field(default=0.99, metadata={"help": "Auto: decay of the running variance."})
    sepa_variance: float = field(default=0.2, metadata={"help": "Auto: share of the first variance where it starts."})
    sepa_warmup: int = field(default=50, metadata={"help": "Auto: optimizer steps that make the first variance."})
    entropy_mask_share: float = field(
        default=0.2, metadata={"help": "entropy_mask: share of tokens kept, exactly (Wang et al. 2025 use 0.2)."}
    )
    entropy_mask_scope: str = field(
        default=MaskScope.GROUP.value, metadata={"help": "Among: group | batch (a generation)."}
    )
    delight_mode: str = field(default=DelightMode.SOFT.value, metadata={"help": "Delight: soft | annealed | hard."})
    delight_norm: str = field(
        default=DelightNorm.NONE.value, metadata={"help": "Signal over its spread in an episode: none | scale | mad."}
    )
    delight_eta: float = field(default=1.0, metadata={"help": "Delight: temperature of the gate."})
    delight_adaptive: bool = field(default=False, metadata={"help": "Calibrate the temperature instead."})
    delight_neutral: float = field(default=0.5, metadata={"help": "Adaptive: share of gates within 0.4 to 0.6."})
    delight_eta_min: float = field(default=0.05, metadata={"help": "Adaptive: smallest temperature."})
    delight_eta_max: float = field(default=5.0, metadata={"help": "Adaptive: largest temperature."})
    delight_eta_decay: float = field(default=0.8, metadata={"help": "Adaptive: decay of the running temperature."})
    delight_lambda: float | None = field(
        default=None,
        metadata={"help": "Fixed share of the gate; default: the sepa_* schedule (annealed), 1 (hard)."},
    )
    delight_keep: float = field(default=0.2, metadata={"help": "Hard: share of an episode's tokens kept."})
    planning: str = field(
        default="default",
        metadata={"help": "Planning tokens: default (18 phrases) | phrases with commas | module:function."},
    )
    planning_window: int = field(default=WINDOW, metadata={"help": "Tokens of a window that ends with a phrase."})
    advantage_cap: float = field(default=0.0, metadata={"help": "Cut final advantages to this size; 0: no cap."})

    def token_settings(self) -> TokenSettings:
        """The same settings as the operators take them."""
        return TokenSettings(
            operators=operator_names(self.token_operators),
            signal=TokenSignal(self.token_signal),
            gtpo_beta=self.gtpo_beta,
            hicra_alpha=self.hicra_alpha,
            sepa_mode=SepaMode(self.sepa_mode),
            sepa_schedule=SepaSchedule(self.sepa_schedule),
            sepa_steps=self.sepa_steps,
            sepa_delay=self.sepa_delay,
            sepa_gate=self.sepa_gate,
            sepa_decay=self.sepa_decay,
            sepa_variance=self.sepa_variance,
            sepa_warmup=self.sepa_warmup,
            mask_share=self.entropy_mask_share,
            mask_scope=MaskScope(self.entropy_mask_scope),
            delight_mode=DelightMode(self.delight_mode),
            delight_norm=DelightNorm(self.delight_norm),
            delight_eta=self.delight_eta,
            delight_adaptive=self.delight_adaptive,
            delight_neutral=self.delight_neutral,
            delight_eta_min=self.delight_eta_min,
            delight_eta_max=self.delight_eta_max,
            delight_eta_decay=self.delight_eta_decay,
            delight_lambda=self.delight_lambda,
            delight_keep=self.delight_keep,
        )

    def token_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        try:
            operator_names(self.token_operators)
        except ValueError as error:
            yield f"token_operators={self.token_operators!r}: {error}."
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in tuple(choices):
                yield f"{name}={value!r}: one of {', '.join(choices)}."
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                yield f"{name}={value}: it lies between {low:g} and {high:g}."
        for name in _ABOVE_ZERO:
            if not 0 < getattr(self, name) < math.inf:
                yield f"{name}={getattr(self, name)}: it must be above 0."
        for name in ("sepa_steps", "sepa_delay", "advantage_cap"):
            if not 0 <= getattr(self, name) < math.inf:
                yield f"{name}={getattr(self, name)}: 0 or more."
        if self.delight_eta_min > self.delight_eta_max:
            yield f"delight_eta_min={self.delight_eta_min} is above delight_eta_max={self.delight_eta_max}."
        try:
            _ = Planning(self.planning, self.planning_window).detector
        except ValueError as error:
            yield f"planning={self.planning!r}: {error}."


_CHOICES = {
    "token_signal": TokenSignal,
    "sepa_mode": SepaMode,
    "sepa_schedule": SepaSchedule,
    "entropy_mask_scope": MaskScope,
    "delight_mode": DelightMode,
    "delight_norm": DelightNorm,
}
_RANGES: dict[str, tuple[float, float]] = {
    "gtpo_beta": (-1.0, 1e3),
    "hicra_alpha": (0.0, 1.0),
    "sepa_gate": (0.0, 1.0),
    "sepa_decay": (0.0, 1.0),
    "delight_neutral": (0.0, 1.0),
    "delight_eta_decay": (0.0, 1.0),
    "delight_lambda": (0.0, 1.0),
    "entropy_mask_share": (0.0, 1.0),
    "delight_keep": (0.0, 1.0),
}
_ABOVE_ZERO = (
    "sepa_variance",
    "sepa_warmup",
    "entropy_mask_share",
    "delight_keep",
    "delight_eta",
    "delight_eta_min",
    "delight_eta_max",
    "planning_window",
)
