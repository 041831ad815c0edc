"""The whole of credit: one step's episodes in, one advantage per token out, with what it did as metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.credit.combine import combine
from trainers.credit.episode import EpisodeScale, episode_advantages
from trainers.credit.turn import TurnGrouping, TurnRecord, turn_advantages

NO_TURN = -1
"""Turn id of a token that no turn sampled (environment, template, forced, padding)."""


@dataclass(frozen=True, slots=True)
class CreditBatch:
    """The episodes of one step, of all processes, the K of a task side by side.

    Attributes:
        rewards: One per episode; `None` for one without a reward (infrastructure failure).
        turns: What each turn brings; an empty list for an episode that does not count.
        turn_ids: Shape (B, T): the turn that sampled a token, `NO_TURN` elsewhere.
        group_size: K.
        logprobs: Shape (B, T), natural logarithms under the sampling distribution; only read where a turn sampled.
        entropies: Shape (B, T), nats, of the full distribution; `None` where the sampler has only bounds.
        tokens: Text of every token, for planning masks; `None` unless `Credit.needs_tokens`.
    """

    rewards: Sequence[float | None]
    turns: Sequence[Sequence[TurnRecord]]
    turn_ids: NDArray[np.int64]
    group_size: int
    logprobs: NDArray[np.float64] | None = None
    entropies: NDArray[np.float64] | None = None
    tokens: Sequence[Sequence[str]] | None = None


@dataclass(frozen=True, slots=True)
class CreditResult:
    """What credit made of a step.

    Attributes:
        advantages: Shape (B, T), float64; 0 where no turn sampled.
        episode: Shape (B,): the episode term before token operators.
        metrics: Figures for the log, by name.
    """

    advantages: NDArray[np.float64]
    episode: NDArray[np.float64]
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Which operators, with which constants; `trainers.config.CreditFields` explains each."""

    episode_scale: EpisodeScale = EpisodeScale.NONE
    alpha_episode: float = 1.0
    beta_turn: float = 0.3
    turn_grouping: TurnGrouping = TurnGrouping.ANCHOR
    turn_gamma: float = 0.95
    turn_std: bool = False


class Credit:
    """Applies the operators of a run; keeps the state of those that have one (schedules, calibrated constants)."""

    def __init__(self, settings: CreditSettings) -> None:
        self.settings = settings

    @property
    def needs_tokens(self) -> bool:
        """True when an operator reads the text of tokens."""
        return False

    @property
    def needs_entropies(self) -> bool:
        """True when an operator reads exact entropies."""
        return False

    def assign(self, batch: CreditBatch) -> CreditResult:
        """Advantages of one step; moves the state on by one step.

        Raises:
            ValueError: Shapes disagree, a value is not finite, or an operator lacks what it reads.
        """
        s = self.settings
        episodes = episode_advantages(batch.rewards, batch.group_size, s.episode_scale)
        turns = turn_advantages(
            batch.turns, batch.group_size, s.turn_grouping, gamma=s.turn_gamma, divide_by_std=s.turn_std
        )
        combined = combine(episodes, turns.advantages, batch.turn_ids, alpha=s.alpha_episode, beta=s.beta_turn)
        on = batch.turn_ids >= 0
        flat = [abs(value) for values in turns.advantages for value in values]
        metrics = {
            "gigpo/grouped_turn_frac": turns.grouped_share,
            "gigpo/frac_zero_adv": float((combined[on] == 0).mean()) if on.any() else 1.0,
            "gigpo/turn_adv_abs_mean": float(np.mean(flat)) if flat else 0.0,
            "gigpo/episode_adv_abs_mean": float(np.abs(episodes).mean()),
        }
        return CreditResult(combined, episodes, metrics)

    def state_dict(self) -> dict[str, Any]:
        """State, JSON-able: part of every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
