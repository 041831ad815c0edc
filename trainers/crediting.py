"""Between trainer and credit: what an episode brings to its group, gathered over processes, and back per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from accelerate.utils import gather_object
from numpy.typing import NDArray

from agents.trajectory import Flat, Trajectory, Turn
from trainers.credit import NO_TURN, Credit, CreditBatch, CreditResult, TurnRecord, TurnSignal


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode, as small as it travels between processes.

    Attributes:
        reward: `None` for an infrastructure failure.
        turns: Empty for an episode that does not count.
        turn_ids: One per completion id; likewise `logprobs` and `entropies` (`None`: the sampler knew none).
    """

    reward: float | None
    turns: list[TurnRecord]
    turn_ids: NDArray[np.int64]
    logprobs: NDArray[np.float64]
    entropies: NDArray[np.float64] | None


def record_of(episode: Trajectory, flat: Flat, signal: TurnSignal) -> EpisodeRecord:
    """What an episode brings to its group."""
    counts = episode.reward is not None
    return EpisodeRecord(
        episode.reward,
        [TurnRecord(turn_signal(turn, signal), turn.anchor) for turn in episode.turns] if counts else [],
        np.asarray(flat.turn_ids, dtype=np.int64),
        np.asarray(flat.logprobs, dtype=np.float64),
        None if flat.entropies is None else np.asarray(flat.entropies, dtype=np.float64),
    )


def turn_signal(turn: Turn, signal: TurnSignal) -> float | None:
    """What a turn earned by itself; `None` where it has no signal (a turn that submits has none of either kind)."""
    if signal is TurnSignal.PROGRESS:
        return turn.signal
    if turn.action == "malformed":
        return 0.0
    if turn.exit_code is None and not turn.timed_out:
        return None
    return float(turn.exit_code == 0 and not turn.timed_out)


def assign(credit: Credit, local: Sequence[EpisodeRecord], group_size: int, process: int) -> CreditResult:
    """Credit for the rows of this process; groups may span processes, so every process gathers all of them."""
    everyone: list[EpisodeRecord] = gather_object(list(local))
    width = max(len(record.turn_ids) for record in everyone)
    known = all(record.entropies is not None for record in everyone)
    result = credit.assign(
        CreditBatch(
            rewards=[record.reward for record in everyone],
            turns=[record.turns for record in everyone],
            turn_ids=_rows([record.turn_ids for record in everyone], width, NO_TURN),
            group_size=group_size,
            logprobs=_rows([record.logprobs for record in everyone], width, 0.0),
            entropies=_rows([r.entropies for r in everyone if r.entropies is not None], width, 0.0) if known else None,
        )
    )
    mine = slice(process * len(local), (process + 1) * len(local))
    return CreditResult(result.advantages[mine], result.episode[mine], result.metrics)


def _rows(rows: Sequence[NDArray], width: int, fill: float) -> NDArray:
    out = np.full((len(rows), width), fill, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out
