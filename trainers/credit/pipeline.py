"""The whole of credit: one step's episodes in, one advantage per token out, with what it did as metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.credit.batch import CreditBatch
from trainers.credit.episode import (
    EpisodeOperator,
    advantage_bound,
    episode_advantages,
    gtpo_advantages,
    negative_groups,
)
from trainers.credit.metrics import cosine_figure, signal_metrics, step_metrics, weight_figures
from trainers.credit.planning import Planning
from trainers.credit.settings import CreditSettings, SepaSchedule, follows_schedule
from trainers.credit.token import OPERATORS, TokenSignal, make_tokens, operator_names, token_signal, token_weights
from trainers.credit.token.tokens import TokenState, keep_freed_memory
from trainers.credit.turn import TurnCredit, credit_terms, gigpo_advantages

# ---------------------------------------------------------------------------------------------------------------------
# What comes last: normalising over the step (REINFORCE++) and the advantage cap, each with its figures for the log.

NORM_EPS = 1e-8
"""Added to the standard deviation; a step whose spread is below it is only centred."""


def batch_norm(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> tuple[NDArray[np.float64], dict[str, float]]:
    """`(a - mean) / (std + eps)` over the tokens where `mask` is on, population deviation; 0 elsewhere.

    A reference takes the tokens whose value is not 0 instead, which also drops tokens whose advantage happens to be 0.

    Args:
        values: Shape (B, T), finite.
        mask: Shape (B, T).

    Returns:
        The normalised values, and `credit/norm_mean` and `credit/norm_std`: what was subtracted and divided by.
    """
    count = int(np.count_nonzero(mask))
    if not count:
        return np.zeros(values.shape), {"credit/norm_mean": 0.0, "credit/norm_std": 0.0}
    kept = values * mask
    mean = float(kept.sum()) / count
    kept -= mean
    kept *= mask
    std = float(np.sqrt(np.einsum("ij,ij->", kept, kept) / count))
    if std >= NORM_EPS:
        kept /= std + NORM_EPS
    return kept, {"credit/norm_mean": mean, "credit/norm_std": std}


def cap_advantages(values: NDArray[np.float64], cap: float) -> tuple[NDArray[np.float64], dict[str, float]]:
    """Cut advantages to [-cap, cap].

    Returns:
        The advantages, and of those that are not 0 `credit/capped_frac` (the share that was cut) and
        `credit/capped_magnitude` (mean |advantage| of these before the cut; 0 without any).

    Raises:
        ValueError: `cap` is not above 0.
    """
    if not cap > 0:
        raise ValueError(f"advantage cap {cap}: it must be above 0")
    out = np.clip(values, -cap, cap)
    cut = np.abs(values[out != values])
    share = cut.size / int(np.count_nonzero(values)) if cut.size else 0.0
    magnitude = float(cut.mean()) if cut.size else 0.0
    return out, {"credit/capped_frac": share, "credit/capped_magnitude": magnitude}


# -- The whole of credit: one step's episodes in, one advantage per token out, with what it did as metrics ------------


@dataclass(frozen=True, slots=True)
class CreditResult:
    """What credit made of a step.

    Attributes:
        advantages: Shape (B, T), float64; 0 where no turn sampled.
        episode: Shape (B,): the episode term before token operators.
        metrics: Figures for the log, by name.
        plain: Shape (B, T): the advantages of plain GRPO, where `gradient_cosine_steps` asks for them.
    """

    advantages: NDArray[np.float64]
    episode: NDArray[np.float64]
    metrics: dict[str, float]
    plain: NDArray[np.float64] | None = None


class Credit:
    """Applies the operators of a run; keeps the state of those that have one (schedules, calibrated constants)."""

    def __init__(self, settings: CreditSettings) -> None:
        self.settings = settings
        self.operators = operator_names(settings.token_operators)
        self.state = TokenState(settings)
        self.planning = Planning(settings.planning, settings.planning_window)
        if self.operators:
            keep_freed_memory()

    @property
    def needs_tokens(self) -> bool:
        """True when an operator reads the text of tokens."""
        return any(OPERATORS.find(name).planning for name in self.operators) or self._waits_for_variance

    @property
    def needs_logprobs(self) -> bool:
        """True when an operator reads the sampled log-probabilities."""
        return self._needs_signal and self.settings.token_signal is not TokenSignal.ENTROPY

    @property
    def needs_entropies(self) -> bool:
        """True when an operator reads exact entropies."""
        return self._needs_signal and self.settings.token_signal is TokenSignal.ENTROPY

    @property
    def needs_states(self) -> bool:
        """True when turns are compared by the text of the observation before them."""
        return self.settings.needs_states

    @property
    def _needs_signal(self) -> bool:
        return bool(self.operators) or self.settings.episode_operator == EpisodeOperator.GTPO

    @property
    def _waits_for_variance(self) -> bool:
        """Delight's own blending follows the automatic schedule, which looks at execution tokens."""
        s = self.settings
        return "delight" in self.operators and follows_schedule(s) and s.sepa_schedule is SepaSchedule.AUTO

    def assign(self, batch: CreditBatch, step: int | None = None) -> CreditResult:
        """Advantages of the episodes of one generation; moves the state on.

        Args:
            batch: The episodes.
            step: Optimizer steps taken before, which schedules go by; `None`: every batch is a step.

        Raises:
            ValueError: Shapes disagree, a value is not finite, or an operator lacks what it reads.
        """
        s = self.settings
        if len(batch.passed) not in (0, len(batch.rewards)):
            raise ValueError(f"{len(batch.passed)} verdicts (passed) for {len(batch.rewards)} episodes")
        if step is not None:
            self.state.stands_at(step)
        episode, turns = credit_terms(batch.rewards, batch.turns, batch.group_size, s)
        mask = batch.turn_ids >= 0
        weights, figures = self._weights(batch, mask, episode) if self.operators else (None, {})
        term, g = episode, weights
        if s.episode_operator == EpisodeOperator.REINFORCE_PP:  # normalises A_episode * g, so that g has acted then
            ones = np.ones(mask.shape) if g is None else g
            term, norms = batch_norm(episode[:, None] * ones, self._trained(batch, mask, episode, weights))
            g, figures = None, figures | norms
        elif s.episode_operator == EpisodeOperator.GTPO:
            term = gtpo_advantages(
                batch.rewards, self._signal(batch, mask), mask, batch.group_size, norm=s.gtpo_norm, share=s.gtpo_share
            )
        alpha, beta = s.alpha_episode, s.beta_turn
        advantages = gigpo_advantages(term, turns.advantages, batch.turn_ids, alpha=alpha, beta=beta, weights=g)
        _check_finite(advantages, episode, turns, weights, s)  # before the cap, which would hide an endless one
        if s.advantage_cap:
            advantages, cut = cap_advantages(advantages, s.advantage_cap)
            figures |= cut
            bound = advantage_bound(s.episode_operator, s.scale_rewards, batch.group_size)
            if bound is not None:
                figures["credit/cap_bound"] = abs(alpha) * bound
        if s.episode_operator == EpisodeOperator.MAXRL:
            figures["credit/maxrl_negative_frac"] = negative_groups(batch.rewards, batch.group_size)
        if weights is not None:
            plain = gigpo_advantages(episode, turns.advantages, batch.turn_ids, alpha=alpha, beta=beta)
            figures |= weight_figures(weights, mask & (episode != 0)[:, None]) | cosine_figure(
                "credit/cosine_uniform", advantages, plain
            )
        metrics = step_metrics(batch.rewards, batch.group_size, episode, turns, advantages, mask)
        compared = None
        if s.gradient_cosine_steps:
            values = episode_advantages(batch.rewards, batch.group_size, scale=s.scale_rewards)
            compared = values[:, None] * mask
            figures |= cosine_figure("cosine/advantages", advantages, compared)
        return CreditResult(advantages, episode, metrics | figures, compared)

    def _weights(
        self, batch: CreditBatch, mask: NDArray[np.bool_], episodes: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], dict[str, float]]:
        """Token weights and what the operators noted; moves the state on."""
        s = self.settings
        signal = self._signal(batch, mask)
        planning = None
        if self.needs_tokens:
            if batch.tokens is None:
                raise ValueError(f"token operators {s.token_operators} need the text of tokens, and there is none")
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
        weights = token_weights(self.operators, tokens)
        notes = tokens.notes
        variance = None
        if planning is not None:
            figures, execution = signal_metrics(tokens, planning)
            notes |= figures
            variance = execution.variance if execution.n > 1 else None
        if {"sepa", "delight"} & set(self.operators):
            notes["credit/lambda"] = lam
        known = [passed for passed in batch.passed if passed is not None]
        self.state.see(sum(known) / len(known) if known else None, variance)
        return weights, notes

    def _signal(self, batch: CreditBatch, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        return token_signal(self.settings.token_signal, mask, batch.logprobs, batch.entropies)

    def _trained(
        self,
        batch: CreditBatch,
        mask: NDArray[np.bool_],
        episodes: NDArray[np.float64],
        weights: NDArray[np.float64] | None,
    ) -> NDArray[np.bool_]:
        """Tokens over which REINFORCE++ normalises: those of a flat group and those with weight 0 stay exactly 0."""
        live = np.repeat(episodes.reshape(-1, batch.group_size).any(axis=1), batch.group_size)
        live &= np.array([reward is not None for reward in batch.rewards])
        trained = mask & live[:, None]
        if weights is not None:
            trained &= weights > 0
        return trained

    def state_dict(self) -> dict[str, Any]:
        """State, JSON-able: part of every checkpoint."""
        return {"tokens": self.state.state_dict()} if self.operators else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        if "tokens" in state:
            self.state.load_state_dict(state["tokens"])


def _check_finite(
    advantages: NDArray[np.float64],
    episode: NDArray[np.float64],
    turns: TurnCredit,
    weights: NDArray[np.float64] | None,
    settings: CreditSettings,
) -> None:
    """Name what made an advantage that is not finite: nothing of the kind may reach the weights.

    Raises:
        ValueError: One is not.
    """
    # A sum is finite exactly when all terms are, but for an overflow: then look closer.
    if np.isfinite(advantages.sum()) or np.isfinite(advantages).all():
        return
    s = settings
    if not np.isfinite(s.alpha_episode * episode).all():
        what = f"the episode term (alpha_episode={s.alpha_episode} x {s.episode_operator})"
    elif not all(np.isfinite(s.beta_turn * np.asarray(values)).all() for values in turns.advantages):
        what = f"the turn term (beta_turn={s.beta_turn} x {s.turn_grouping})"
    elif weights is not None:
        what = f"the token operators ({s.token_operators})"
    else:
        what = f"the last step of episode operator {s.episode_operator}"
    raise ValueError(f"advantages that are not finite, from {what}")
