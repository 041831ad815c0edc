"""Token level of T2PO: end a thinking block that is too long, or that has stopped thinking.

One control per reply, so that nothing is shared between the replies of a batch (shared counters never fire when rows
are interleaved). Only the closing tag is put in, as a forced id: the answer is always the model's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from agents.policy import PlannedControl, PolicyError, TokenControl, TopControl
from agents.uncertainty import (
    CONFIDENCE_WEIGHT,
    PUBLISHED_WEIGHT,
    confidence,
    published_uncertainty,
    uncertainty,
)


class ThinkStop(StrEnum):
    """When a thinking block counts as stagnant."""

    NONE = "none"
    """Never."""
    OFFICIAL = "official"
    """The authors' code: the score of `patience` consecutive tokens moves by at most `eps` each."""
    PAPER = "paper"
    """The paper's rule on our score: after a minimum prefix and the peak, the mean change in a window is under eps."""
    PUBLISHED = "published"
    """The same rule on the paper's own score: 1 - C of the likeliest ids, scaled within the trajectory."""


class Cause(StrEnum):
    """Why a thinking block was closed."""

    BUDGET = "think_capped"
    """Its token budget was spent."""
    RESERVE = "think_reserved"
    """What is left of the turn is reserved for the answer."""
    STOP = "think_stopped"
    """It stagnated."""


class StopRule(Protocol):
    """Sees every position of a reply; says whether thinking stagnates there."""

    def fires(self, entropy: float, max_logprob: float, inside: bool, top_mean: float | None = None) -> bool:
        """Whether to close the block at this position; `inside` tells whether one is open.

        `top_mean` is that of `TopControl`, where the engine told it.
        """

    def closed(self) -> None:
        """The block was closed where it fired."""


@dataclass(slots=True)
class OfficialStop:
    """Count consecutive positions whose confidence score moves by at most `eps`; fire at `patience`.

    Counts through the whole reply and starts over whenever it fires, inside a block or not, as the authors' code does.
    """

    vocabulary: int
    patience: int = 20
    eps: float = 1e-4
    weight: float = CONFIDENCE_WEIGHT
    _count: int = 0
    _last: float | None = None

    def fires(self, entropy: float, max_logprob: float, inside: bool, top_mean: float | None = None) -> bool:
        """See `StopRule`."""
        score = confidence(entropy, max_logprob, self.vocabulary, self.weight)
        still = self._last is not None and abs(score - self._last) <= self.eps
        self._count = self._count + 1 if still else 0
        self._last = score
        if self._count < self.patience:
            return False
        self._count = 0
        return inside

    def closed(self) -> None:
        """See `StopRule`. It starts over anyway."""


@dataclass
class WindowStop(ABC):
    """Fire when the mean change of a score over `window` positions is below `eps` behind its peak.

    Until a block was closed for it, once: the reply's further blocks are left alone. Behind the peak: every value of
    the window lies below the highest value before it.
    """

    window: int = 16
    eps: float = 0.02
    min_tokens: int = 32
    _done: bool = field(default=False, init=False)

    @abstractmethod
    def scores(self, entropy: float, max_logprob: float, top_mean: float | None) -> Sequence[float]:
        """Take a position inside a block; the scores of all of them so far."""

    def fires(self, entropy: float, max_logprob: float, inside: bool, top_mean: float | None = None) -> bool:
        """See `StopRule`."""
        if not inside or self._done:
            return False
        values = self.scores(entropy, max_logprob, top_mean)
        if len(values) < max(self.min_tokens, self.window + 1):
            return False
        recent, before = values[-self.window - 1 :], values[: -self.window - 1]
        change = sum(abs(b - a) for a, b in zip(recent, recent[1:], strict=False)) / self.window
        return change < self.eps and bool(before) and max(recent) < max(before)

    def closed(self) -> None:
        """See `StopRule`. It is done."""
        self._done = True


@dataclass
class PaperStop(WindowStop):
    """The rule on our score, `uncertainty`.

    The paper normalises within the trajectory; the extremes of an unfinished one are unknown, so entropy is divided by
    `log V` instead.
    """

    vocabulary: int = field(kw_only=True)
    weight: float = CONFIDENCE_WEIGHT
    _values: list[float] = field(default_factory=list, init=False)

    def scores(self, entropy: float, max_logprob: float, top_mean: float | None) -> Sequence[float]:
        """See `WindowStop`."""
        self._values.append(uncertainty(entropy, max_logprob, self.vocabulary, self.weight))
        return self._values


