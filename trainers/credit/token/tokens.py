"""What a token operator is and sees of a step, and what is remembered from step to step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.credit.settings import SepaSchedule, TokenSettings

# -- SEPA's schedule: how much of the transformation acts at a step, with a gate that waits for correct episodes ------


@dataclass(slots=True)
class Schedule:
    """Lambda over steps: 0 before the gate opens, then linear or automatic.

    `value()` is what the coming step uses; `see()` takes in what that step showed and moves on, so everything acts one
    step later. The gate is sticky, and opening it jumps to the value of the step: the ramp does not start again.

    Steps are optimizer steps. A step of several generations shows something with each; a generation that lasts several
    steps shows something once. Who knows the step says so with `stands_at`; without it each `see` is a step.

    Attributes:
        kind: Linear or automatic.
        steps: Length of the linear ramp; 0 means no linear part.
        delay: Steps before it starts; the automatic part has none.
        gate: Share of correct episodes in a step that opens the gate; 0 has it open from the start.
        decay: Of the running mean of the variance.
        threshold: Lambda is 1 - (variance / first variance) / threshold, between 0 and 1.
        warmup: Steps after which the running mean becomes the first variance.
        step: Of the coming batch, counted from 0.
        gained: Steps since the batch before it, which its variance counts for.
    """

    kind: SepaSchedule = SepaSchedule.LINEAR
    steps: int = 500
    delay: int = 50
    gate: float = 0.1
    decay: float = 0.99
    threshold: float = 0.2
    warmup: int = 50
    step: int = 0
    open: bool = False
    mean: float | None = None
    first: float | None = None
    seen: int = 0
    gained: int = 1

    def stands_at(self, step: int) -> None:
        """Say at which step the coming batch is; after the first one, steps are counted from the batch before."""
        # `see` has moved on by one: a second batch of the same step has gained nothing.
        self.gained = max(0, step - self.step + 1)
        self.step = step

    def value(self) -> float:
        """Lambda of the coming step, in [0, 1]."""
        if not (self.open or self.gate <= 0):
            return 0.0
        linear = self.linear(self.step)
        return linear if self.kind is SepaSchedule.LINEAR else max(linear, self.automatic())

    def linear(self, step: int) -> float:
        """The linear part at `step`, counted from 0."""
        return min(1.0, (step - self.delay) / self.steps) if self.steps and step > self.delay else 0.0

    def automatic(self) -> float:
        """The part that follows the variance; 0 during the warm-up."""
        if self.mean is None or not self.first:
            return 0.0
        return 1.0 - min(1.0, (self.mean / self.first) / self.threshold)

    def see(self, correct: float | None, variance: float | None = None) -> None:
        """What a step showed.

        Args:
            correct: Share of its episodes that passed; `None` or not a number is not known.
            variance: Of the signal of its execution tokens; `None` where there are fewer than two.
        """
        if correct is not None and math.isfinite(correct) and correct >= self.gate:
            self.open = True
        if variance is not None:
            self.see_variance(variance, self.gained)
        self.step += 1
        self.gained = 1

    def see_variance(self, variance: float, steps: int = 1) -> None:
        """Takes a variance into the running mean; for the warm-up it counts for `steps` steps."""
        self.mean = variance if self.mean is None else self.decay * self.mean + (1 - self.decay) * variance
        if self.seen < self.warmup:
            self.seen = min(self.warmup, self.seen + steps)
            if self.seen == self.warmup:
                self.first = self.mean

    def state_dict(self) -> dict[str, Any]:
        """What moves; the settings come from the run."""
        return {name: asdict(self)[name] for name in ("step", "open", "mean", "first", "seen")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.step, self.open = int(state["step"]), bool(state["open"])
        self.mean, self.first, self.seen = state["mean"], state["first"], int(state["seen"])


# -- What token operators remember from step to step: the schedule of lambda and Delight's running eta ----------------


class TokenState:
    """Part of every checkpoint. `lam` is lambda of the coming step; `see` moves on after it."""

    def __init__(self, settings: TokenSettings) -> None:
        self.schedule = Schedule(
            settings.sepa_schedule,
            settings.sepa_steps,
            settings.sepa_delay,
            settings.sepa_gate,
            settings.sepa_decay,
            settings.sepa_variance,
            settings.sepa_warmup,
        )
        self.eta: float | None = None

    @property
    def lam(self) -> float:
        """Lambda of the coming step."""
        return self.schedule.value()

    def stands_at(self, step: int) -> None:
        """Optimizer steps taken before the coming batch; see `Schedule.stands_at`."""
        self.schedule.stands_at(step)

    def see(self, correct: float | None, variance: float | None) -> None:
        """What a step showed; see `Schedule.see`."""
        self.schedule.see(correct, variance)

    def state_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {"schedule": self.schedule.state_dict(), "eta": self.eta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.schedule.load_state_dict(state["schedule"])
        self.eta = state["eta"]


# -- What a token operator is: weights >= 0 for the episode term, or another signal for the operators after it --------

_SAMPLE = 256
"""Values that `_kth_largest` looks at first."""


class Stage(StrEnum):
    """What an operator returns."""

    SIGNAL = "signal"
    """Another signal, which the operators after it read."""
    WEIGHT = "weight"
    """Weights, which multiply those of the other operators."""


@dataclass(slots=True)
class Tokens:
    """What an operator sees of a step. Arrays of shape (B, T) mean nothing where `mask` is off, unless said.

    Attributes:
        signal: The signal, 0 where `mask` is off; operators of `Stage.SIGNAL` replace it.
        raw: The signal before any operator, 0 where `mask` is off.
        mask: True where a token was sampled.
        counts: Shape (B,): sampled tokens of each episode, as floats.
        advantages: Shape (B,): the episode term before weights.
        group_size: K.
        settings: The constants of all operators.
        state: What operators remember from step to step.
        planning: True where a token belongs to a planning phrase, False where `mask` is off; `None` unless needed.
        notes: Figures for the log, by name.
    """

    signal: NDArray[np.float64]
    raw: NDArray[np.float64]
    mask: NDArray[np.bool_]
    counts: NDArray[np.float64]
    advantages: NDArray[np.float64]
    group_size: int
    settings: TokenSettings
    state: TokenState
    planning: NDArray[np.bool_] | None = None
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TokenOperator:
    """One entry of the registry.

    Attributes:
        apply: The function. What it returns is taken over: it must be a new array, or the signal itself.
        stage: What it returns.
        planning: It reads `Tokens.planning`.
        signal: It reads `Tokens.signal` or `raw`, so that `token_signal` matters.
    """

    apply: Callable[[Tokens], NDArray[np.float64]]
    stage: Stage = Stage.WEIGHT
    planning: bool = False
    signal: bool = True


def make_tokens(
    signal: NDArray[np.float64],
    mask: NDArray[np.bool_],
    advantages: NDArray[np.float64],
    *,
    group_size: int = 1,
    settings: TokenSettings | None = None,
    state: TokenState | None = None,
    planning: NDArray[np.bool_] | None = None,
) -> Tokens:
    """`Tokens` with everything that follows from the rest filled in.

    Raises:
        ValueError: Lengths disagree.
    """
    if signal.shape != mask.shape or len(advantages) != len(signal):
        raise ValueError(f"signal {signal.shape}, mask {mask.shape}, {len(advantages)} advantages: lengths disagree")
    if planning is not None and planning.shape != mask.shape:
        raise ValueError(f"planning mask of shape {planning.shape}, tokens of shape {mask.shape}")
    settings = settings or TokenSettings()
    return Tokens(
        signal,
        signal,
        mask,
        np.count_nonzero(mask, axis=1).astype(np.float64),
        advantages,
        group_size,
        settings,
        state or TokenState(settings),
        planning,
    )


def row_means(values: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of each row, 0 for an empty one; `values` are 0 where nothing counts. Shape (B, 1)."""
    return np.asarray((values.sum(axis=1) / np.maximum(counts, 1.0))[:, None])


