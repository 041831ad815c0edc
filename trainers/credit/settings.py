"""Every setting of credit, and the names that it may take."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tasks.settings import Need, Settings, setting, unless, without
from trainers.credit.episode import EpisodeOperator, EpisodeScale, GTPONorm
from trainers.credit.grouping import TurnGrouping, TurnSignal
from trainers.credit.planning import WINDOW
from trainers.credit.token.signals import TokenSignal
from trainers.credit.turn import SIMILARITY, TurnRevisits

# -- Settings of token operators: how the episode term is shared out over tokens. Off by default ----------------------


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


BUILT_IN = ("sepa", "gtpo", "hicra", "delight", "entropy_mask")
"""Ours, in the order in which they act."""


def named_operators(text: str) -> list[str]:
    """The names in a comma list, as they stand there; none for `none`."""
    named = [part.strip() for part in text.split(",") if part.strip()]
    return [] if named == ["none"] else named


def _reads(*operators: str) -> Need:
    """The need for a token operator that reads the setting."""
    return unless(
        lambda c: not set(operators) & set(named_operators(c.token_operators)),
        f" without token_operators={' or '.join(operators)}",
    )


def follows_schedule(settings: TokenSettings) -> bool:
    """Whether Delight's own blending follows the schedule of lambda."""
    return settings.delight_mode == DelightMode.ANNEALED and settings.delight_lambda is None


_GTPO, _HICRA, _MASK, _DELIGHT = _reads("gtpo"), _reads("hicra"), _reads("entropy_mask"), _reads("delight")
_SEPA = (
    _reads("sepa", "delight"),
    unless(
        lambda c: "sepa" not in named_operators(c.token_operators) and not follows_schedule(c),
        ": delight_mode={c.delight_mode} follows no schedule here",
    ),
)
_AUTO = (*_SEPA, without("sepa_schedule", "auto"))
_RANKS = unless(lambda c: c.delight_mode == DelightMode.HARD, " with delight_mode=hard: it only ranks tokens")
_ADAPTIVE = (_DELIGHT, without("delight_adaptive"))


@dataclass
class TokenSettings(Settings):
    """Token operators and their constants. Source of the defaults: the SEPA study's code, but where one says else."""

    token_operators: str = setting(
        "none",
        f"Weights per token on the episode term (transform_mode): none, or of {', '.join(BUILT_IN)} and yours with "
        "commas.",
        common=True,
    )
    token_signal: TokenSignal = setting(
        TokenSignal.SURPRISAL,
        "What they read (uncertainty_kind): surprisal | predictive_variance | entropy (true entropy, if sampled).",
        choices=TokenSignal,
    )
    gtpo_beta: float = setting(
        0.1, "GTPO: weights lie at or above 1 - beta (0.1 is little).", low=-1, high=1000, needs=(_GTPO,)
    )
    hicra_alpha: float = setting(0.2, "HICRA: gain of planning tokens, 0 to 1.", low=0, high=1, needs=(_HICRA,))
    sepa_mode: SepaMode = setting(
        SepaMode.POOL, "SEPA: pool | amp | amp_clamped.", choices=SepaMode, needs=(*_SEPA, _reads("sepa"))
    )
    sepa_schedule: SepaSchedule = setting(
        SepaSchedule.LINEAR, "Growth of SEPA's lambda: linear | auto (variance).", choices=SepaSchedule, needs=_SEPA
    )
    sepa_steps: int = setting(
        500, "Optimizer steps of the linear ramp; 0: no linear part.", low=0, unit="steps", needs=_SEPA
    )
    sepa_delay: int = setting(
        50, "Optimizer steps before the linear ramp starts (sepa_delay_steps).", low=0, unit="steps", needs=_SEPA
    )
    sepa_gate: float = setting(
        0.1,
        "Share of passed episodes in a generation that lets lambda leave 0 (sepa_correct_rate_gate); 0: no gate.",
        low=0,
        high=1,
        needs=_SEPA,
    )
    sepa_decay: float = setting(0.99, "Auto: decay of the running variance.", low=0, high=1, needs=_AUTO)
    sepa_variance: float = setting(0.2, "Auto: share of the first variance where it starts.", above=0, needs=_AUTO)
    sepa_warmup: int = setting(
        50, "Auto: optimizer steps that make the first variance.", above=0, unit="steps", needs=_AUTO
    )
    entropy_mask_share: float = setting(
        0.2,
        "entropy_mask: share of tokens kept (entropy_mask_rho), exactly.",
        above=0,
        high=1,
        source="Wang et al. 2025",
        needs=(_MASK,),
    )
    entropy_mask_scope: MaskScope = setting(
        MaskScope.GROUP, "Among: group | batch (a generation).", choices=MaskScope, needs=(_MASK,)
    )
    delight_mode: DelightMode = setting(
        DelightMode.SOFT, "Delight: soft | annealed | hard.", choices=DelightMode, needs=(_DELIGHT,)
    )
    delight_norm: DelightNorm = setting(
        DelightNorm.NONE,
        "Signal over its spread in an episode: none | scale | mad.",
        choices=DelightNorm,
        needs=(_DELIGHT, _RANKS),
    )
    delight_eta: float = setting(1.0, "Delight: temperature of the gate.", above=0, needs=(_DELIGHT, _RANKS))
    delight_adaptive: bool = setting(False, "Calibrate the temperature instead.", needs=(_DELIGHT, _RANKS))
    delight_neutral: float = setting(0.5, "Adaptive: share of gates within 0.4 to 0.6.", low=0, high=1, needs=_ADAPTIVE)
    delight_eta_min: float = setting(0.05, "Adaptive: smallest temperature.", above=0, needs=_ADAPTIVE)
    delight_eta_max: float = setting(5.0, "Adaptive: largest temperature.", above=0, needs=_ADAPTIVE)
    delight_eta_decay: float = setting(
        0.8, "Adaptive: decay of the running temperature.", low=0, high=1, needs=_ADAPTIVE
    )
    delight_lambda: float | None = setting(
        None,
        "Fixed share of the gate; default: the sepa_* schedule (annealed), 1 (hard).",
        low=0,
        high=1,
        needs=(_DELIGHT, unless(lambda c: c.delight_mode == DelightMode.SOFT, " with delight_mode=soft")),
    )
    delight_keep: float = setting(
        0.2,
        "Hard: share of an episode's tokens kept.",
        above=0,
        high=1,
        needs=(_DELIGHT, without("delight_mode", "hard")),
    )


