"""Turn operators: how good each turn was among comparable turns of its group (GiGPO, Feng et al. 2025).

Comparable means: same task, same step, and either the same anchor (the state before the turn) or the same turn
index. A turn's value is its discounted return of turn signals. Computed in float64; a turn alone in its group, a
near-constant group and a turn without a signal get exactly 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from trainers.credit.numeric import centred

EPS = 1e-6
"""Added to the standard deviation, as in the GiGPO reference."""


class TurnGrouping(StrEnum):
    """Which turns are compared with each other."""

    ANCHOR = "anchor"
    """Turns that began in the same state (GiGPO): safe when the policy controls how long an episode is."""
    TURN_INDEX = "turn_index"
    """Turns with the same number. A named baseline: biased when episodes differ in length."""
    NONE = "none"
    """No turn term."""


class TurnSignal(StrEnum):
    """What a turn earns by itself."""

    PROGRESS = "progress"
    """Change of the rate of the file assertions, measured on the host after the turn."""
    EXIT_CODE = "exit_code"
    """1 where the command ran and ended with 0, else 0; the submitting turn has none. A named baseline: weak, since
    a command on a wrong file succeeds, too, and a search that finds nothing does not."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What one turn brings to the comparison.

    Attributes:
        signal: What the turn earned by itself; `None` where it has none (the submitting turn).
        anchor: The state before the turn.
    """

    signal: float | None
    anchor: str


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
) -> TurnCredit:
    """Advantages of all turns of one step.

    Args:
        episodes: The episodes of the step, the K of a task side by side; an empty list for one that does not count.
        group_size: K.
        grouping: Which turns are compared.
        gamma: Discount of later turns' signals.
        divide_by_std: Divide by the sample standard deviation of the group.
        eps: Added to the standard deviation.

    Raises:
        ValueError: The episodes do not divide into groups, or a signal is not finite.
    """
    if group_size < 1 or len(episodes) % group_size:
        raise ValueError(f"{len(episodes)} episodes do not divide into groups of {group_size}")
    out = [[0.0] * len(turns) for turns in episodes]
    if grouping is TurnGrouping.NONE:
        return TurnCredit(out, 0.0)
    members: dict[tuple[int, str | int], list[tuple[int, int, float]]] = defaultdict(list)
    for i, turns in enumerate(episodes):
        for t, value in enumerate(discounted_returns([turn.signal for turn in turns], gamma)):
            if value is not None:
                key = turns[t].anchor if grouping is TurnGrouping.ANCHOR else t
                members[i // group_size, key].append((i, t, value))
    grouped = total = 0
    for group in members.values():
        total += len(group)
        grouped += len(group) if len(group) > 1 else 0
        values = centred(np.array([value for _, _, value in group]), divide_by_std=divide_by_std, eps=eps)
        for (i, t, _), advantage in zip(group, values, strict=True):
            out[i][t] = float(advantage)
    return TurnCredit(out, grouped / total if total else 0.0)
