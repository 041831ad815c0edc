"""Episode operators: how good each episode was among the K attempts at its task; near-constant groups are exactly 0."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.plugins import Registry

# -- When a group is constant, in floating point: rounding of a mean must not become a training signal ----------------

CONSTANT = 1e-6
"""A group whose spread is below this times max(1, |mean|) is constant and earns exactly 0."""


def refuse_not_finite(values: NDArray[np.float64]) -> None:
    """Refuse rewards or signals of which no advantage can be made.

    Raises:
        ValueError: A value is not finite.
    """
    if not np.isfinite(values).all():
        raise ValueError(f"advantages need finite values, got {values.tolist()}")


def centred_rows(values: NDArray[np.float64], *, divide_by_std: bool, eps: float) -> NDArray[np.float64]:
    """Each row of shape (groups, members) minus its mean, over its sample standard deviation if asked.

    A group of one or a near-constant group gives exactly 0: rounding of a mean must not become a training signal (a
    constant group of 9.9s earns -0.47 in float32 with a small eps).

    Raises:
        ValueError: A value is not finite.
    """
    refuse_not_finite(values)
    if values.shape[1] < 2:
        return np.zeros_like(values)
    mean = values.mean(axis=1, keepdims=True)
    std = values.std(axis=1, ddof=1, keepdims=True)
    out = (values - mean) / (std + eps) if divide_by_std else values - mean
    out[(std < CONSTANT * np.maximum(1.0, np.abs(mean)))[:, 0]] = 0.0
    return out


# -- Episode operators: how good each episode was among the K attempts at its task ------------------------------------
# An operator is one function from rewards of shape (groups, members) to advantages of that shape, and one line of
# `OPERATORS`. A group with fewer than two rewards, or near-constant ones, gets exactly 0 whatever the operator. One of
# your own is registered there, or offered by an installed package (entry-point group `turngym.episode_operators`).

EPS = 1e-4
"""Added to the standard deviation, as in TRL's GRPO."""
MAXRL_EPS = 1e-6
"""Added to MaxRL's mean; a group whose mean is not above it, or that holds a reward below 0, gets 0."""
DISCOVER_KL = 0.2
"""Kullback-Leibler divergence from the uniform weights that the entropic operator aims at, nats."""
_BISECTIONS = 24
_BETA_MAX = 50.0


class EpisodeScale(StrEnum):
    """What divides the centred rewards of a group."""

    NONE = "none"
    """Nothing (Dr. GRPO): the default; dividing lifts the noise of nearly solved tasks."""
    GROUP = "group"
    """The sample standard deviation of the group (GRPO)."""
    BATCH = "batch"
    """The sample standard deviation of all rewards of the step."""


class EpisodeOperator(StrEnum):
    """What an episode's reward is worth within its group."""

    GRPO = "grpo"
    """Reward minus the group's mean (Shao et al. 2024); `scale_rewards` says what divides it."""
    DR_GRPO = "dr_grpo"
    """The same, never divided (Liu et al. 2025); its other half is TRL's `loss_type=dr_grpo`."""
    MAXRL = "maxrl"
    """Centred, over the mean: hard tasks weigh more. For rewards of 0 or more: a group with one below 0 gets 0."""
    REINFORCE_PP = "reinforce_pp"
    """Centred, then normalised over all trained tokens of the step (Hu 2025)."""
    DISCOVER = "discover"
    """Entropic: N times the softmax of the rewards, minus 1, at a fixed divergence from uniform (TTT-Discover)."""
    GTPO = "gtpo"
    """A reward for every token of its own, by its entropy; passed and failed attempts apart (Tan et al. 2025)."""


