"""Figures of a step for the log: whether there was signal, what the token signal looked like, what weights changed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.tokens import Tokens
from trainers.credit.turn import TurnCredit

TIE = 1e-6
"""Rewards that differ by no more than this are one reward."""
CHANGED = 0.01
"""A weight further than this from 1 changes its token."""


def step_metrics(
    rewards: Sequence[float | None],
    group_size: int,
    episodes: NDArray[np.float64],
    turns: TurnCredit,
    combined: NDArray[np.float64],
    mask: NDArray[np.bool_],
) -> dict[str, float]:
    """`gigpo/*`: shares of groups and turns that say something."""
    flat = [abs(value) for values in turns.advantages for value in values]
    sampled = int(np.count_nonzero(mask))
    groups = [
        [reward for reward in rewards[start : start + group_size] if reward is not None]
        for start in range(0, len(rewards), group_size)
    ]
    ties = [tied_pairs(group) for group in groups]
    per_group = (len(groups), -1)
    zero_episode = ~episodes.reshape(per_group).any(axis=1)
    dead = ~combined.reshape(per_group).any(axis=1)
    return {
        "gigpo/grouped_turn_frac": turns.grouped_share,
        "gigpo/frac_zero_adv": np.count_nonzero(mask & (combined == 0)) / sampled if sampled else 1.0,
        "gigpo/turn_adv_abs_mean": float(np.mean(flat)) if flat else 0.0,
        "gigpo/episode_adv_abs_mean": float(np.abs(episodes).mean()),
        "gigpo/singleton_group_frac": sum(len(group) == 1 for group in groups) / max(1, len(groups)),
        "gigpo/flat_group_frac": float(zero_episode.mean()),
        "gigpo/dead_group_frac": float(dead.mean()),
        "gigpo/tied_pair_frac": sum(tied for tied, _ in ties) / max(1, sum(pairs for _, pairs in ties)),
    }


def tied_pairs(rewards: Sequence[float], eps: float = TIE) -> tuple[int, int]:
    """Pairs of attempts at one task with the same reward, and all pairs."""
    sizes: list[int] = []
    before = -math.inf
    for value in sorted(rewards):
        if value - before > eps:
            sizes.append(0)
        sizes[-1] += 1
        before = value
    return sum(size * (size - 1) // 2 for size in sizes), len(rewards) * (len(rewards) - 1) // 2


def signal_metrics(tokens: Tokens, planning: NDArray[np.bool_]) -> tuple[dict[str, float], Moments]:
    """`credit/*` of planning and execution tokens, before and after operators changed the signal.

    Returns:
        The figures, and the moments of the execution tokens before any operator, which the automatic schedule goes by.
    """
    sampled = max(1, int(tokens.counts.sum()))
    plan = planning & tokens.mask
    execution = tokens.mask & ~planning
    scratch = np.empty(planning.shape)
    before = moments(tokens.raw, execution, scratch)
    seen = {"exec": before, "plan": moments(tokens.raw, plan, scratch)}
    if tokens.signal is not tokens.raw:
        seen |= {
            "post_exec": moments(tokens.signal, execution, scratch),
            "post_plan": moments(tokens.signal, plan, scratch),
        }
    out: dict[str, float] = {"credit/planning_token_ratio": np.count_nonzero(plan) / sampled}
    for name, figures in seen.items():
        out |= {f"credit/{name}_signal_mean": figures.mean, f"credit/{name}_signal_var": figures.variance}
    return out, before


class Moments(NamedTuple):
    """Of the signal of `n` tokens; zeros for none.

    Attributes:
        n: Tokens.
        mean: Their mean.
        variance: Their population variance.
    """

    n: int
    mean: float
    variance: float


def moments(signal: NDArray[np.float64], on: NDArray[np.bool_], scratch: NDArray[np.float64] | None = None) -> Moments:
    """Mean and population variance of `signal`, shape (B, T), where `on`. `scratch` is overwritten."""
    n = int(np.count_nonzero(on))
    if not n:
        return Moments(0, 0.0, 0.0)
    values = np.multiply(signal, on, out=scratch)
    mean = float(values.sum()) / n
    values -= mean
    values *= on
    return Moments(n, mean, float(np.einsum("ij,ij->", values, values)) / n)


def weight_figures(weights: NDArray[np.float64], active: NDArray[np.bool_]) -> dict[str, float]:
    """`credit/weight_min`, `_mean`, `_max` and `credit/changed_frac`; nothing without an active token.

    Args:
        weights: Shape (B, T).
        active: Shape (B, T): sampled tokens of episodes whose episode term is not 0; elsewhere a weight multiplies 0.
    """
    acting = weights[active]
    if not acting.size:
        return {}
    unchanged = np.count_nonzero((acting >= 1.0 - CHANGED) & (acting <= 1.0 + CHANGED))
    return {
        "credit/weight_min": float(acting.min()),
        "credit/weight_mean": float(acting.mean()),
        "credit/weight_max": float(acting.max()),
        "credit/changed_frac": 1.0 - unchanged / acting.size,
    }


def cosine_figure(name: str, advantages: NDArray[np.float64], other: NDArray[np.float64]) -> dict[str, float]:
    """The cosine between the advantages in use and others of the same tokens; nothing if either is 0."""
    norms = _norm(advantages) * _norm(other)
    return {name: min(1.0, float(np.einsum("ij,ij->", advantages, other)) / norms)} if norms else {}


def _norm(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.einsum("ij,ij->", values, values)))
