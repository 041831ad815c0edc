"""SEPA's schedule: how much of the transformation acts at a step, with a gate that waits for correct episodes."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from trainers.credit.token.settings import SepaSchedule


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
