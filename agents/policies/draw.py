"""One decode step: the draw of a token, and what the sampler knew about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from agents.policies.decoder import Decoder
from agents.policies.slots import WASTE, SlotCache

# -- Draw the next ids of a batch and report what the sampler knew about each: logprob, entropy, top-1 logprob --------

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


class Cut(NamedTuple):
    """Which ids may be drawn; see `agents.policy.Sampling`."""

    top_p: float = 1.0
    top_k: int = 0


WHOLE = Cut()
"""All of them."""


def kept(weights: torch.Tensor, cut: Cut) -> torch.Tensor:
    """Which of `[rows, vocabulary]` stay: the `top_k` likeliest, and of these the fewest that have `top_p` together.

    Of equally likely ids the smaller one counts as likelier; the likeliest always stays.
    """
    ranked, order = weights.double().sort(dim=-1, descending=True, stable=True)
    if cut.top_k:
        ranked[..., cut.top_k :] = 0.0
    before = ranked.cumsum(dim=-1) - ranked
    stays = (before < cut.top_p * ranked.sum(dim=-1, keepdim=True)) & (ranked > 0)
    return torch.zeros_like(stays).scatter(-1, order, stays)


def drawn_from(known: Knowledge, temperature: float, cut: Cut) -> torch.Tensor:
    """What each id weighs in the draw, `[rows, vocabulary]`, at a temperature above 0."""
    weights = known.weights if temperature == 1.0 else (known.shifted / temperature).exp()
    return weights if cut == WHOLE else weights * kept(weights, cut)


def top_mean(known: Knowledge, count: int) -> torch.Tensor:
    """Mean log-probability of the `count` likeliest ids (of all, where there are fewer) at temperature 1, nats."""
    most = min(count, known.shifted.shape[-1])
    return known.shifted.topk(most, dim=-1).values.mean(dim=-1) - known.total.log()


def choose(known: Knowledge, temperature: float, uniform: torch.Tensor | None, cut: Cut = WHOLE) -> torch.Tensor:
    """Ids `[rows]` by inverse CDF from one uniform (float64) per row; greedy where the temperature is 0.

    The running sum is float64, so that a vocabulary of 10^5 ids does not move the draw.
    """
    if temperature == 0.0 or uniform is None:
        return known.shifted.argmax(dim=-1)
    weights = drawn_from(known, temperature, cut)
    running = weights.cumsum(dim=-1, dtype=torch.float64)
    # Strictly above the threshold: an id of probability 0 is never drawn.
    target = uniform.unsqueeze(-1) * running[:, -1:]
    ids = torch.searchsorted(running, target, right=True).squeeze(-1)
    return ids.clamp_max_(weights.shape[-1] - 1)


def logprobs_of(known: Knowledge, ids: torch.Tensor, temperature: float, cut: Cut = WHOLE) -> torch.Tensor:
    """Log-probability of `ids` under the sampling distribution (greedy reports temperature 1), nats."""
    chosen = known.shifted.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    if temperature and cut != WHOLE:
        return chosen / temperature - drawn_from(known, temperature, cut).sum(dim=-1).log()
    if temperature in (0.0, 1.0):
        return chosen - known.total.log()
    return chosen / temperature - (known.shifted / temperature).exp().sum(dim=-1).log()


# -- Decode steps: feed each row's last id, sample its next one, and report what the sampler knew ---------------------
# A stepper may take several steps before the host looks at them. Rows that end in the middle decode on for a few ids,
# which the host drops: what is stored behind a row's valid ids is hidden by the mask and written over later.


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
        """Replace ids (row to id) that were sampled in the only step, and the logprobs: those of the whole vocabulary.

        A forced id may be one that `top_p` or `top_k` cut off.
        """
        assert self.known is not None and self.ids.shape[0] == 1
        for row, wanted in forced.items():
            self.ids[0, row] = wanted
        self.facts[0, 0] = logprobs_of(self.known, self.ids[0], temperature)


class Fetched:
    """Tensors of one device on their way to the host, behind what the device was given before.

    To ask a GPU for numbers in the plain way (`cpu()`, `tolist()`) waits for all that was launched until then, also
    for what came behind those numbers. Here a copy is launched at once, and only that copy is waited for.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._tensors = [tensor.to("cpu", non_blocking=True) for tensor in tensors]  # from a GPU into pinned memory
        self._there: torch.cuda.Event | None = None
        device = tensors[0].device
        if device.type == "cuda":
            self._there = torch.cuda.Event()
            self._there.record(torch.cuda.current_stream(device))

    def wait(self) -> list[np.ndarray]:
        """What they hold."""
        if self._there is not None:
            self._there.synchronize()
        return [tensor.numpy() for tensor in self._tensors]


