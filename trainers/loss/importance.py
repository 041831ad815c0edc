"""Sampled against trained log-probabilities: how far apart they are, and the weight that corrects for it.

A sampler that is not exactly the trained weights (another number format, a server, older weights) draws from another
distribution than the one that TRL's ratio starts from. Each token is then weighted by
`min(exp(old - sampled), cap)` (truncated importance sampling, Ionides 2008). The weight is folded into the advantage,
which is exact for every loss that is allowed here: it is a constant >= 0, and `min(r * wA, clip(r) * wA)` is
`w * min(r * A, clip(r) * A)`; the signs that the clips, SAPO's temperatures and the off-policy mask look at stay, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Mismatch(NamedTuple):
    """Sampled against trained log-probabilities on the trained tokens of one batch, of all processes.

    Attributes:
        tokens: How many tokens were compared.
        advantaged: How many of them have an advantage that is not 0: what a gradient can come from.
        means: Figures for the log that are averaged; those of the weights only where they act. None without a token.
        largest: Figures of which the largest counts. `sampling/ratio_max` is that of either direction, before the cap.
    """

    tokens: float
    advantaged: float
    means: dict[str, float]
    largest: dict[str, float]


def log_ratios(old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`old - sampled` per token, nats; 0 where no token is trained or the sampler could not score it (NaN).

    Args:
        old: Log-probabilities under the weights that the ratio of the loss starts from, shape (B, T).
        sampled: Under the distribution that was sampled, same shape.
        mask: Not 0 where a token is trained, same shape.
    """
    return torch.where((mask != 0) & ~torch.isnan(sampled), old - sampled, 0.0)


def importance_weights(ratios: torch.Tensor, cap: float) -> torch.Tensor:
    """`min(exp(ratios), cap)`: exactly 1 where the two agree, and never negative."""
    return ratios.exp().clamp(max=cap)


def correct(
    inputs: dict[str, Any],
    trained: torch.Tensor,
    *,
    exact: bool,
    cap: float,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> Mismatch:
    """Compare sampled with trained log-probabilities; weight `inputs["advantages"]` unless the sampler is `exact`.

    Args:
        inputs: The batch of a loss, with `sampling_per_token_logps` and maybe `old_per_token_logps`.
        trained: Log-probabilities under the weights as they are now, shape (B, T), without gradient.
        exact: The sampler was exactly the trained weights: nothing is changed.
        cap: Of a weight.
        gather: Rows of all processes from those of this one.

    """
    on = inputs["completion_mask"] * inputs["tool_mask"]
    ratios = log_ratios(inputs.get("old_per_token_logps", trained), inputs["sampling_per_token_logps"], on)
    difference = ratios.abs()
    advantages = inputs["advantages"]
    per_token = advantages if advantages.dim() == 2 else advantages[:, None]
    figures = [on.sum(), difference.sum(), difference.max(), ((per_token != 0) & (on != 0)).sum()]
    if not exact:
        weights = importance_weights(ratios, cap)
        inputs["advantages"] = inputs["advantages"] * weights
        figures += [(weights * on).sum(), (weights * on).max(), ((ratios.exp() > cap) & (on != 0)).sum()]
    rows = gather(torch.stack([x.float() for x in figures])[None])  # one copy to the host for all of them
    total, most = rows.sum(0).tolist(), rows.max(0).values.tolist()
    tokens, largest_difference = total[0], most[2]
    if not tokens:
        return Mismatch(0.0, total[3], {}, {})
    means = {"sampling/logp_difference_mean": total[1] / tokens}
    largest = {
        "sampling/logp_difference_max": largest_difference,
        "sampling/ratio_max": math.exp(min(largest_difference, 50.0)),
    }
    if not exact:
        means["sampling/importance_mean"] = total[4] / tokens
        means["sampling/importance_capped_frac"] = total[6] / tokens
        largest["sampling/importance_max"] = most[5]
    return Mismatch(tokens, total[3], means, largest)
