"""Credit: who gets how much of a reward. Pure functions, float64 numpy in and out, no torch, no trainer.

Episode operators say how good an episode was within its group; turn operators say how good a turn was among the
turns of its group that began in the same state; token operators share the episode term out over tokens by weights >= 0.
`turn.gigpo_advantages` is the formula that puts them together per token, and `pipeline.Credit` runs it for a step:
`A[i,t] = alpha * A_episode[i] * g[i,t] + beta * A_turn[i,turn(t)]`.
"""

from trainers.credit.batch import NO_TURN, CreditBatch, TokenText
from trainers.credit.episode import EpisodeOperator, EpisodeScale, advantage_bound, episode_advantages
from trainers.credit.grouping import TurnGrouping, TurnRecord, TurnSignal
from trainers.credit.pipeline import Credit, CreditResult
from trainers.credit.planning import Planning
from trainers.credit.settings import CreditSettings
from trainers.credit.turn import (
    TurnCredit,
    TurnRevisits,
    credit_terms,
    discounted_returns,
    gigpo_advantages,
    turn_advantages,
)

__all__ = [
    "NO_TURN",
    "Credit",
    "CreditBatch",
    "CreditResult",
    "CreditSettings",
    "EpisodeOperator",
    "EpisodeScale",
    "Planning",
    "TokenText",
    "TurnCredit",
    "TurnGrouping",
    "TurnRecord",
    "TurnRevisits",
    "TurnSignal",
    "advantage_bound",
    "credit_terms",
    "discounted_returns",
    "episode_advantages",
    "gigpo_advantages",
    "turn_advantages",
]
