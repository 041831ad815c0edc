"""Settings of credit: which operators share a reward out over episodes, turns and tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from trainers.credit import CreditSettings, EpisodeScale, TurnGrouping, TurnSignal


@dataclass
class CreditFields:
    """Who gets how much of a reward. Source: GiGPO (Feng et al. 2025); `beta_turn` 0.3 from our own runs."""

    alpha_episode: float = field(default=1.0, metadata={"help": "Weight of the episode term of the advantage."})
    beta_turn: float = field(default=0.3, metadata={"help": "Weight of the turn term of the advantage."})
    turn_grouping: str = field(
        default=TurnGrouping.ANCHOR.value,
        metadata={"help": "Which turns are compared: anchor (same state before) | turn_index | none."},
    )
    turn_gamma: float = field(default=0.95, metadata={"help": "Discount of later turns' signals."})
    turn_std: bool = field(default=False, metadata={"help": "Divide turn advantages by their group's deviation."})
    turn_signal: str = field(
        default=TurnSignal.PROGRESS.value,
        metadata={"help": "What a turn earns by itself: progress (change of the file assertions' rate) | exit_code."},
    )

    def credit_settings(self) -> CreditSettings:
        """The same settings as the operators take them; `scale_rewards` is TRL's own field."""
        return CreditSettings(
            episode_scale=EpisodeScale(getattr(self, "scale_rewards", EpisodeScale.NONE)),
            alpha_episode=self.alpha_episode,
            beta_turn=self.beta_turn,
            turn_grouping=TurnGrouping(self.turn_grouping),
            turn_gamma=self.turn_gamma,
            turn_std=self.turn_std,
        )

    def credit_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        if self.turn_grouping not in tuple(TurnGrouping):
            yield f"turn_grouping={self.turn_grouping!r}: one of {', '.join(TurnGrouping)}."
        if self.turn_signal not in tuple(TurnSignal):
            yield f"turn_signal={self.turn_signal!r}: one of {', '.join(TurnSignal)}."
        if self.alpha_episode == 0 and (self.beta_turn == 0 or self.turn_grouping == TurnGrouping.NONE):
            yield "alpha_episode=0 without a turn term: every advantage would be 0 and nothing could be learned."
        if not 0.0 <= self.turn_gamma <= 1.0:
            yield f"turn_gamma={self.turn_gamma}: a discount lies between 0 and 1."
