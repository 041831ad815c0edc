"""Draw the next ids of a batch and report what the sampler knew about each: logprob, entropy, top-1 logprob."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

_FAR = -1.0e4
"""Shifted logits below this count as this: exp() is 0 either way, and 0 * -inf never makes a NaN."""


def uniforms(seed: int, count: int) -> np.ndarray:
    """One uniform in [0, 1) per position of a reply; a longer reply of the same seed starts with the same ones."""
    return np.random.Generator(np.random.PCG64(seed & (2**64 - 1))).random(count)


@dataclass(slots=True)
class Knowledge:
    """What one batch of distributions looks like, before an id is chosen. Tensors are `[rows]` unless noted.

    Attributes:
        shifted: `[rows, vocabulary]` logits minus their maximum, float32.
        weights: `exp(shifted)`.
        total: Sum of the weights.
        entropies: Of the full distribution at temperature 1, nats.
        max_logprobs: Of the most likely id at temperature 1, nats.
    """

    shifted: torch.Tensor
    weights: torch.Tensor
    total: torch.Tensor
    entropies: torch.Tensor
    max_logprobs: torch.Tensor


def know(logits: torch.Tensor) -> Knowledge:
    """Read a batch of logits `[rows, vocabulary]` (any float type; the arithmetic is float32)."""
    logits = logits.float()
    shifted = (logits - logits.amax(dim=-1, keepdim=True)).clamp_min_(_FAR)
    weights = shifted.exp()
    total = weights.sum(dim=-1)
    log_total = total.log()
    # H = log Z - sum(p * z), with z shifted so that both terms are small: no cancellation of large numbers.
    mean = torch.linalg.vecdot(weights, shifted) / total  # einsum adds 50,000 terms in a row: 5e-4 nats off
    return Knowledge(shifted, weights, total, (log_total - mean).clamp_min_(0.0), -log_total)


def top_mean(known: Knowledge, count: int) -> torch.Tensor:
    """Mean log-probability of the `count` likeliest ids (of all, where there are fewer) at temperature 1, nats."""
    most = min(count, known.shifted.shape[-1])
    return known.shifted.topk(most, dim=-1).values.mean(dim=-1) - known.total.log()


def choose(known: Knowledge, temperature: float, uniform: torch.Tensor | None) -> torch.Tensor:
    """Ids `[rows]` by inverse CDF from one uniform (float64) per row; greedy where the temperature is 0.

    The running sum is float64, so that a vocabulary of 10^5 ids does not move the draw.
    """
    if temperature == 0.0 or uniform is None:
        return known.shifted.argmax(dim=-1)
    weights = known.weights if temperature == 1.0 else (known.shifted / temperature).exp()
    running = weights.cumsum(dim=-1, dtype=torch.float64)
    # Strictly above the threshold: an id of probability 0 is never drawn.
    target = uniform.unsqueeze(-1) * running[:, -1:]
    ids = torch.searchsorted(running, target, right=True).squeeze(-1)
    return ids.clamp_max_(weights.shape[-1] - 1)


def logprobs_of(known: Knowledge, ids: torch.Tensor, temperature: float) -> torch.Tensor:
    """Log-probability of `ids` under the sampling distribution (greedy reports temperature 1), nats."""
    chosen = known.shifted.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    if temperature in (0.0, 1.0):
        return chosen - known.total.log()
    return chosen / temperature - (known.shifted / temperature).exp().sum(dim=-1).log()
