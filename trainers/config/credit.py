"""Settings of credit: which operators share a reward out over episodes, turns and tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields

from trainers.config.token_credit import TokenCreditFields
from trainers.credit import CreditSettings, EpisodeOperator, EpisodeScale, TurnGrouping, TurnRevisits, TurnSignal
from trainers.credit.episode import episode_operator
from trainers.credit.turn import SIMILARITY

_SCALED_BY_ITSELF = {
    EpisodeOperator.DR_GRPO: "Dr. GRPO divides by nothing",
    EpisodeOperator.MAXRL: "MaxRL divides by the group's mean",
    EpisodeOperator.REINFORCE_PP: "REINFORCE++ normalises over the step itself",
    EpisodeOperator.DISCOVER: "its size is set by its own divergence",
}


DETAILS = frozenset(
    {f.name for f in fields(TokenCreditFields) if f.name != "token_operators"} | {"turn_similarity", "turn_revisits"}
)
"""Settings that `--help-all` and docs/credit.md are enough for."""


@dataclass
class CreditFields(TokenCreditFields):
    """Who gets how much of a reward.

    Source: GiGPO (Feng et al. 2025); `beta_turn` 1 as there, and as measured on the quickstart (docs/trainers.md).
    """

    episode_operator: str = field(
        default=EpisodeOperator.GRPO.value,
        metadata={"help": "The episode term: grpo | dr_grpo | maxrl | reinforce_pp | discover | one of your own."},
    )
    alpha_episode: float = field(default=1.0, metadata={"help": "Weight of the episode term of the advantage."})
    beta_turn: float = field(default=1.0, metadata={"help": "Weight of the turn term of the advantage."})
    turn_grouping: str = field(
        default=TurnGrouping.ANCHOR.value,
        metadata={
            "help": "Which turns are compared: anchor (same state before) | turn_index | similarity (like text) | none."
        },
    )
    turn_gamma: float = field(default=0.95, metadata={"help": "Discount of later turns' signals."})
    turn_std: bool = field(default=False, metadata={"help": "Divide turn advantages by their group's deviation."})
    turn_signal: str = field(
        default=TurnSignal.PROGRESS.value,
        metadata={
            "help": "What a turn earns by itself: progress (change of the file assertions' rate) | outcome (the "
            "episode's reward, discounted, as in GiGPO) | exit_code."
        },
    )
    turn_similarity: float = field(
        default=SIMILARITY, metadata={"help": "turn_grouping=similarity: how alike two observations must be (GiGPO)."}
    )
    turn_revisits: str = field(
        default=TurnRevisits.ALL.value,
        metadata={"help": "A loop counts in its group: all (every visit) | per_trajectory (once)."},
    )
    invalid_action_penalty: float = field(
        default=0.0, metadata={"help": "Taken off a malformed turn's own value, after discounting (GiGPO uses 0.1)."}
    )

    def credit_settings(self) -> CreditSettings:
        """The same settings as the operators take them; `scale_rewards` is TRL's own field."""
        return CreditSettings(
            episode_scale=EpisodeScale(getattr(self, "scale_rewards", EpisodeScale.NONE)),
            episode_operator=episode_operator(self.episode_operator),
            alpha_episode=self.alpha_episode,
            beta_turn=self.beta_turn,
            turn_grouping=TurnGrouping(self.turn_grouping),
            turn_gamma=self.turn_gamma,
            turn_std=self.turn_std,
            turn_similarity=self.turn_similarity,
            turn_revisits=TurnRevisits(self.turn_revisits),
            invalid_action_penalty=self.invalid_action_penalty,
            tokens=self.token_settings(),
            planning=self.planning,
            planning_window=self.planning_window,
            advantage_cap=self.advantage_cap,
        )

    def credit_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        for name, choices in (
            ("turn_grouping", TurnGrouping),
            ("turn_signal", TurnSignal),
            ("turn_revisits", TurnRevisits),
        ):
            if getattr(self, name) not in tuple(choices):
                yield f"{name}={getattr(self, name)!r}: one of {', '.join(choices)}."
        reason = _SCALED_BY_ITSELF.get(self.episode_operator)  # type: ignore[call-overload]
        try:
            if not isinstance(episode_operator(self.episode_operator), EpisodeOperator):
                reason = "one of your own divides by itself"
        except ValueError as error:
            yield f"episode_operator={self.episode_operator!r}: {error}."
        for name in ("alpha_episode", "beta_turn"):
            if not 0 <= getattr(self, name) < math.inf:
                yield f"{name}={getattr(self, name)}: a weight, 0 or more."
        if self.alpha_episode == 0 and (self.beta_turn == 0 or self.turn_grouping == TurnGrouping.NONE):
            yield "alpha_episode=0 without a turn term: every advantage would be 0 and nothing could be learned."
        if not 0.0 <= self.turn_gamma <= 1.0:
            yield f"turn_gamma={self.turn_gamma}: a discount lies between 0 and 1."
        if not 0.0 < self.turn_similarity <= 1.0:
            yield f"turn_similarity={self.turn_similarity}: above 0 and at most 1 (equal text)."
        if not 0 <= self.invalid_action_penalty < math.inf:
            yield f"invalid_action_penalty={self.invalid_action_penalty}: 0 or more; it is taken off."
        scale = getattr(self, "scale_rewards", EpisodeScale.NONE)
        if reason and scale != EpisodeScale.NONE:
            yield (
                f"scale_rewards={scale} with episode_operator={self.episode_operator}: {reason}. Use "
                "scale_rewards=none, or episode_operator=grpo."
            )
        yield from self.token_problems()