def sample(logits: torch.Tensor, temperature: float, uniform: torch.Tensor | None, cut: Cut = WHOLE) -> Sampled:
    """One step from logits `[rows, vocabulary]` and one uniform per row (`None` where greedy)."""
    known = know(logits)
    ids = choose(known, temperature, uniform, cut)
    facts = torch.stack((logprobs_of(known, ids, temperature, cut), known.entropies, known.max_logprobs))
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
        cut: Which ids may be drawn.
    """

    ids: torch.Tensor
    lengths: Sequence[int]
    draws: torch.Tensor | None
    temperature: float
    steps: int = 1
    keep: bool = False
    cut: Cut = WHOLE


@dataclass(frozen=True, slots=True)
class Opening:
    """What a prefill computes: rows in neighbouring slots.

    Attributes:
        first: Slot of the first row.
        ids: Of each row what its slot does not hold yet, at least one id.
        kept: Ids that each row's slot holds.
        slots: How many slots are in use, these included.
    """

    first: int
    ids: Sequence[Sequence[int]]
    kept: Sequence[int]
    slots: int

    @property
    def tokens(self) -> int:
        """Ids of the row that has most."""
        return max(map(len, self.ids))

    @property
    def longest(self) -> int:
        """Positions of the longest row when it is computed."""
        return max(kept + len(ids) for kept, ids in zip(self.kept, self.ids, strict=True))


class Stepper(Protocol):
    """How prefills and decode steps run."""

    most: int
    """Steps of one `advance` at most."""
    waste: int
    """Padding (in ids) that is cheaper to compute than another prefill."""
    cells: int
    """Cap on rows * tokens * positions of one prefill: bounds the memory of its mask."""
    runs_behind: bool
    """Calls return before what they launched is computed: only who reads it waits."""
    ahead: bool
    """The next steps may be launched before the last ones are read (only where it `runs_behind`)."""

    def prefill(self, opening: Opening) -> torch.Tensor:
        """Compute what the cache lacks of these rows; logits after each one's last id, `[rows, vocabulary]`."""

    def advance(self, feed: Feed) -> Sampled:
        """Feed each row's last id, and go on from there."""

    def pace(self) -> int:
        """Steps between two looks at the rows, from 1 to `most`."""

    def ended(self, lengths: Sequence[int]) -> None:
        """Replies of these lengths (in ids) have ended."""

    def smaller(self, live: int, rows: int) -> bool:
        """Whether steps of `live` rows are so much cheaper than of `rows` that moving rows up pays."""

    def weights_changed(self, *, in_place: bool) -> None:
        """Drop what was prepared for the old weights; `in_place`: every parameter stayed where it was."""


class EagerStepper:
    """One forward at a time through the model's own modules, on any device."""

    most = 1
    waste = WASTE
    cells = 2**24
    runs_behind = False
    ahead = False

    def __init__(self, decoder: Decoder, cache: SlotCache) -> None:
        self._decoder, self._cache = decoder, cache

    def prefill(self, opening: Opening) -> torch.Tensor:
        """See `Stepper`: one forward, right-padded."""
        rows, tokens, device = len(opening.ids), opening.tokens, self._decoder.device
        read = max(opening.kept) + tokens
        ids = torch.tensor([[*row, *[0] * (tokens - len(row))] for row in opening.ids], device=device)
        kept = torch.tensor(opening.kept, device=device)
        positions = kept.unsqueeze(1) + torch.arange(tokens, device=device)
        self._cache.reserve(opening.slots, read)
        self._cache.select(opening.first, rows, positions, read)
        ends = torch.tensor([len(row) - 1 for row in opening.ids], device=device)
        hidden = self._decoder.hidden(ids, positions, read, self._cache)
        return self._decoder.logits(hidden[torch.arange(rows, device=device), ends])

    def advance(self, feed: Feed) -> Sampled:
        """See `Stepper`."""
        rows, read = len(feed.lengths), max(feed.lengths) + 1
        self._cache.reserve(rows, read)
        positions = torch.tensor(feed.lengths, device=feed.ids.device).unsqueeze(1)
        self._cache.select(0, rows, positions, read)
        hidden = self._decoder.hidden(feed.ids.unsqueeze(1), positions, read, self._cache)
        logits = self._decoder.logits(hidden[:, -1])
        return sample(logits, feed.temperature, None if feed.draws is None else feed.draws[:, 0], feed.cut)

    def pace(self) -> int:
        """See `Stepper`."""
        return 1

    def ended(self, lengths: Sequence[int]) -> None:
        """Nothing follows from it."""

    def smaller(self, live: int, rows: int) -> bool:
        """See `Stepper`: moving up costs more than a few idle rows."""
        return 4 * (rows - live) >= rows

    def weights_changed(self, *, in_place: bool) -> None:
        """Nothing is prepared."""
