"""GiGPO (Feng et al. 2025), with token weights: one advantage for every sampled token of a step.

    A[i,t] = alpha * A_episode[i] * g[i,t] + beta * A_turn[i,turn(t)]

    A_episode[i] = R[i] - mean(R)             over the K episodes of i's task, those without a reward left out
    A_turn[i,k]  = G[i,k] - mean(G)           over the turns of these K that began in the same state as turn k of i
    G[i,k]       = r[i,k] + gamma * G[i,k+1]  within episode i, 0 after its last turn

| symbol | what it is | shape | computed by |
|---|---|---|---|
| A | advantage of a token, float64; 0 where no turn sampled the token | (B, T) | `gigpo_advantages` |
| A_episode | how good the episode was in its group; other operators replace `R - mean` | (B,) | `episode_advantages` |
| g | token weights >= 0; all 1 unless token operators are on | (B, T) | `token_weights` |
| A_turn | how good a turn was among comparable ones | (B, turns) | `turn_advantages` |
| G, r | return and signal of a turn | (B, turns) | `discounted_returns`, the environment |
| turn(t) | the turn that sampled token t, -1 for none | (B, T) | `turn_ids`, the rollout |

B episodes of one step, the K of a task side by side; T tokens. Both terms may be divided by the sample standard
deviation of what is compared (`scale_rewards`, `turn_std`). A group of one, a near-constant group (`CONSTANT`) and a
turn without a signal get exactly 0. Which turns are comparable: `trainers.credit.grouping`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainers.credit.episode import CONSTANT, centred_rows, episode_advantages, refuse_not_finite
from trainers.credit.grouping import TurnGrouping, TurnRecord, turn_labels

if TYPE_CHECKING:
    from trainers.credit.settings import CreditSettings

EPS = 1e-6
"""Added to the standard deviation, as in the GiGPO reference."""
SIMILARITY = 0.9
"""How alike two observations must be, as in GiGPO's search setting."""


