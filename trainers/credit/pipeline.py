"""The whole of credit: one step's episodes in, one advantage per token out, with what it did as metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.credit.combine import combine
from trainers.credit.episode import EpisodeOperator, EpisodeScale, advantage_bound, episode_advantages
from trainers.credit.grouping import TurnGrouping
from trainers.credit.meter import measure
from trainers.credit.normalise import batch_norm, cap_advantages
from trainers.credit.planning import WINDOW, Planning
from trainers.credit.step_metrics import signal_metrics, step_metrics
from trainers.credit.token import OPERATORS, TokenSettings, TokenSignal, make_tokens, token_signal, token_weights
from trainers.credit.token.settings import DelightMode
from trainers.credit.token.state import TokenState
from trainers.credit.token_text import TokenText
from trainers.credit.turn import SIMILARITY, TurnRevisits, turn_advantages
from trainers.credit.turn_record import TurnRecord

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
        passed: Whether each episode passed, `None` where that is not known; for SEPA's gate.
    """

    rewards: Sequence[float | None]
    turns: Sequence[Sequence[TurnRecord]]
    turn_ids: NDArray[np.int64]
    group_size: int
    logprobs: NDArray[np.float64] | None = None
    entropies: NDArray[np.float64] | None = None
    tokens: TokenText | None = None
    passed: Sequence[bool | None] = ()


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
    episode_operator: EpisodeOperator = EpisodeOperator.GRPO
    alpha_episode: float = 1.0
    beta_turn: float = 0.3
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


class Credit:
    """Applies the operators of a run; keeps the state of those that have one (schedules, calibrated constants)."""

    def __init__(self, settings: CreditSettings) -> None:
        self.settings = settings
        self.state = TokenState(settings.tokens)
        self.planning = Planning(settings.planning, settings.planning_window)

    @property
    def needs_tokens(self) -> bool:
        """True when an operator reads the text of tokens."""
        return any(OPERATORS[name].planning for name in self.settings.tokens.operators) or self._waits_for_variance

    @property
    def needs_entropies(self) -> bool:
        """True when an operator reads exact entropies."""
        return bool(self.settings.tokens.operators) and self.settings.tokens.signal is TokenSignal.ENTROPY

    @property
    def needs_states(self) -> bool:
        """True when turns are compared by the text of the observation before them."""
        return self.settings.turn_grouping is TurnGrouping.SIMILARITY

    @property
    def _waits_for_variance(self) -> bool:
        """Delight's own blending follows the automatic schedule, which looks at execution tokens."""
        s = self.settings.tokens
        return (
            "delight" in s.operators
            and s.delight_mode is DelightMode.ANNEALED
            and s.delight_lambda is None
            and s.sepa_schedule == "auto"
        )

    def assign(self, batch: CreditBatch) -> CreditResult:
        """Advantages of one step; moves the state on by one step.

        Raises:
            ValueError: Shapes disagree, a value is not finite, or an operator lacks what it reads.
        """
        s = self.settings
        episodes = episode_advantages(batch.rewards, batch.group_size, s.episode_scale, operator=s.episode_operator)
        turns = turn_advantages(
            batch.turns,
            batch.group_size,
            s.turn_grouping,
            gamma=s.turn_gamma,
            divide_by_std=s.turn_std,
            similarity=s.turn_similarity,
            revisits=s.turn_revisits,
            invalid_penalty=s.invalid_action_penalty,
        )
        alpha, beta = s.alpha_episode, s.beta_turn
        combined = uniform = combine(episodes, turns.advantages, batch.turn_ids, alpha=alpha, beta=beta)
        mask = batch.turn_ids >= 0
        notes: dict[str, float] = {}
        weights = None
        if s.tokens.operators:
            weights, notes = self._weights(batch, mask, episodes)
        normalises = s.episode_operator is EpisodeOperator.REINFORCE_PP
        if weights is not None or normalises:
            shared = mask * episodes[:, None]
            term = shared if weights is None else weights * shared
            if normalises:
                term = self._normalised(batch, mask, episodes, weights, term, notes)
            # Only the episode term is exchanged; where every weight is 1 the sum stays what it was, bit for bit.
            combined = np.subtract(term, shared, out=term)
            combined *= alpha
            combined += uniform
        if s.advantage_cap:
            capped = cap_advantages(combined, s.advantage_cap)
            combined = capped.values
            notes |= {"credit/capped_frac": capped.share, "credit/capped_magnitude": capped.magnitude}
            bound = advantage_bound(s.episode_operator, s.episode_scale, batch.group_size)
            if bound is not None:
                notes["credit/cap_bound"] = abs(alpha) * bound
        if weights is not None:
            notes |= measure(weights, mask & (episodes != 0)[:, None], combined, uniform)
        metrics = step_metrics(batch.rewards, batch.group_size, episodes, turns, combined, mask)
        return CreditResult(combined, episodes, metrics | notes)

    def _weights(
        self, batch: CreditBatch, mask: NDArray[np.bool_], episodes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Token weights and what the operators noted; moves the state on."""
        s = self.settings.tokens
        signal = token_signal(s.signal, mask, batch.logprobs, batch.entropies)
        planning = None
        if self.needs_tokens:
            if batch.tokens is None:
                raise ValueError(f"token operators {', '.join(s.operators)} need the text of tokens, and there is none")
            planning = self.planning.mask(batch.tokens, batch.turn_ids)
        tokens = make_tokens(
            signal,
            mask,
            episodes,
            group_size=batch.group_size,
            settings=s,
            state=self.state,
            planning=planning,
        )
        lam = self.state.lam
        weights = token_weights(s.operators, tokens)
        notes = tokens.notes
        execution = None
        if planning is not None:
            notes |= signal_metrics(tokens, planning)
            if s.sepa_schedule == "auto":
                execution = signal[mask & ~planning]
        if "sepa" in s.operators or "delight" in s.operators:
            notes["credit/lambda"] = lam
        known = [passed for passed in batch.passed if passed is not None]
        self.state.see(sum(known) / len(known) if known else None, execution)
        return weights, notes

    def _normalised(
        self,
        batch: CreditBatch,
        mask: NDArray[np.bool_],
        episodes: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
        term: NDArray[np.float64],
        notes: dict[str, float],
    ) -> NDArray[np.float64]:
        """REINFORCE++ over the tokens that are trained on: a flat group and a weight of 0 stay exactly 0."""
        live = np.repeat(episodes.reshape(-1, batch.group_size).any(axis=1), batch.group_size)
        live &= np.array([reward is not None for reward in batch.rewards])
        trained = mask & live[:, None]
        if weights is not None:
            trained &= weights > 0
        done = batch_norm(term, trained)
        notes |= {"credit/norm_mean": done.mean, "credit/norm_std": done.std}
        return done.values

    def state_dict(self) -> dict[str, Any]:
        """State, JSON-able: part of every checkpoint."""
        return {"tokens": self.state.state_dict()} if self.settings.tokens.operators else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        if "tokens" in state:
            self.state.load_state_dict(state["tokens"])