@dataclass
class PublishedStop(WindowStop):
    """The rule on the paper's score `M_t = weight * H~_t + (1 - weight) * (1 - C~_t)`, scaled within the trajectory.

    The trajectory is the thought so far: at every position the values before it are scaled anew, since what is still to
    come is unknown.
    """

    weight: float = PUBLISHED_WEIGHT
    _entropies: list[float] = field(default_factory=list, init=False)
    _confidences: list[float] = field(default_factory=list, init=False)

    def scores(self, entropy: float, max_logprob: float, top_mean: float | None) -> Sequence[float]:
        """See `WindowStop`.

        Raises:
            PolicyError: The engine does not tell the likeliest ids.
        """
        if top_mean is None:
            raise PolicyError(
                "think_stop=published reads the likeliest ids of every position, and this policy's engine does not "
                "tell them. Use think_stop=paper, or the engine in this process (policies.transformers)."
            )
        self._entropies.append(entropy)
        self._confidences.append(-top_mean)
        return published_uncertainty(self._entropies, self._confidences, self.weight)


class ThinkControl:
    """Force the closing tag where a budget is spent, the answer's reserve begins, or a stop rule fires.

    A `PlannedControl`: without a stop rule it knows ahead how far a reply may run.

    Args:
        open_id: Id of the opening tag.
        close_id: Id of the closing tag.
        inside: The prompt ends inside a block (templates that write the opening tag themselves).
        max_tokens: Most ids of the reply.
        think_budget: Most ids inside blocks in the whole reply, the tags not counted; `None` for no limit.
        think_answer_reserve: Ids that must be left after the closing tag.
        stop: A stop rule of this reply alone.
        before: Another control, which is asked first.

    Attributes:
        inside: A block is open at the end of what was read.
        thought: Ids inside blocks so far.
        causes: Why blocks were closed, in order.
    """

    def __init__(
        self,
        *,
        open_id: int,
        close_id: int,
        inside: bool,
        max_tokens: int,
        think_budget: int | None = None,
        think_answer_reserve: int = 0,
        stop: StopRule | None = None,
        before: TokenControl | None = None,
    ) -> None:
        self.inside = inside
        self.thought = 0
        self.causes: list[Cause] = []
        self._open, self._close, self._stop, self._before = open_id, close_id, stop, before
        self._max_tokens, self._think_budget, self._answer_reserve = max_tokens, think_budget, think_answer_reserve
        self._seen = 0
        self._top_mean: float | None = None

    @property
    def reads_distribution(self) -> bool:
        """See `PlannedControl`: a stop rule does, and so may another control that does not say."""
        before = self._before
        served = before is None or (isinstance(before, PlannedControl) and not before.reads_distribution)
        return self._stop is not None or not served

    def read(self, ids: Sequence[int]) -> None:
        """Take note of the reply so far; `thought` and `inside` are then those of its end."""
        for token in ids[self._seen :]:
            if token == self._open:
                self.inside = True
            elif token == self._close:
                self.inside = False
            elif self.inside:
                self.thought += 1
        self._seen = len(ids)

    def horizon(self, ids: Sequence[int]) -> int | None:
        """See `PlannedControl`. With neither a stop rule nor another control it is exact: one id further may be cut."""
        self.read(ids)
        last = self._max_tokens - 1
        soonest = len(ids) if self.inside else len(ids) + 1  # outside, an opening tag must be sampled first
        if self._stop is None:
            cut = last - self._answer_reserve
            if self._think_budget is not None:
                cut = min(cut, soonest + max(0, self._think_budget - self.thought))
            soonest = max(soonest, cut)
        free = None if soonest > last else soonest - len(ids)
        if self._before is None:
            return free
        other = self._before.horizon(ids) if isinstance(self._before, PlannedControl) else 0
        return min((count for count in (free, other) if count is not None), default=None)

    def watch(self, top_mean: float) -> None:
        """See `TopControl`."""
        self._top_mean = top_mean
        if isinstance(self._before, TopControl):
            self._before.watch(top_mean)

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        """See `TokenControl`."""
        self.read(ids)
        stagnant = self._stop is not None and self._stop.fires(entropy, max_logprob, self.inside, self._top_mean)
        wanted = self._before.force(ids, entropy, max_logprob) if self._before is not None else None
        cause = self._cause(len(ids), stagnant) if wanted is None and self.inside else None
        forced = wanted if cause is None else self._close
        if cause is not None:
            self.causes.append(cause)
        if self._stop is not None and stagnant and forced == self._close:
            self._stop.closed()  # another control may have put another id there: then the tag is still to come
        return forced

    def _cause(self, length: int, stagnant: bool) -> Cause | None:
        if self._think_budget is not None and self.thought >= self._think_budget:
            return Cause.BUDGET
        if self._max_tokens - length - 1 <= self._answer_reserve:
            return Cause.RESERVE
        return Cause.STOP if stagnant else None


def starts_inside(prompt_ids: Sequence[int], open_id: int, close_id: int, eos_ids: frozenset[int]) -> bool:
    """Whether a prompt leaves a thinking block open: its last tag, after the last end of a turn, is the opening one."""
    for token in reversed(prompt_ids):
        if token == open_id:
            return True
        if token == close_id or token in eos_ids:
            return False
    return False


def tag_id(tokenizer: Any, tag: str) -> int | None:
    """The id of a tag that the tokenizer knows as one token; `None` where it does not."""
    ids = list(tokenizer.encode(tag, add_special_tokens=False))
    return ids[0] if len(ids) == 1 else None
