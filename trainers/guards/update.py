"""Guards of the optimizer step: spikes, collapse, dead updates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, Update, Window, note, stop, warn
from trainers.guards.levels import GuardName
from trainers.guards.tasks import count_passes, risen, totals

# -- Guard 10, update health: whether a step still improves the policy, or has begun to destroy it --------------------

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

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """KL, gradient, entropy, replies and the size of steps."""
        for name in ("kl", "kl_p99"):
            if name in metrics:
                yield Gauge(f"{name} (nats)", metrics[name], Fires.ABOVE, self.kl_limit)
        if "grad_norm" in metrics and len(self._grads) >= self.grad_history and self._grads.median > 0:
            times = metrics["grad_norm"] / self._grads.median
            yield Gauge("gradient norm, times its median", times, Fires.ABOVE, self.grad_times)
        if len(self._entropy):
            yield Gauge("entropy per token (nats)", self._entropy.mean, Fires.BELOW, self.entropy_limit)
        if self._length.full:
            limit = min(self.short, self.shrunk * self._start["length"])
            yield Gauge("median reply (tokens)", self._length.mean, Fires.BELOW, limit)
        if self._delta.full:
            yield Gauge("step of the weights, times Adam's first", self._delta.low, Fires.ABOVE, self.fresh)

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


# -- Guard 14, dead update: steps that have something to learn and change nothing -------------------------------------


@dataclass
class DeadUpdate(Guard):
    """The weights stand still, or have no gradient, although some advantage is not 0 and the learning rate is above 0.

    A step without an advantage (all groups flat) or with a rate of 0 (the first of a warm-up) says nothing and is left
    out. Weights that stand still because a step of the learning rate is smaller than the spacing of their number format
    are said apart, and only warned of: nothing is broken, the settings do not go together.

    Attributes:
        limit: Such steps in a row.
        rounded: Share of the weights that a step of the learning rate must be able to change for standing still to be
            no rounding.
    """

    name: ClassVar[str] = GuardName.DEAD_UPDATE
    limit: int = 3
    rounded: float = 0.01
    _still: int = 0
    """Steps in a row in which nothing moved, and `_flat` those without a gradient."""
    _flat: int = 0

    def update(self, step: int, update: Update) -> Iterator[Alarm]:
        """Judge one optimizer step."""
        if not update.advantages or update.rate <= 0:
            return
        self._still = self._still + 1 if update.moved == 0 else 0
        self._flat = self._flat + 1 if update.slope is False else 0
        told = f"{update.advantages:g} trained tokens of step {step} have an advantage, learning_rate {update.rate:g}"
        if self._flat >= self.limit:
            yield stop(
                "no_gradient",
                f"dead update: for {self._flat} steps every gradient was 0 ({told}): the loss reaches no weight, so "
                "that the run learns nothing from its rewards, and weight decay or momentum are all that moves. "
                "Something multiplies the loss or a part of the model by 0, or cuts the graph: an adapter that is "
                "switched off or scaled by 0, a frozen copy in place of the policy, a loss that was detached.",
            )
        elif self._still >= self.limit and update.visible < self.rounded:
            yield warn(
                "rounded",
                f"dead update: for {self._still} steps no weight moved ({told}): a step of that size changes only "
                f"{update.visible:.2%} of the weights in {update.dtype}, and is rounded away in the others. Use "
                "--dtype float32, or a larger learning_rate, or an adapter, whose weights begin at 0.",
            )
        elif self._still >= self.limit:
            why = {
                True: "there are gradients, so the optimizer's step has no effect: it holds other tensors than the "
                "model does (a model that was wrapped or loaded after the optimizer was made), or its step is skipped",
                False: "every gradient is 0",
                None: "no trained weight has a gradient: what is trained (an adapter, perhaps) takes no part in the "
                "loss, or is switched off",
            }[update.slope]
            yield stop(
                "still",
                f"dead update: for {self._still} steps no trained weight moved ({told}); {why}. Nothing is learned.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How long nothing has moved."""
        yield Gauge("steps in a row in which no weight moved", self._still, Fires.FROM, self.limit)
        yield Gauge("steps in a row without a gradient", self._flat, Fires.FROM, self.limit)


# -- Part of guard 10: a policy that submits at once, or never any more -----------------------------------------------


