"""An episode as TRL takes it: one completion with a mask."""

from __future__ import annotations

from agents.trajectory import Flat, Trajectory
from trainers.credit import NO_TURN


def as_completion(episode: Trajectory, end_id: int) -> Flat:
    """The episode as a completion; one that does not count keeps one token at least, and no token is trained."""
    flat = episode.flat()
    if not flat.ids:
        flat.ids, flat.logprobs, flat.mask, flat.turn_ids, flat.entropies = [end_id], [0.0], [0], [NO_TURN], [0.0]
    if episode.reward is None:
        flat.mask = [0] * len(flat.mask)
        flat.turn_ids = [NO_TURN] * len(flat.turn_ids)
    return flat