def grpo(rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """`r - mean`."""
    return centred_rows(rewards, divide_by_std=False, eps=EPS)


def maxrl(rewards: NDArray[np.float64], eps: float = MAXRL_EPS) -> NDArray[np.float64]:
    """`(r - mean) / (mean + eps)`; 0 for a group whose mean is at most `eps`, even if its rewards differ.

    A group with a reward below 0 gets 0, too: its mean may lie anywhere near 0, where the quotient has no bound (it is
    at most K - 1 for rewards of 0 or more). `negative_groups` counts them.
    """
    mean = rewards.mean(axis=1, keepdims=True)
    usable = (mean > eps) & (rewards.min(axis=1, keepdims=True) >= 0)
    return np.where(usable, grpo(rewards) / np.where(usable, mean + eps, 1.0), 0.0)


def negative_groups(rewards: Sequence[float | None], group_size: int) -> float:
    """Share of the groups that hold a reward below 0."""
    starts = range(0, len(rewards), group_size)
    held = [any(r is not None and r < 0 for r in rewards[start : start + group_size]) for start in starts]
    return sum(held) / max(1, len(held))


def discover(rewards: NDArray[np.float64], kl: float = DISCOVER_KL, beta: float | None = None) -> NDArray[np.float64]:
    """`N softmax(beta r) - 1`; `beta` is found by bisection so that the divergence from uniform is `kl`."""
    out = np.zeros_like(rewards)
    for i in np.flatnonzero(grpo(rewards).any(axis=1)):
        out[i] = rewards[i].size * _softmax(rewards[i], entropic_beta(rewards[i], kl) if beta is None else beta) - 1.0
    return out


def entropic_beta(rewards: NDArray[np.float64], kl: float = DISCOVER_KL) -> float:
    """The inverse temperature at which `softmax(beta r)` is `kl` nats from uniform, at most 50."""
    low, high = 0.0, 1.0
    while high < _BETA_MAX and entropic_kl(rewards, high) < kl:
        low, high = high, min(2 * high, _BETA_MAX)
    for _ in range(2 * _BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if entropic_kl(rewards, middle) < kl else (low, middle)
    return (low + high) / 2


def entropic_kl(rewards: NDArray[np.float64], beta: float) -> float:
    """Divergence of `softmax(beta r)` from the uniform weights, nats."""
    weights = _softmax(rewards, beta)
    return float(np.sum(weights[weights > 0] * np.log(weights[weights > 0] * rewards.size)))


def _softmax(rewards: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    powers = np.exp(beta * (rewards - rewards.max()))
    return np.asarray(powers / powers.sum(), dtype=np.float64)


Function = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Rewards of shape (groups, members) in, advantages of that shape out."""


def _function(name: str, thing: Any) -> Function:
    if not callable(thing) or isinstance(thing, type):
        raise ValueError("is no function of rewards of shape (groups, members)")
    function: Function = thing
    return function


OPERATORS: Registry[Function] = Registry(
    "episode operator",
    "turngym.episode_operators",
    {
        EpisodeOperator.GRPO.value: grpo,
        EpisodeOperator.DR_GRPO.value: grpo,
        EpisodeOperator.MAXRL.value: maxrl,
        EpisodeOperator.REINFORCE_PP.value: grpo,
        EpisodeOperator.DISCOVER.value: discover,
        EpisodeOperator.GTPO.value: grpo,
    },
    take=_function,
)
"""What `episode_operator` may name; REINFORCE++ and GTPO end in `trainers.credit.pipeline`, where tokens are known."""


def episode_operator(name: str) -> EpisodeOperator | str:
    """The operator of a name: one of ours, or the name of one of the user's.

    Raises:
        ValueError: There is none of that name, or it cannot be used.
    """
    OPERATORS.find(str(name))
    return EpisodeOperator(name) if OPERATORS.ships(str(name)) else str(name)


def episode_advantages(
    rewards: Sequence[float | None],
    group_size: int,
    scale: EpisodeScale = EpisodeScale.NONE,
    *,
    operator: EpisodeOperator | str = EpisodeOperator.GRPO,
    eps: float = EPS,
) -> NDArray[np.float64]:
    """Advantages of the episodes of one step.

    Args:
        rewards: One per episode, the K episodes of a task side by side; `None` for an episode without a reward
            (infrastructure failure): it enters no mean and gets 0.
        group_size: K.
        scale: What divides; only with `operator` GRPO.
        operator: What a reward is worth within its group.
        eps: Added to the standard deviation.

    Returns:
        Shape (episodes,), float64. A group with fewer than two rewards, or near-constant ones, gets exactly 0.

    Raises:
        ValueError: The rewards do not divide into groups, one is not finite, or an operator gave a value that is not.
    """
    if group_size < 1 or len(rewards) % group_size:
        raise ValueError(f"{len(rewards)} rewards do not divide into groups of {group_size}")
    out = np.zeros(len(rewards), dtype=np.float64)
    by_size: dict[int, list[list[int]]] = defaultdict(list)
    for start in range(0, len(rewards), group_size):
        rows = [i for i in range(start, start + group_size) if rewards[i] is not None]
        by_size[len(rows)].append(rows)
    for size, same in by_size.items():  # groups of one size in one go
        if size:
            places = np.array(same)
            values = np.array([[rewards[i] for i in rows] for rows in same], dtype=np.float64)
            out[places] = _applied(operator, scale, values, eps)
    if scale is EpisodeScale.BATCH:
        known = np.array([r for r in rewards if r is not None], dtype=np.float64)
        spread = known.std(ddof=1) if known.size > 1 else 0.0
        out = out / (spread + eps)
    return out


def _applied(
    operator: EpisodeOperator | str, scale: EpisodeScale, values: NDArray[np.float64], eps: float
) -> NDArray[np.float64]:
    """Shape (groups, members): `operator` on each row, and exactly 0 for rows that are nearly constant."""
    divided = scale is EpisodeScale.GROUP
    plain = centred_rows(values, divide_by_std=divided, eps=eps)
    if divided or operator is EpisodeOperator.GRPO:
        return plain
    out = np.asarray(OPERATORS.find(str(operator))(values), dtype=np.float64)
    if out.shape != values.shape:
        raise ValueError(f"episode operator {operator}: rewards of shape {values.shape}, advantages {out.shape}")
    if not np.isfinite(out).all():
        raise ValueError(f"episode operator {operator}: advantages that are not finite, {out.tolist()}")
    return np.where(plain.any(axis=1, keepdims=True), out, 0.0)


def advantage_bound(operator: EpisodeOperator | str, scale: EpisodeScale, group_size: int) -> float | None:
    """Largest |advantage| that rewards between 0 and 1 can have; `None` where there is none known.

    Centred: `(K-1)/K`. Over the mean (MaxRL): `K-1`. Over the sample deviation: `(K-1)/sqrt(K)`. An advantage cap at or
    above it does nothing as long as there is no turn term and no token weight above 1.
    """
    if scale is EpisodeScale.GROUP:
        return float((group_size - 1) / np.sqrt(group_size))
    unbounded = (EpisodeOperator.REINFORCE_PP, EpisodeOperator.DISCOVER, EpisodeOperator.GTPO)
    if scale is EpisodeScale.BATCH or operator in unbounded or operator not in tuple(EpisodeOperator):
        return None
    return float(group_size - 1) if operator is EpisodeOperator.MAXRL else (group_size - 1) / group_size


# -- GTPO as published (Tan et al. 2025): rewards of tokens, added up; the token operator `gtpo` is a weight instead ---
#
#   passed, O+:   r[i,t] =   a1 + a2 * d[t] *    H[i,t]  / sum over O+ of    H[k,t]     (3)
#   failed, O-:   r[j,t] = -(a1 + a2 * h[t] * (1/H[j,t]) / sum over O- of (1/H[k,t]))   (5)
#   A[i,t] = (r[i,t] - mean) / std                                                      (6)
#
# H[i,t] is the entropy at the t-th token that attempt i sampled; d[t] and h[t] count the attempts of a side that have
# one. The mean and the deviation of (6) are those of all tokens of a side, whose mean advantage is then 0: a1 and a2
# cancel out, and nothing says that passing is better than failing. `GTPONorm.GROUP` takes both sides together.

PASSED_ABOVE = 0.5
"""An attempt with a larger reward passed: with `reward=binary` it is 1 or 0."""
GTPO_EPS = 1e-8


class GTPONorm(StrEnum):
    """Over which tokens of a group GTPO takes mean and deviation."""

    SIDES = "sides"
    """Those of the passed attempts, and those of the failed ones: as published."""
    GROUP = "group"
    """All: passed attempts have larger advantages than failed ones."""


def gtpo_advantages(
    rewards: Sequence[float | None],
    signal: NDArray[np.float64],
    mask: NDArray[np.bool_],
    group_size: int,
    *,
    norm: GTPONorm = GTPONorm.SIDES,
    share: float = 0.1,
) -> NDArray[np.float64]:
    """A_episode of every token, shape (B, T), 0 where none was sampled; 0 for groups that do not have both sides.

    Args:
        rewards: One per episode, the K of a task side by side; `None` for one that does not count.
        signal: H, shape (B, T), 0 or more.
        mask: Shape (B, T): True where a token was sampled.
        group_size: K.
        norm: What (6) goes over.
        share: a2, with a1 = 1 (the paper's experiments: 0.1).
    """
    counts = np.count_nonzero(mask, axis=1)
    there = np.arange(counts.max(initial=0)) < counts[:, None]
    entropies = np.zeros(there.shape)
    entropies[there] = signal[mask]  # both in the order of rows, then of tokens
    shaped = np.zeros(there.shape)
    for start in range(0, len(rewards), group_size):
        group = slice(start, start + group_size)
        passed = np.array([reward is not None and reward > PASSED_ABOVE for reward in rewards[group]])
        failed = np.array([reward is not None and reward <= PASSED_ABOVE for reward in rewards[group]])
        if not (passed.any() and failed.any()):
            continue
        sides = [there[group] & passed[:, None], there[group] & failed[:, None]]
        weights = [entropies[group], 1.0 / (entropies[group] + GTPO_EPS)]
        values = np.zeros(sides[0].shape)
        for sign, side, weight in zip((1.0, -1.0), sides, weights, strict=True):
            of_place = (weight * side).sum(axis=0) + GTPO_EPS
            values += sign * side * (1.0 + share * side.sum(axis=0) * weight / of_place)
        for tokens in sides if norm is GTPONorm.SIDES else [sides[0] | sides[1]]:
            shaped[group][tokens] = _standard(values[tokens])
    out = np.zeros(mask.shape)
    out[mask] = shaped[there]
    return out


def _standard(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """`(v - mean) / std`, population deviation; 0 where they are nearly constant."""
    if not values.size or (std := float(values.std())) < CONSTANT * max(1.0, abs(float(values.mean()))):
        return np.zeros(values.shape)
    return np.asarray((values - values.mean()) / (std + GTPO_EPS))
