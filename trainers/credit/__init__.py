"""Credit: who gets how much of a reward. Pure functions, float64 numpy in and out, no torch, no trainer.

Episode operators say how good an episode was within its group; turn operators say how good a turn was among the
turns of its group that began in the same state. `combine` adds them per token:
`A[i, t] = alpha * A_episode[i] + beta * A_turn[i, turn(t)]`.
"""

from trainers.credit.combine import combine
from trainers.credit.episode import EpisodeScale, episode_advantages
from trainers.credit.pipeline import NO_TURN, Credit, CreditBatch, CreditResult, CreditSettings
from trainers.credit.turn import TurnCredit, TurnGrouping, TurnRecord, TurnSignal, discounted_returns, turn_advantages

__all__ = [
    "NO_TURN",
    "Credit",
    "CreditBatch",
    "CreditResult",
    "CreditSettings",
    "EpisodeScale",
    "TurnCredit",
    "TurnGrouping",
    "TurnRecord",
    "TurnSignal",
    "combine",
    "discounted_returns",
    "episode_advantages",
    "turn_advantages",
]
