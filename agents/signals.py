"""A turn's uncertainty from what the sampler reported: one number where it is known, an interval where only bounds are.

Forced ids say nothing about the policy's choice and are left out. Missing is `None`, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from agents.policy import Completion
from agents.uncertainty import Aggregate, Bounds, aggregate, confidence, published_uncertainty


class Signal(StrEnum):
    """What measures one sampled id."""

    ENTROPY = "entropy"
    """Entropy of the full distribution, nats. From top-k log-probabilities only an interval."""
    CONFIDENCE = "confidence"
    """The confidence score of the T2PO authors' code (no unit, higher is surer). From top-k only an interval."""
    TOP1 = "top1"
    """Negative log-probability of the likeliest id, nats: exact from any engine that reports it."""
    PUBLISHED = "published"
    """As the T2PO paper writes it: the geometric mean of `M_t`, scaled within the reply (0 to 1). Needs the whole
    distribution, and `Request.top`."""
    OFFICIAL = "official"
    """As the T2PO authors' code takes it: the arithmetic mean of `confidence` behind the first `OFFICIAL_SKIP` ids."""


OFFICIAL_SKIP = 32
"""Ids that the authors' code leaves out of a turn's mean. It keeps scores once there are more than 32 output tokens; we
read: those from the 33rd on."""
_OWN_MEAN = {Signal.PUBLISHED: Aggregate.GEOMETRIC, Signal.OFFICIAL: Aggregate.ARITHMETIC}
"""Signals that name their mean, too."""


def mean_of(signal: Signal, how: Aggregate) -> Aggregate:
    """The mean that goes with a signal: its own, where it has one."""
    return _OWN_MEAN.get(signal, how)


def token_signals(completion: Completion, signal: Signal, vocabulary: int) -> list[Bounds] | None:
    """The signal of each id that was not forced, in order; `None` where the engine did not report what it needs.

    Args:
        completion: A reply.
        signal: Which one.
        vocabulary: V; only `confidence` and `official` use it.
    """
    first = OFFICIAL_SKIP if signal is Signal.OFFICIAL else 0
    free = [at for at, forced in enumerate(completion.forced) if not forced and at >= first]
    top = completion.max_logprobs
    if signal is Signal.TOP1:
        return None if top is None else [exactly(-top[at]) for at in free]
    if signal is Signal.PUBLISHED:
        means = completion.top_means
        if completion.entropies is None or means is None:
            return None
        scores = published_uncertainty([completion.entropies[at] for at in free], [-means[at] for at in free])
        return [exactly(score) for score in scores]
    if completion.entropies is not None:
        entropies = [exactly(completion.entropies[at]) for at in free]
    elif completion.entropy_bounds is not None:
        entropies = [Bounds(*completion.entropy_bounds[at]) for at in free]
    else:
        return None
    if signal is Signal.ENTROPY:
        return entropies
    if top is None:
        return None
    # The surer, the less entropy: the ends change places.
    return [
        Bounds(confidence(h.upper, top[at], vocabulary), confidence(h.lower, top[at], vocabulary))
        for h, at in zip(entropies, free, strict=True)
    ]


def turn_signal(values: Sequence[Bounds] | None, how: Aggregate, min_tokens: int = 1) -> Bounds | None:
    """A turn's value from its ids' values; `None` for missing values or fewer than `min_tokens`.

    Both means grow with every value, so the means of the ends are the ends of the mean.
    """
    if values is None:
        return None
    lower = aggregate([value.lower for value in values], how, min_tokens=min_tokens)
    upper = aggregate([value.upper for value in values], how, min_tokens=min_tokens)
    return None if lower is None or upper is None else Bounds(lower, upper)


def exactly(value: float) -> Bounds:
    """A value that is known."""
    return Bounds(value, value)
