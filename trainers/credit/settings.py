"""What a run's credit is made of; `trainers.config.CreditFields` explains each setting to people."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainers.credit.episode import EpisodeOperator, EpisodeScale
from trainers.credit.grouping import TurnGrouping
from trainers.credit.planning import WINDOW
from trainers.credit.token import TokenSettings
from trainers.credit.turn import SIMILARITY, TurnRevisits


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Which operators, with which constants; `trainers.config.CreditFields` explains each."""

    episode_scale: EpisodeScale = EpisodeScale.NONE
    episode_operator: EpisodeOperator | str = EpisodeOperator.GRPO
    alpha_episode: float = 1.0
    beta_turn: float = 1.0
    turn_grouping: TurnGrouping = TurnGrouping.ANCHOR
    turn_gamma: float = 0.95
    turn_std: bool = False
    turn_similarity: float = SIMILARITY
    turn_revisits: TurnRevisits = TurnRevisits.ALL
    invalid_action_penalty: float = 0.0
    tokens: TokenSettings = field(default_factory=TokenSettings)
    planning: str = "default"
    planning_window: int = WINDOW
    advantage_cap: float = 0.0

    @property
    def needs_states(self) -> bool:
        """True when turns are compared by the text of the observation before them."""
        return self.turn_grouping is TurnGrouping.SIMILARITY
