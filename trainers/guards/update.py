"""Guard 10, update health: whether a step still improves the policy, or has begun to destroy it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.events import Facts
from trainers.guards.guard import Alarm, Guard, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.guards.window import Window

DELTA_SHARE = "update/weight_delta_share"
"""How far the weights moved in the step, in units of lr * sqrt(n): 1 where Adam knows nothing but this gradient."""


@dataclass
class UpdateLint(Guard):
    """Settings of the optimizer that spiked in the reference runs: a tiny eps and no warm-up.

    Attributes:
        small: Parameters of a model up to which they are a measured recipe (the quickstart's), and nothing is said.
    """

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    eps: float = 1e-5
    warmup: int = 30
    small: int = 20_000_000

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Before the first step."""
        c = facts.config
        if "adam" not in str(c.optim).lower():
            return
        if facts.parameters is not None and facts.parameters <= self.small:
            return
        warmup = c.get_warmup_steps(c.max_steps)
        if c.adam_epsilon < self.eps or warmup < self.warmup:
            yield note(
                "optimizer",
                f"update: adam_epsilon={c.adam_epsilon:g} and {warmup} warm-up steps. RL gradients are small and "
                f"sparse, and the first steps of Adam then are large ones: longer runs of larger models want "
                f"adam_epsilon >= {self.eps:g} and warmup_steps >= {self.warmup}.",
            )


@dataclass
class UpdateHealth(Guard):
    """Figures of a step that no longer improves anything.

    Attributes:
        kl_limit: Nats of KL to the reference, of the mean token and of the 99th percentile of the tokens.
        entropy_limit: Nats per token; `entropy_start` what the start must have had for it to be a collapse.
        grad_times: Gradient norm in units of the median of the last steps.
        grad_history: Steps before the gradient norm is judged.
        short: Ids of a median reply, and `shrunk` its share of the start, below which replies have collapsed.
        fresh: Share of lr * sqrt(n) above which the optimizer seems to begin anew at each step.
    """

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    kl_limit: float = 10.0
    entropy_limit: float = 0.02
    entropy_start: float = 0.1
    grad_times: float = 20.0
    grad_history: int = 10
    short: float = 5.0
    shrunk: float = 0.25
    fresh: float = 0.95
    max_grad_norm: float = 0.0
    _grads: Window = field(default_factory=lambda: Window(50))
    _tail: Window = field(default_factory=lambda: Window(3))
    _entropy: Window = field(default_factory=lambda: Window(4))
    _length: Window = field(default_factory=lambda: Window(4))
    _reward: Window = field(default_factory=lambda: Window(4))
    _delta: Window = field(default_factory=lambda: Window(5))
    _start: dict[str, float] = field(default_factory=dict)
    """Means over the first four steps."""

    def begin(self, facts: Facts) -> None:
        """Where gradients are clipped."""
        self.max_grad_norm = facts.config.max_grad_norm or 0.0

    def episodes(self, step: int, played: RolloutResult) -> None:
        """The median reply."""
        lengths = [len(turn.ids) for episode in played.trajectories for turn in episode.turns]
        self._note("length", self._length, median(lengths) if lengths else None)

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Everything that a log line tells."""
        wrong = [name for name in ("loss", "grad_norm", "kl", "entropy") if not math.isfinite(metrics.get(name, 0.0))]
        if wrong:
            yield stop(
                "not_finite",
                f"update: {', '.join(f'{name} is {metrics[name]}' for name in wrong)} at step {step}: the weights are "
                "lost. Lower learning_rate, use dtype float32, or raise adam_epsilon.",
            )
            return
        # Not `kl_max`: a token that the reference never wrote reaches 45 in a run that is well.
        tail = self._tail.add(metrics.get("kl_p99")) and self._tail.low > self.kl_limit
        for name, above in (("kl_p99", tail), ("kl", metrics.get("kl", 0.0) > self.kl_limit)):
            if above:
                yield stop(
                    "kl",
                    f"update: {name} is {metrics[name]:.4g} at step {step} (limit {self.kl_limit:g}): the policy left "
                    "its reference, and the KL term now outweighs every reward. Lower learning_rate, or lower beta.",
                )
                break
        self._note("reward", self._reward, metrics.get("reward"))
        yield from self._gradient(step, metrics.get("grad_norm"), signal=metrics.get("gigpo/frac_zero_adv", 0.0) < 1.0)
        yield from self._collapse(step, metrics.get("entropy", metrics.get("sampling/entropy")))
        share = metrics.get(DELTA_SHARE)
        if self._delta.add(share if step > 1 else None) and self._delta.low > self.fresh:
            yield warn(
                "fresh_state",
                f"update: over {len(self._delta)} steps the weights moved {self._delta.mean:.2f} x learning_rate * "
                "sqrt(n), which is what Adam's first step does: the optimizer state is new each step, so the size of a "
                "gradient counts for nothing. Keep one optimizer for the whole run.",
            )

    def _gradient(self, step: int, norm: float | None, *, signal: bool) -> Iterator[Alarm]:
        if norm is None:
            return
        if len(self._grads) >= self.grad_history and 0 < self._grads.median * self.grad_times < norm:
            message = (
                f"update: grad_norm is {norm:.4g} at step {step}, {norm / self._grads.median:.0f} times the median of "
                f"the last {len(self._grads)} steps ({self._grads.median:.3g})"
            )
            if norm > self.max_grad_norm:
                yield stop("gradient", f"{message}. Lower learning_rate, or raise adam_epsilon and warmup_steps.")
            else:
                yield note("gradient_small", f"{message}, and below max_grad_norm {self.max_grad_norm:g}.")
        if norm > 0 and signal:  # a step without advantages says nothing about what is usual, whatever its KL term
            self._grads.add(norm)

    def _collapse(self, step: int, entropy: float | None) -> Iterator[Alarm]:
        full = self._note("entropy", self._entropy, entropy)
        start = self._start.get("entropy", 0.0)
        if full and self._entropy.mean < self.entropy_limit and start > self.entropy_start:
            yield self._worse(
                "entropy",
                f"update: entropy is {self._entropy.mean:.3g} nats per token (limit {self.entropy_limit:g}), was "
                f"{start:.3g} at the start",
                "nothing is explored any more",
            )
        before = self._start.get("length", 0.0)
        if self._length.full and self._length.mean < min(self.short, self.shrunk * before):
            yield self._worse(
                "length",
                f"update: the median reply has {self._length.mean:.1f} tokens, had {before:.1f} at the start",
                "replies have become empty",
            )

    def _worse(self, kind: str, figures: str, meaning: str) -> Alarm:
        """A collapse where the reward is below that of the start; a sure and better policy is no fault."""
        start, now = self._start.get("reward"), self._reward
        if start is None or not now.full or now.mean >= start:
            return note(
                kind + "_sure", f"{figures}; the reward has not fallen, so the policy has become sure of itself."
            )
        return stop(
            kind,
            f"{figures}, and the reward fell from {start:.3g} to {now.mean:.3g}: a collapse, {meaning}. Lower "
            "learning_rate, or set beta above 0.",
        )

    def _note(self, name: str, window: Window, value: float | None) -> bool:
        """Take a figure in; the first full window is the start."""
        full = window.add(value)
        if full and name not in self._start:
            self._start[name] = window.mean
        return full