def top_k(values: NDArray[np.float64], mask: NDArray[np.bool_], k: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Exactly the `k[i]` largest values of each row where `mask` is on; among equal values the earlier position.

    Args:
        values: Shape (R, N).
        mask: Shape (R, N); what is off is never chosen.
        k: Shape (R,), each at most the number of its row's entries.

    Returns:
        Shape (R, N).
    """
    candidates = np.where(mask, values, -np.inf)
    chosen = np.zeros(values.shape, dtype=bool)
    for i, wanted in enumerate(k):
        if wanted <= 0:
            continue
        row = candidates[i]
        # The value at the edge, then everything above it, then the earliest of its equals.
        edge = _kth_largest(row, int(wanted))
        above = row > edge
        equal = np.flatnonzero(row == edge)
        above[equal[: wanted - np.count_nonzero(above)]] = True
        chosen[i] = above
    return chosen & mask


def _kth_largest(row: NDArray[np.float64], k: int) -> float:
    """The k-th largest value. A sample says below what nothing needs sorting; if it says too much, all is sorted."""
    if row.size > 16 * _SAMPLE and k < row.size // 2:
        step = row.size // _SAMPLE
        sample = np.sort(row[::step])
        low = sample[max(0, int(sample.size * (1 - 1.25 * k / row.size)) - 8)]
        upper = row[row >= low]
        if k <= upper.size < row.size:
            row = upper
    return float(np.partition(row, row.size - k)[row.size - k])


def keep_freed_memory() -> None:
    """Let glibc keep a step's freed arrays for the next step instead of handing them back to the kernel each time.

    Freeing one block of nearly 32 MiB raises its thresholds to that; where another allocator is used, nothing happens.
    Nothing of it is ever touched. A step with every operator on takes a quarter less time.
    """
    np.empty(31 * 2**20, dtype=np.uint8)
