"""What credit reads of played episodes: a batch of arrays, made on each process and joined over all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from agents.credited import EpisodeKey, key_of
from agents.trajectory import Flat, Trajectory, Turn
from trainers.credit.grouping import TurnRecord, TurnSignal
from trainers.errors import ConfigError

if TYPE_CHECKING:
    from trainers.credit.pipeline import Credit

NO_TURN = -1
"""Turn id of a token that no turn sampled (environment, template, forced, padding)."""
NO_ENTROPIES = (
    "token_signal=entropy needs the exact entropy of every sampled token, and this sampler has only bounds (from the "
    "most likely tokens). Use token_signal=surprisal, or sample in process."
)


@dataclass(frozen=True, slots=True)
class TokenText:
    """What planning masks read.

    Attributes:
        ids: Shape (B, T).
        texts: Text of every id that a turn sampled; the same id has the same text in every step.
    """

    ids: NDArray[np.int64]
    texts: Mapping[int, str]


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
        keys: Which episodes they are, for records.
    """

    rewards: Sequence[float | None]
    turns: Sequence[Sequence[TurnRecord]]
    turn_ids: NDArray[np.int64]
    group_size: int
    logprobs: NDArray[np.float64] | None = None
    entropies: NDArray[np.float64] | None = None
    tokens: TokenText | None = None
    passed: Sequence[bool | None] = ()
    keys: Sequence[EpisodeKey] = ()

    def turn_advantages(self, advantages: NDArray[np.float64]) -> dict[EpisodeKey, list[float | None]]:
        """Of each turn the mean over its tokens, shape (B, T); `None` for one of which nothing is trained."""
        found: dict[EpisodeKey, list[float | None]] = {}
        for key, turns, ids, values in zip(self.keys, self.turns, self.turn_ids, advantages, strict=True):
            on = ids != NO_TURN
            counts = np.bincount(ids[on], minlength=len(turns))
            sums = np.bincount(ids[on], weights=values[on], minlength=len(turns))
            found[key] = [float(s / n) if n else None for s, n in zip(sums, counts, strict=True)]
        return found


def batch_of(
    episodes: Sequence[Trajectory],
    flats: Sequence[Flat],
    signal: TurnSignal,
    credit: Credit,
    *,
    group_size: int,
    tokenizer: Any = None,
    passed: Sequence[bool | None] | None = None,
) -> CreditBatch:
    """What credit reads of the episodes of this process, and no more: it travels to every other process.

    Args:
        episodes: In the order of the rows.
        flats: The same as completions.
        signal: What a turn earns by itself.
        credit: The operators of the run.
        group_size: K.
        tokenizer: Gives ids their text; only used when an operator reads it.
        passed: Verdicts of the first draw, where more was played than is trained on: pass rates of what was chosen for
            training say nothing about the policy. Default: those of `episodes`.

    Raises:
        ConfigError: An operator reads exact entropies and the sampler had none.
    """
    if credit.needs_entropies and any(flat.entropies is None and any(flat.mask) for flat in flats):
        raise ConfigError(NO_ENTROPIES)
    turn_ids = padded([flat.turn_ids for flat in flats], NO_TURN)
    tokens = None
    if credit.needs_tokens:
        ids = padded([flat.ids for flat in flats], 0)
        sampled = np.unique(ids[turn_ids >= 0]).tolist()
        tokens = TokenText(ids, {number: tokenizer.decode([number]) for number in sampled})
    return CreditBatch(
        rewards=[episode.reward for episode in episodes],
        turns=[turn_records(e, signal, states=credit.needs_states) if e.reward is not None else [] for e in episodes],
        turn_ids=turn_ids,
        group_size=group_size,
        logprobs=padded([flat.logprobs for flat in flats], 0.0) if credit.needs_logprobs else None,
        # Without a sampled token there may be no entropies, and none is read.
        entropies=padded([flat.entropies or [] for flat in flats], 0.0, turn_ids.shape[1])
        if credit.needs_entropies
        else None,
        tokens=tokens,
        passed=[e.passed if e.reward is not None else None for e in episodes] if passed is None else passed,
        keys=[key_of(episode) for episode in episodes],
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


def joined(parts: Sequence[CreditBatch]) -> CreditBatch:
    """The rows of all processes, those of the first before those of the second."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.turn_ids.shape[1] for part in parts)

    def rows(arrays: Sequence[NDArray | None], fill: float) -> NDArray | None:
        wide = [np.pad(a, ((0, 0), (0, width - a.shape[1])), constant_values=fill) for a in arrays if a is not None]
        return np.concatenate(wide) if wide else None

    known = [part.tokens for part in parts if part.tokens is not None]
    ids = rows([tokens.ids for tokens in known], 0)
    texts = {number: text for tokens in known for number, text in tokens.texts.items()}
    return CreditBatch(
        rewards=[reward for part in parts for reward in part.rewards],
        turns=[turns for part in parts for turns in part.turns],
        turn_ids=padded([row for part in parts for row in part.turn_ids], NO_TURN),
        group_size=parts[0].group_size,
        logprobs=rows([part.logprobs for part in parts], 0.0),
        entropies=rows([part.entropies for part in parts], 0.0),
        tokens=None if ids is None else TokenText(ids, texts),
        passed=[passed for part in parts for passed in part.passed],
        keys=[key for part in parts for key in part.keys],
    )


def padded(rows: Sequence[Sequence[float] | NDArray], fill: float, width: int | None = None) -> NDArray:
    """Rows of different length as one array of shape (rows, width), of the type of `fill`; default: as wide as needed.

    Raises:
        ValueError: A row is longer than `width`.
    """
    out = np.full((len(rows), max(map(len, rows)) if width is None else width), fill)
    for place, row in zip(out, rows, strict=True):
        if len(row) > len(place):
            raise ValueError(f"a row of {len(row)} tokens does not fit into {len(place)}")
        place[: len(row)] = row
    return out