def gigpo_advantages(
    episode: NDArray[np.float64],
    turns: Sequence[Sequence[float]],
    turn_ids: NDArray[np.int64],
    *,
    alpha: float,
    beta: float,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """`A[i,t] = alpha * A_episode[i] * g[i,t] + beta * A_turn[i,turn(t)]` where a token was sampled, 0 elsewhere.

    Args:
        episode: A_episode, shape (B,); or A_episode * g, shape (B, T), where it was normalised over the step.
        turns: A_turn: one list per episode, one value per turn.
        turn_ids: Shape (B, T): index of the turn that sampled the token; -1 where none did.
        alpha: Weight of the episode term.
        beta: Weight of the turn term.
        weights: g, shape (B, T); `None` stands for 1. Where no token was sampled it means nothing.

    Returns:
        Shape (B, T), float64.

    Raises:
        ValueError: Shapes disagree, or a turn id has no turn or is below -1.
    """
    per_token = episode if episode.ndim == 2 else episode[:, None]
    weighted = per_token if weights is None else per_token * weights
    return np.where(turn_ids >= 0, alpha * weighted + beta * _of_token(turns, turn_ids), 0.0)


def _of_token(turns: Sequence[Sequence[float]], turn_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """`A_turn[i,turn(t)]`, shape (B, T); 0 for turn id -1."""
    if len(turns) != len(turn_ids):
        raise ValueError(f"{len(turns)} turn lists, {len(turn_ids)} rows of turn ids")
    if turn_ids.min(initial=-1) < -1:
        raise ValueError(f"a turn id of {turn_ids.min()}: -1 means no turn")
    # One row per episode, one column per turn, and a last column that stays 0: the one that index -1 reads.
    table = np.zeros((len(turns), max(map(len, turns), default=0) + 1))
    for i, values in enumerate(turns):
        if (last := turn_ids[i].max(initial=-1)) >= len(values):
            raise ValueError(f"row {i}: a token of turn {last}, but the episode has {len(values)} turns")
        table[i, : len(values)] = values
    return np.take_along_axis(table, turn_ids, axis=1)


def credit_terms(
    rewards: Sequence[float | None], turns: Sequence[Sequence[TurnRecord]], group_size: int, settings: CreditSettings
) -> tuple[NDArray[np.float64], TurnCredit]:
    """A_episode and A_turn of the episodes of one step, the K of a task side by side.

    One function, so that who trains (`Credit.assign`) and who asks whether a group would teach anything (refill) agree.
    A group in which fewer than two episodes have a reward has nothing to compare: it gets 0 from the turn term, too.

    Raises:
        ValueError: The episodes do not divide into groups, or a value is not finite.
    """
    s = settings
    episode = episode_advantages(rewards, group_size, s.scale_rewards, operator=s.episode_operator)
    compared = list(turns)
    for start in range(0, len(rewards), group_size):
        group = slice(start, start + group_size)
        if sum(reward is not None for reward in rewards[group]) < 2:
            compared[group] = [[replace(turn, signal=None) for turn in turns_of] for turns_of in turns[group]]
    return episode, turn_advantages(
        compared,
        group_size,
        s.turn_grouping,
        gamma=s.turn_gamma,
        divide_by_std=s.turn_std,
        similarity=s.turn_similarity,
        revisits=s.turn_revisits,
        invalid_penalty=s.invalid_action_penalty,
    )


class TurnRevisits(StrEnum):
    """How often an episode counts in a group it enters several times (a loop)."""

    ALL = "all"
    """Once for every visit, as in the GiGPO reference."""
    PER_TRAJECTORY = "per_trajectory"
    """Once: each visit has the weight 1/visits, and a group that one episode alone entered is no group."""


def discounted_returns(signals: Sequence[float | None], gamma: float) -> list[float | None]:
    """`G_t = r_t + gamma * G_{t+1}` within one episode, without bootstrap at its end.

    A turn without a signal adds nothing to earlier turns and has no return of its own.
    """
    out: list[float | None] = [None] * len(signals)
    following = 0.0
    for t in range(len(signals) - 1, -1, -1):
        signal = signals[t]
        following = (0.0 if signal is None else signal) + gamma * following
        if signal is not None:
            out[t] = following
    return out


def turn_values(turns: Sequence[TurnRecord], gamma: float, invalid_penalty: float = 0.0) -> list[float | None]:
    """The returns of an episode's turns, less the penalty of an invalid action.

    The penalty is taken off after discounting, from that turn alone: it does not reach the turns before it.
    """
    values = discounted_returns([turn.signal for turn in turns], gamma)
    if not invalid_penalty:
        return values
    return [
        value - invalid_penalty if value is not None and turn.invalid else value
        for value, turn in zip(values, turns, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class TurnCredit:
    """Turn advantages of one step.

    Attributes:
        advantages: One list per episode, one value per turn.
        grouped_share: Share of the turns with a signal that stood in a group of at least two.
    """

    advantages: list[list[float]]
    grouped_share: float


def turn_advantages(
    episodes: Sequence[Sequence[TurnRecord]],
    group_size: int,
    grouping: TurnGrouping = TurnGrouping.ANCHOR,
    *,
    gamma: float = 0.95,
    divide_by_std: bool = False,
    eps: float = EPS,
    similarity: float = SIMILARITY,
    revisits: TurnRevisits = TurnRevisits.ALL,
    invalid_penalty: float = 0.0,
) -> TurnCredit:
    """Advantages of all turns of one step.

    Args:
        episodes: The episodes of the step, the K of a task side by side; an empty list for one that does not count.
        group_size: K.
        grouping: Which turns are compared.
        gamma: Discount of later turns' signals.
        divide_by_std: Divide by the sample standard deviation of the group.
        eps: Added to the standard deviation.
        similarity: How alike two observations must be, 0 to 1; only with `TurnGrouping.SIMILARITY`.
        revisits: How often an episode counts in a group it enters several times.
        invalid_penalty: Taken off the value of a malformed turn.

    Raises:
        ValueError: The episodes do not divide into groups, or a signal is not finite.
    """
    if group_size < 1 or len(episodes) % group_size:
        raise ValueError(f"{len(episodes)} episodes do not divide into groups of {group_size}")
    out = [[0.0] * len(turns) for turns in episodes]
    if grouping is TurnGrouping.NONE:
        return TurnCredit(out, 0.0)
    groups = _groups(episodes, group_size, grouping, gamma, similarity, invalid_penalty)
    grouped, total = 0, sum(map(len, groups))
    by_size: dict[int, list[list[tuple[int, int, float]]]] = defaultdict(list)
    for group in groups:
        owners = {i for i, _, _ in group}
        if revisits is TurnRevisits.PER_TRAJECTORY and len(owners) < len(group):
            grouped += len(group) if len(owners) > 1 else 0
            values = _per_trajectory(group, divide_by_std, eps)
            for (i, t, _), advantage in zip(group, values.tolist(), strict=True):
                out[i][t] = advantage
            continue
        grouped += len(group) if len(group) > 1 else 0
        by_size[len(group)].append(group)
    for same in by_size.values():  # groups of one size in one go: most have two or three members
        rows = np.array([[value for _, _, value in group] for group in same])
        for group, advantages in zip(
            same, centred_rows(rows, divide_by_std=divide_by_std, eps=eps).tolist(), strict=True
        ):
            for (i, t, _), advantage in zip(group, advantages, strict=True):
                out[i][t] = advantage
    return TurnCredit(out, grouped / total if total else 0.0)


def _groups(
    episodes: Sequence[Sequence[TurnRecord]],
    group_size: int,
    grouping: TurnGrouping,
    gamma: float,
    similarity: float,
    invalid_penalty: float,
) -> list[list[tuple[int, int, float]]]:
    """The groups of all tasks, each a list of (episode, turn, value)."""
    members: dict[tuple[int, str | int], list[tuple[int, int, float]]] = defaultdict(list)
    for start in range(0, len(episodes), group_size):
        task = episodes[start : start + group_size]
        for k, labels in enumerate(turn_labels(task, grouping, similarity)):
            for t, value in enumerate(turn_values(task[k], gamma, invalid_penalty)):
                if value is not None:
                    members[start, labels[t]].append((start + k, t, value))
    return list(members.values())


def _per_trajectory(group: list[tuple[int, int, float]], divide_by_std: bool, eps: float) -> NDArray[np.float64]:
    """`centred_rows` of one group, with the weight 1/visits for each visit of an episode."""
    owners = np.array([i for i, _, _ in group])
    values = np.array([value for _, _, value in group])
    refuse_not_finite(values)
    _, inverse, visits = np.unique(owners, return_inverse=True, return_counts=True)
    if visits.size < 2:
        return np.zeros_like(values)
    weights = 1.0 / visits[inverse]
    mean = float((weights * values).sum() / visits.size)
    std = float(np.sqrt((weights * (values - mean) ** 2).sum() / (visits.size - 1)))
    if std < CONSTANT * max(1.0, abs(mean)):
        return np.zeros_like(values)
    return (values - mean) / (std + eps) if divide_by_std else values - mean
