"""How unsure the sampler was: per token, per turn, bounds where only top-k is known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agents.policy import Completion

# -- How unsure the sampler was: per-token scores, turn aggregates, and bounds where only top-k logprobs are known ----
# Units: nats, natural logarithm, distributions at temperature 1. A missing value is `None`, never 0.

CONFIDENCE_WEIGHT = 0.6
"""Weight of the top-1 logprob in the confidence score of the T2PO authors' code (their `combine_alpha`)."""

PUBLISHED_WEIGHT = 0.4
"""Weight of the entropy in the published score of T2PO (its `alpha`)."""
TOP = 20
"""Likeliest ids that the published confidence looks at (its `j`). The number is ours."""
_SAME = 1e-9
"""Values no further apart than this are equal: scaling them would blow rounding up."""


class Aggregate(StrEnum):
    """How a turn's value comes from its tokens' values."""

    ARITHMETIC = "arithmetic"
    GEOMETRIC = "geometric"


def normalised_entropy(entropy: float, vocabulary: int) -> float:
    """Entropy as a share of its maximum `log(vocabulary)`, clipped to [0, 1]."""
    return min(1.0, max(0.0, entropy / math.log(vocabulary)))


def confidence(entropy: float, max_logprob: float, vocabulary: int, weight: float = CONFIDENCE_WEIGHT) -> float:
    """The confidence score of the T2PO authors' code: higher is surer.

    `weight * max_logprob + (1 - weight) * (1 - H / log V)`; at most `1 - weight`.
    """
    return weight * max_logprob + (1.0 - weight) * (1.0 - normalised_entropy(entropy, vocabulary))


def uncertainty(entropy: float, max_logprob: float, vocabulary: int, weight: float = CONFIDENCE_WEIGHT) -> float:
    """The same score turned round: `(1 - weight) * H / log V - weight * max_logprob`, 0 for a sure token.

    Equals `(1 - weight) - confidence(...)`, so differences of the two have the same size.
    """
    return (1.0 - weight) * normalised_entropy(entropy, vocabulary) - weight * max_logprob


def scaled(values: Sequence[float]) -> list[float]:
    """Values as shares of the way from their smallest to their largest; zeros where all are equal."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    return [(value - low) / (high - low) if high - low > _SAME else 0.0 for value in values]


def published_uncertainty(
    entropies: Sequence[float], confidences: Sequence[float], weight: float = PUBLISHED_WEIGHT
) -> list[float]:
    """The score of the T2PO paper for each token: `M_t = weight * H~_t + (1 - weight) * (1 - C~_t)`, in [0, 1].

    Both are scaled within the trajectory, which is what is given here.

    Args:
        entropies: `H_t`, one per token, nats.
        confidences: `C_t`: minus the mean log-probability of the likeliest ids, nats; it grows as the rest gets less.
        weight: The paper's `alpha`.
    """
    pairs = zip(scaled(entropies), scaled(confidences), strict=True)
    return [weight * h + (1.0 - weight) * (1.0 - c) for h, c in pairs]


def aggregate(
    values: Sequence[float], how: Aggregate = Aggregate.ARITHMETIC, *, min_tokens: int = 1, floor: float = 1e-6
) -> float | None:
    """A turn's value.

    Args:
        values: One per token.
        how: Arithmetic mean, or geometric mean of values raised to at least `floor` (one sure token would otherwise
            make the whole turn 0).
        min_tokens: Fewer values than this are no evidence: `None`.
        floor: See `how`.
    """
    if len(values) < max(1, min_tokens):
        return None
    if how is Aggregate.ARITHMETIC:
        return math.fsum(values) / len(values)
    return math.exp(math.fsum(math.log(max(value, floor)) for value in values) / len(values))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The true value lies in `[lower, upper]`; both are equal where it is known."""

    lower: float
    upper: float

    @property
    def known(self) -> bool:
        """Whether it is one number."""
        return self.lower == self.upper

    def distance(self, other: Bounds) -> Bounds:
        """Bounds of the absolute difference."""
        apart = max(self.lower - other.upper, other.lower - self.upper, 0.0)
        return Bounds(apart, max(self.upper - other.lower, other.upper - self.lower))


def entropy_bounds(top_logprobs: Sequence[float], vocabulary: int) -> Bounds | None:
    """What top-k logprobs say about the entropy of the full distribution.

    With `S` the entropy terms of the known ids and `R` the probability left to the other `V - k`: the rest adds least
    when it is packed as tightly as the smallest known probability allows, most when it is spread evenly. Renormalising
    the known ids instead can be wrong by any amount (0.9 and a tail of 0.1 over 10,000 ids: 0.003 for 1.246).

    Args:
        top_logprobs: Logprobs of the k most likely ids.
        vocabulary: V.

    Returns:
        Bounds, or `None` when nothing is known.
    """
    if not top_logprobs:
        return None
    probabilities = [math.exp(value) for value in top_logprobs]
    known = math.fsum(-p * value for p, value in zip(probabilities, top_logprobs, strict=True) if p > 0.0)
    rest = max(0.0, 1.0 - math.fsum(probabilities))
    others = vocabulary - len(probabilities)
    if rest <= 0.0 or others <= 0:
        return Bounds(known, known)
    largest = min(min(probabilities), rest)
    if largest <= 0.0:
        return Bounds(known, known - rest * math.log(rest / others))
    return Bounds(known - rest * math.log(largest), known - rest * math.log(rest / others))


# ---------------------------------------------------------------------------------------------------------------------
# A turn's uncertainty from what the sampler reported: one number where it is known, an interval where only bounds
# are.
#
# Forced ids say nothing about the policy's choice and are left out. Missing is `None`, never 0.


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
