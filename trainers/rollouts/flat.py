"""Flat groups: every token of theirs would weigh 0. Which they are, and which tasks take their places.

A group whose rewards are all equal is not flat when its turns were told apart: the turn term then teaches although the
episode term is 0 (a public trainer skips such groups and loses that signal).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from trainers.credit import NO_TURN, CreditSettings, TurnCredit, TurnSignal, credit_terms, gigpo_advantages
from trainers.credit.batch import padded, turn_records
from trainers.rollouts.completion import as_completion, is_truncated, without_tokens


def weightless(
    episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal, *, mask_truncated: bool = False
) -> bool:
    """Whether credit gives every token of this group the weight 0.

    Read from the episode and the turn term, by the function that credit itself uses, on the tokens that will be
    trained: whatever divides or reshapes the terms afterwards leaves 0 at 0.

    Args:
        episodes: The K attempts at one task.
        settings: Of the run.
        signal: What a turn earns by itself.
        mask_truncated: Episodes that a token budget cut off are kept out of the loss.
    """
    flats = [as_completion(episode, 0) for episode in episodes]
    if mask_truncated:
        flats = [without_tokens(f) if is_truncated(e) else f for e, f in zip(episodes, flats, strict=True)]
    episode, turns = _terms(episodes, settings, signal)
    turn_ids = padded([flat.turn_ids for flat in flats], NO_TURN)
    alpha, beta = settings.alpha_episode, settings.beta_turn
    return not gigpo_advantages(episode, turns.advantages, turn_ids, alpha=alpha, beta=beta).any()


def told_apart(episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal) -> bool:
    """Whether any turn of this group has an advantage, whatever the turn term weighs; arguments as `weightless`."""
    _, turns = _terms(episodes, settings, signal)
    return any(map(any, turns.advantages))


def _terms(
    episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal
) -> tuple[NDArray[np.float64], TurnCredit]:
    """Both terms of a group, by the function that credit itself uses; an episode without a reward brings no turns."""
    states = settings.needs_states
    turns = [turn_records(e, signal, states=states) if e.reward is not None else [] for e in episodes]
    return credit_terms([episode.reward for episode in episodes], turns, len(episodes), settings)


def other_tasks(ids: Collection[str], used: Collection[str], count: int, *seed: int | str) -> list[str]:
    """Up to `count` of `ids` that are not in `used`, drawn without replacement; the same parts of a seed, the same."""
    left = sorted(set(ids) - set(used))
    return random.Random(derive_seed(*seed)).sample(left, min(count, len(left)))
