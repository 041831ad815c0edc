"""Decode steps: feed each row's last id, sample its next one, and report what the sampler knew.

A stepper may take several steps before the host looks at them. Rows that end in the middle decode on for a few ids,
which the host drops: what is stored behind a row's valid ids is hidden by the mask and written over later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from agents.policies.decoder import Decoder
from agents.policies.draw import Knowledge, choose, know, logprobs_of
from agents.policies.kv import SlotCache


@dataclass(slots=True)
class Sampled:
    """What some steps gave.

    Attributes:
        ids: `[steps, rows]`.
        facts: `[3, steps, rows]`: logprobs under the sampling distribution, entropies, top-1 logprobs (nats).
        known: The only step's distributions, where they were asked for.
    """

    ids: torch.Tensor
    facts: torch.Tensor
    known: Knowledge | None

    def put(self, forced: dict[int, int], temperature: float) -> None:
        """Replace ids (row to id) that were sampled in the only step, and their logprobs."""
        assert self.known is not None and self.ids.shape[0] == 1
        for row, wanted in forced.items():
            self.ids[0, row] = wanted
        self.facts[0, 0] = logprobs_of(self.known, self.ids[0], temperature)


def sample(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None) -> Sampled:
    """One step from logits `[rows, vocabulary]` and one uniform per row (`None` where greedy)."""
    known = know(logits)
    ids = choose(known, temperature, uniform)
    facts = torch.stack((logprobs_of(known, ids, temperature), known.entropies, known.max_logprobs))
    return Sampled(ids.unsqueeze(0), facts.unsqueeze(1), known)


@dataclass(frozen=True, slots=True)
class Feed:
    """Where decode steps go on from: rows `0..rows-1` in the slots of the same numbers.

    Attributes:
        ids: `[rows]`: the last id of each row, not yet in the cache.
        lengths: Ids that each row's slot holds.
        draws: Uniforms `[rows, steps]`; `None` where greedy.
        temperature: Of the draw.
        steps: From 1 to the stepper's `most`.
        keep: Return the distributions of the step (`steps` is 1), so that ids may be replaced.
    """

    ids: torch.Tensor
    lengths: Sequence[int]
    draws: torch.Tensor | None
    temperature: float
    steps: int = 1
    keep: bool = False


class Stepper(Protocol):
    """How decode steps run."""

    most: int
    """Steps of one `advance` at most."""

    def advance(self, feed: Feed) -> Sampled:
        """Feed each row's last id, and go on from there."""

    def weights_changed(self, *, in_place: bool) -> None:
        """Drop what was prepared for the old weights; `in_place`: every parameter stayed where it was."""


class EagerStepper:
    """One forward at a time through the model's own modules, on any device."""

    most = 1

    def __init__(self, decoder: Decoder, cache: SlotCache) -> None:
        self._decoder, self._cache = decoder, cache

    def advance(self, feed: Feed) -> Sampled:
        """See `Stepper`."""
        rows, read = len(feed.lengths), max(feed.lengths) + 1
        self._cache.reserve(rows, read)
        positions = torch.tensor(feed.lengths, device=feed.ids.device).unsqueeze(1)
        self._cache.select(0, rows, positions, read)
        hidden = self._decoder.hidden(feed.ids.unsqueeze(1), positions, read, self._cache)
        logits = self._decoder.logits(hidden[:, -1])
        return sample(logits, feed.temperature, None if feed.draws is None else feed.draws[:, 0])

    def weights_changed(self, *, in_place: bool) -> None:
        """Nothing is prepared."""