# -- Settings of credit: which operators share a reward out over episodes, turns and tokens ---------------------------

_TURNS = (
    unless(lambda c: c.turn_grouping == TurnGrouping.NONE, " with turn_grouping=none"),
    unless(lambda c: c.beta_turn == 0, " with beta_turn=0"),
)
_PUBLISHED_GTPO = (without("episode_operator", "gtpo"),)


@dataclass
class CreditSettings(TokenSettings):
    """Who gets how much of a reward.

    Source: GiGPO (Feng et al. 2025); `beta_turn` 1 as there, and as measured on the quickstart (docs/trainers.md).
    """

    scale_rewards: EpisodeScale = setting(
        EpisodeScale.NONE,
        "What divides the episode term: none | group (GRPO) | batch.",
        choices=EpisodeScale,
        common=True,
    )
    episode_operator: str = setting(
        EpisodeOperator.GRPO.value,
        "The episode term (advantage_mode): grpo | dr_grpo | maxrl | reinforce_pp | discover | gtpo (as published, "
        "per token) | one of your own.",
    )
    gtpo_norm: GTPONorm = setting(
        GTPONorm.SIDES,
        "episode_operator=gtpo, mean and deviation over: sides (passed and failed attempts apart, as published) | "
        "group (together).",
        choices=GTPONorm,
        needs=_PUBLISHED_GTPO,
        recorded=False,
    )
    gtpo_share: float = setting(
        0.1,
        "episode_operator=gtpo: share of a token's reward that goes by its entropy, beside 1 (alpha 2 of the paper).",
        low=0,
        source="Tan et al. 2025",
        needs=(*_PUBLISHED_GTPO, without("gtpo_norm", "group")),
        recorded=False,
    )
    alpha_episode: float = setting(1.0, "Weight of the episode term of the advantage (gigpo_traj_w).", low=0)
    beta_turn: float = setting(
        1.0, "Weight of the turn term of the advantage (gigpo_step_w).", low=0, source="GiGPO", common=True
    )
    turn_grouping: TurnGrouping = setting(
        TurnGrouping.ANCHOR,
        "Which turns are compared: anchor (same state before) | turn_index | similarity (like text) | none.",
        choices=TurnGrouping,
        common=True,
    )
    turn_gamma: float = setting(0.95, "Discount of later turns' signals.", low=0, high=1, source="GiGPO", needs=_TURNS)
    turn_std: bool = setting(False, "Divide turn advantages by their group's deviation.", needs=_TURNS)
    turn_signal: TurnSignal = setting(
        TurnSignal.PROGRESS,
        "What a turn earns by itself: progress (change of the file assertions' rate) | outcome (the episode's reward, "
        "discounted, as in GiGPO) | exit_code.",
        choices=TurnSignal,
        needs=_TURNS,
        common=True,
    )
    turn_similarity: float = setting(
        SIMILARITY,
        "turn_grouping=similarity: how alike two observations must be.",
        above=0,
        high=1,
        source="GiGPO",
        needs=(without("turn_grouping", "similarity"),),
    )
    turn_revisits: TurnRevisits = setting(
        TurnRevisits.ALL,
        "A loop counts in its group: all (every visit) | per_trajectory (once).",
        choices=TurnRevisits,
        needs=_TURNS,
    )
    invalid_action_penalty: float = setting(
        0.0, "Taken off a malformed turn's own value, after discounting (GiGPO uses 0.1).", low=0, needs=_TURNS
    )
    planning: str = setting("default", "Planning tokens: default (18 phrases) | phrases with commas | module:function.")
    planning_window: int = setting(WINDOW, "Tokens of a window that ends with a phrase.", above=0, unit="tokens")
    advantage_cap: float | None = setting(
        None, "Cut final advantages to this size (adv_clip_max); 0: no cap.", off=0.0, above=0
    )
    gradient_cosine_steps: int | None = setting(
        None,
        "Every N steps: cosines of advantages and gradient to those of plain GRPO on the same batch, for one more "
        "pass over its rows; 0: never.",
        off=0,
        above=0,
        unit="steps",
    )

    @property
    def needs_states(self) -> bool:
        """True when turns are compared by the text of the observation before them."""
        return self.turn_grouping is TurnGrouping.SIMILARITY