@dataclass
class StopsAtOnce(Guard):
    """Collapse to an immediate submission: episodes of one turn where there were more, nearly all submitted.

    Attributes:
        able: Pass rate that a policy must have had once, for less of it to be a fall.
    """

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    able: float = 0.05
    _turns: Window = field(default_factory=lambda: Window(4))
    _submitted: Window = field(default_factory=lambda: Window(4))
    _passed: Window = field(default_factory=lambda: Window(4))
    _best: float = 0.0
    _start: float | None = None
    """Mean turns of the first window."""

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Turns near 1 and fewer than at the start, submitted near 1, the pass rate under half of its best window."""
        if "env/pass_rate" not in metrics:
            return
        self._turns.add(metrics["env/mean_turns"])
        self._submitted.add(metrics["env/submitted"])
        if not self._passed.add(metrics["env/pass_rate"]):
            return
        passed = self._passed.mean
        if self._start is None:
            self._start = self._turns.mean
        self._best = max(self._best, passed)
        fallen = self._best > self.able and passed < 0.5 * self._best
        if self._turns.mean <= 1.25 < self._start and self._submitted.mean >= 0.9 and fallen:
            yield warn(
                "stops_at_once",
                f"collapse: the policy stops at once (mean turns {self._turns.mean:.2f}, was {self._start:.2f}; "
                f"submitted {self._submitted.mean:.0%}, pool pass {passed:.0%}, was {self._best:.0%}). "
                "Lower learning_rate, keep scale_rewards=none, or start from a stronger policy; `best/` "
                "holds the weights from before.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Turns of an episode."""
        if self._turns.full:
            yield Gauge("mean turns", self._turns.mean, Fires.TO, 1.25)


@dataclass
class NeverStops(Guard):
    """Collapse to never submitting: nearly every episode spends its whole turn budget."""

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    _submitted: Window = field(default_factory=lambda: Window(4))
    _first: float | None = None

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Almost nothing is submitted any more, and more was at the start."""
        if "env/submitted" not in metrics:
            return
        if self._first is None:
            self._first = metrics["env/submitted"]
        if self._submitted.add(metrics["env/submitted"]) and self._submitted.mean <= 0.05 and self._first > 0.2:
            yield warn(
                "never_stops",
                f"collapse: the policy never submits (submitted {self._submitted.mean:.0%}, was {self._first:.0%} at "
                "the start): every episode spends its turn budget. Raise turn_penalty or lower learning_rate.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Episodes that are submitted."""
        if self._submitted.full:
            yield Gauge("episodes submitted", self._submitted.mean, Fires.TO, 0.05)


@dataclass
class PassesFewer(Guard):
    """Collapse of what is graded: far fewer episodes of the pool pass than at the start, whatever is learned instead.

    Attributes:
        size: Steps of the first and of the latest window, which do not overlap, and between two looks at them.
        alpha: p-value (Fisher) below which the windows differ; on effective counts, for attempts at a task are alike.
        share: Of the first window's pass rate, below which the latest one's is a collapse.
    """

    name: ClassVar[str] = GuardName.UPDATE_HEALTH
    size: int = 10
    alpha: float = 0.01
    share: float = 0.5
    _compares: bool = True
    _term: str = ""
    """The turn term, where one is trained on."""
    _first: dict[str, list[int]] = field(default_factory=dict)
    """Task id to its passed and graded attempts, like the next one."""
    _latest: dict[str, list[int]] = field(default_factory=dict)
    _steps: int = 0
    """Steps that were counted; `_p` is that of the last look."""
    _p: float | None = None

    def begin(self, facts: Facts) -> None:
        """Under a curriculum the pool grows harder on purpose, and its windows are not compared."""
        c = facts.config
        self._compares = not c.curriculum
        self._term = f"turn_signal={c.turn_signal}, beta_turn={c.beta_turn:g}" if c.beta_turn else ""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Count, and compare the latest steps with the first ones."""
        self._steps += 1
        count_passes(self._first if self._steps <= self.size else self._latest, played)
        if self._steps % self.size or not self._first or not self._latest:
            return
        first, latest, self._latest = self._first, self._latest, {}
        (was, was_n), (now, now_n) = totals(first), totals(latest)
        self._p = risen(latest, first)
        if self._compares and self._p < self.alpha and now * was_n < self.share * was * now_n:
            term = (
                f"The turn term ({self._term}) pays for turns, and may outweigh the grade: try turn_signal=outcome, a "
                "smaller beta_turn, or none. Else lower"
                if self._term
                else "Lower"
            )
            yield warn(
                "passes_fewer",
                f"collapse: of the pool's episodes {now}/{now_n} passed in the last {self.size} steps, {was}/{was_n} "
                f"in the first {self.size} (p={self._p:.2g}): what is learned is not what is graded. {term} "
                "learning_rate; `best/` holds the weights from before.",
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """How sure it is that fewer pass."""
        if self._p is not None:
            yield Gauge("p that the pool passes fewer than at the start", self._p, Fires.BELOW, self.alpha)
