"""Between trainer and credit: what an episode brings to its group, gathered over processes, and back per token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from accelerate.utils import gather_object
from numpy.typing import NDArray

from agents.trajectory import Flat, Trajectory, Turn
from trainers.credit import NO_TURN, Credit, CreditBatch, CreditResult, TokenText, TurnRecord, TurnSignal
from trainers.errors import ConfigError

NO_ENTROPIES = (
    "token_signal=entropy needs the exact entropy of every sampled token, and this sampler has only bounds (from the "
    "most likely tokens). Use token_signal=surprisal, or sample in process."
)


@dataclass(frozen=True, slots=True)
class EpisodeRecord:
    """One episode, as small as it travels between processes.

    Attributes:
        reward: `None` for an infrastructure failure.
        turns: Empty for an episode that does not count.
        turn_ids: One per completion id; likewise `logprobs`, `entropies` and `ids` (`None`: no operator reads them).
        passed: Whether it passed; `None` without a grade. Where more was played than is trained on, of the first draw
            (the trainer puts that in): pass rates of what was chosen for training say nothing about the policy.
    """

    reward: float | None
    turns: list[TurnRecord]
    turn_ids: NDArray[np.int64]
    logprobs: NDArray[np.float64] | None = None
    entropies: NDArray[np.float64] | None = None
    ids: NDArray[np.int64] | None = None
    passed: bool | None = None


def record_of(episode: Trajectory, flat: Flat, signal: TurnSignal, credit: Credit | None = None) -> EpisodeRecord:
    """What an episode brings to its group: with `credit`, also what its operators read.

    Raises:
        ConfigError: An operator reads exact entropies and the sampler had none.
    """
    counts = episode.reward is not None
    if credit is not None and credit.needs_entropies and flat.entropies is None and any(flat.mask):
        raise ConfigError(NO_ENTROPIES)
    return EpisodeRecord(
        episode.reward,
        turn_records(episode, signal, states=credit is not None and credit.needs_states) if counts else [],
        np.asarray(flat.turn_ids, dtype=np.int64),
        np.asarray(flat.logprobs, dtype=np.float64) if credit is not None and credit.needs_logprobs else None,
        # Without a sampled token there may be none, and none is read.
        np.asarray(flat.entropies or [0.0] * len(flat.ids), dtype=np.float64)
        if credit is not None and credit.needs_entropies
        else None,
        np.asarray(flat.ids, dtype=np.int64) if credit is not None and credit.needs_tokens else None,
        episode.passed if counts else None,
    )


def turn_records(episode: Trajectory, signal: TurnSignal, *, states: bool = False) -> list[TurnRecord]:
    """What the turns bring; with `states`, the text of the observation before each (empty before the first)."""
    before = ["", *[turn.observation for turn in episode.turns]] if states else [""] * (len(episode.turns) + 1)
    return [
        TurnRecord(earned, turn.anchor, state, turn.action == "malformed")
        for turn, earned, state in zip(episode.turns, turn_signals(episode, signal), before, strict=False)
    ]


def turn_signals(episode: Trajectory, signal: TurnSignal) -> list[float | None]:
    """What each turn of an episode earned by itself; `None` where a turn has no signal.

    With `outcome` the last turn earned the episode's reward and the others nothing; without a reward none has a signal.
    """
    if signal is not TurnSignal.OUTCOME:
        return [_own_signal(turn, signal) for turn in episode.turns]
    if episode.reward is None:
        return [None] * len(episode.turns)
    last = len(episode.turns) - 1
    return [episode.reward if index == last else 0.0 for index in range(len(episode.turns))]


def _own_signal(turn: Turn, signal: TurnSignal) -> float | None:
    """What the turn shows by itself (a turn that submits has no signal of either kind)."""
    if signal is TurnSignal.PROGRESS:
        return turn.signal
    if turn.action == "malformed":
        return 0.0
    if turn.exit_code is None and not turn.timed_out:
        return None
    return float(turn.exit_code == 0 and not turn.timed_out)


def assign(
    credit: Credit,
    local: Sequence[EpisodeRecord],
    group_size: int,
    process: int,
    tokenizer: Any = None,
    step: int | None = None,
) -> CreditResult:
    """Credit for the rows of this process; groups may span processes, so every process gathers all of them.

    Args:
        credit: The operators.
        local: The episodes of this process.
        group_size: K.
        process: Number of this process.
        tokenizer: Gives ids their text; only used when an operator reads it.
        step: Optimizer steps taken before, for schedules.
    """
    everyone: list[EpisodeRecord] = gather_object(list(local))
    width = max(len(record.turn_ids) for record in everyone)
    result = credit.assign(
        CreditBatch(
            rewards=[record.reward for record in everyone],
            turns=[record.turns for record in everyone],
            turn_ids=padded([record.turn_ids for record in everyone], width, NO_TURN),
            group_size=group_size,
            logprobs=_padded_if_known([record.logprobs for record in everyone], width),
            entropies=_padded_if_known([record.entropies for record in everyone], width),
            tokens=token_text(everyone, width, tokenizer) if credit.needs_tokens else None,
            passed=[record.passed for record in everyone],
        ),
        step,
    )
    mine = slice(process * len(local), (process + 1) * len(local))
    return CreditResult(result.advantages[mine], result.episode[mine], result.metrics)


def token_text(records: Sequence[EpisodeRecord], width: int, tokenizer: Any) -> TokenText:
    """Ids of all episodes, shape (episodes, width), and the text of each id that a turn sampled, decoded by itself."""
    ids = padded([record.ids for record in records if record.ids is not None], width, 0)
    turn_ids = padded([record.turn_ids for record in records], width, NO_TURN)
    return TokenText(ids, {number: tokenizer.decode([number]) for number in np.unique(ids[turn_ids >= 0]).tolist()})


def padded(rows: Sequence[NDArray], width: int, fill: float) -> NDArray:
    """Rows of different length as one array of shape (rows, width)."""
    out = np.full((len(rows), width), fill, dtype=rows[0].dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _padded_if_known(rows: Sequence[NDArray | None], width: int) -> NDArray | None:
    """Rows side by side, 0 after their ends; `None` where they did not travel."""
    known = [row for row in rows if row is not None]
    return padded(known, width, 0.0) if len(known) == len(rows) else None
