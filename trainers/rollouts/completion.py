"""An episode as TRL takes it: one completion with a mask, and which episodes a token budget keeps out of the loss.

TRL's own rule for truncated episodes (`mask_truncated_completions`) looks at the last id of a completion, which is
wrong for episodes: a capped reply in the middle is no end, and a last reply that was capped may have ended its task.
Here an episode is truncated when its stop reason is `max_tokens`. Its reward stays in the mean of its group, as in TRL
(overlong filtering, DAPO, Yu et al. 2025).
"""

from __future__ import annotations

from dataclasses import replace

from agents.trajectory import Flat, Trajectory
from envs.conversation import StopReason
from trainers.credit import NO_TURN
from trainers.rollouts.played import Played


def as_completion(episode: Trajectory, end_id: int) -> Flat:
    """The episode as a completion; one that does not count keeps one token at least, and no token is trained."""
    flat = episode.flat()
    if not flat.ids:
        flat = Flat(ids=[end_id], mask=[0], logprobs=[0.0], entropies=[0.0], turn_ids=[NO_TURN])
    return flat if episode.reward is not None else without_tokens(flat)


def is_truncated(episode: Trajectory) -> bool:
    """Whether a token budget cut the episode off."""
    return bool(episode.stop_reason == StopReason.MAX_TOKENS)


def without_tokens(flat: Flat) -> Flat:
    """The same completion with no token to train."""
    return replace(flat, mask=[0] * len(flat.mask), turn_ids=[NO_TURN] * len(flat.turn_ids))


def mask_truncated(played: Played) -> Played:
    """The same episodes; no token of a truncated one is trained, and `env/truncated_masked_frac` counts them."""
    cut = [is_truncated(episode) for episode in played.episodes]
    flats = [without_tokens(flat) if truncated else flat for flat, truncated in zip(played.flats, cut, strict=True)]
    return replace(played, flats=flats, metrics={**played.metrics, "env/truncated_masked_frac": sum(cut) / len(cut)})
