"""Settings of credit: which operators share a reward out over episodes, turns and tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.settings import setting, unless, without
from trainers.credit.episode import EpisodeOperator, EpisodeScale
from trainers.credit.grouping import TurnGrouping, TurnSignal
from trainers.credit.planning import WINDOW
from trainers.credit.token.settings import TokenSettings
from trainers.credit.turn import SIMILARITY, TurnRevisits

_TURNS = (
    unless(lambda c: c.turn_grouping == TurnGrouping.NONE, " with turn_grouping=none"),
    unless(lambda c: c.beta_turn == 0, " with beta_turn=0"),
)


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
        "The episode term: grpo | dr_grpo | maxrl | reinforce_pp | discover | one of your own.",
    )
    alpha_episode: float = setting(1.0, "Weight of the episode term of the advantage.", low=0, common=True)
    beta_turn: float = setting(1.0, "Weight of the turn term of the advantage.", low=0, source="GiGPO", common=True)
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
    advantage_cap: float | None = setting(None, "Cut final advantages to this size; 0: no cap.", off=0.0, above=0)

    @property
    def needs_states(self) -> bool:
        """True when turns are compared by the text of the observation before them."""
        return self.turn_grouping is TurnGrouping.SIMILARITY
