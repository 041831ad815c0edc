"""Episodes that a token budget cut off: kept out of the loss, where `mask_truncated_completions` asks for it.

TRL's own rule looks at the last id of a completion, which is wrong for episodes: a capped reply in the middle is no
end, and a last reply that was capped may have ended its task. Here an episode is truncated when its stop reason is
`max_tokens`. Its reward stays in the mean of its group, as in TRL (overlong filtering, DAPO, Yu et al. 2025).
"""

from __future__ import annotations

from dataclasses import replace

from agents.trajectory import Flat, Trajectory
from envs.conversation import StopReason
from trainers.credit import NO_TURN
from trainers.rollouts.played import Played


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
