"""Flat groups: every token of theirs would weigh 0. Which they are, and which tasks take their places.

A group whose rewards are all equal is not flat when its turns were told apart: the turn term then teaches although the
episode term is 0 (a public trainer skips such groups and loses that signal).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from trainers.credit import CreditSettings, EpisodeScale, TurnGrouping, TurnSignal, episode_advantages, turn_advantages
from trainers.crediting import record_of


def weightless(episodes: Sequence[Trajectory], settings: CreditSettings, signal: TurnSignal) -> bool:
    """Whether credit gives every token of this group the weight 0.

    Read from the episode and the turn term alone: whatever divides or reshapes them afterwards leaves 0 at 0.

    Args:
        episodes: The K attempts at one task.
        settings: Of the run; a term with weight 0 does not count.
        signal: What a turn earns by itself.
    """
    size = len(episodes)
    records = [record_of(episode, episode.flat(), signal) for episode in episodes]
    if settings.alpha_episode and episode_advantages([r.reward for r in records], size, EpisodeScale.NONE).any():
        return False
    if not settings.beta_turn or settings.turn_grouping is TurnGrouping.NONE:
        return True
    turns = turn_advantages([r.turns for r in records], size, settings.turn_grouping, gamma=settings.turn_gamma)
    return not any(value for values in turns.advantages for value in values)


def other_tasks(ids: Collection[str], used: Collection[str], count: int, *seed: int | str) -> list[str]:
    """Up to `count` of `ids` that are not in `used`, drawn without replacement; the same parts of a seed, the same."""
    left = sorted(set(ids) - set(used))
    return random.Random(derive_seed(*seed)).sample(left, min(count, len(left)))
