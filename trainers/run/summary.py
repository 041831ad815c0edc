"""The end of a run in one record: held-out figures before and after, what was chosen, where the time went."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from agents.rollout.progress import Timing
from trainers.guards import Finding
from trainers.measuring.confirmation import Confirmation
from trainers.measuring.measure import Measurement
from trainers.stats import PairedTest, paired_test

DECIDING = "sampled"
"""The decode setting whose figures stand under `held_out.before` and `held_out.after`."""


class Stopped(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    PATIENCE = "patience"
    GUARD = "guard"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(slots=True)
class Clock:
    """Where a run's wall time went, in seconds. `add` what each rollout reports.

    Attributes:
        rollout: Playing training episodes; of it `model` sampling, `sandbox` waiting for sandboxes, the rest ours.
        held_out: Playing held-out episodes (not in `rollout`).
        confirm: Measuring start and `best/` once more at the end.
        learn: Forward, backward and optimizer of the training steps.
        turns: Turns of the training episodes; `tokens` sampled in them.
        steps: Optimizer steps taken.
    """

    rollout: float = 0.0
    model: float = 0.0
    sandbox: float = 0.0
    held_out: float = 0.0
    learn: float = 0.0
    turns: int = 0
    tokens: int = 0
    steps: int = 0
    confirm: float = 0.0

    def add(self, timing: Timing) -> None:
        """Count one training rollout."""
        self.rollout += timing.wall_seconds
        self.model += timing.model_seconds
        self.sandbox += timing.sandbox_seconds
        self.turns += timing.turns
        self.tokens += timing.sampled_tokens

    @property
    def overhead(self) -> float:
        """Rollout wall that was neither the model's nor the sandboxes'."""
        return max(0.0, self.rollout - self.model - self.sandbox)

    @property
    def overhead_share(self) -> float | None:
        """Share of rollout wall; `None` before the first rollout."""
        return self.overhead / self.rollout if self.rollout else None

    @property
    def model_time_share(self) -> float | None:
        """Share of rollout wall in which the model sampled; `None` before the first rollout."""
        return self.model / self.rollout if self.rollout else None

    def other(self, wall_seconds: float) -> float:
        """What of the wall time is none of these."""
        return max(0.0, wall_seconds - self.rollout - self.held_out - self.confirm - self.learn)

    def to_json(self, wall_seconds: float) -> dict[str, Any]:
        """Totals, milliseconds per turn and seconds per step."""
        out: dict[str, Any] = {
            "rollout_seconds": self.rollout,
            "model_seconds": self.model,
            "sandbox_seconds": self.sandbox,
            "overhead_seconds": self.overhead,
            "held_out_seconds": self.held_out,
            "confirm_seconds": self.confirm,
            "learn_seconds": self.learn,
            "other_seconds": self.other(wall_seconds),
            "turns": self.turns,
            "sampled_tokens": self.tokens,
            "steps": self.steps,
            "overhead_share_of_rollout": self.overhead_share,
        }
        if self.turns:
            out["ms_per_turn"] = {
                name: 1000 * seconds / self.turns
                for name, seconds in (("model", self.model), ("sandbox", self.sandbox), ("overhead", self.overhead))
            }
        if self.steps:
            out["seconds_per_step"] = {
                "rollout": self.rollout / self.steps,
                "learn": self.learn / self.steps,
                "held_out": self.held_out / self.steps,
            }
        return out


@dataclass(slots=True)
class RunSummary:
    """A finished (or stopped) run.

    Attributes:
        before: Held-out measurement of the start by decode setting; must hold `sampled` or a single setting.
        after: The same for the chosen checkpoint (`best_step`), which is not always the last step.
        last_step: Optimizer steps taken.
        stopped: Why the run ended: `finished`, `patience`, `guard`, `interrupted` or what the trainer says.
        warnings: Notes on the run, as shown.
        findings: What guards warned of or stopped the run for, as shown.
        guards: The guards in figures (`Watch.to_json`), `guards_line` in words.
        confirmation: The headline: start and chosen weights on tasks that nothing chose on, or why there is none.
    """

    before: dict[str, Measurement]
    after: dict[str, Measurement]
    best_step: int
    last_step: int
    wall_seconds: float
    clock: Clock
    seed: int
    config_sha256: str
    best_metric: str = ""
    stopped: str = "finished"
    warnings: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    guards: dict[str, Any] = field(default_factory=dict)
    guards_line: str = ""
    confirmation: Confirmation = field(default_factory=Confirmation)

    @property
    def deciding(self) -> str:
        """The setting that `held_out` reports at its top: `sampled` where it was measured."""
        return DECIDING if DECIDING in self.before else next(iter(self.before))

    def test(self, setting: str) -> PairedTest:
        """Paired test of after against before under one decode setting."""
        return paired_test(self.before[setting].outcomes, self.after[setting].outcomes)

    def to_json(self) -> dict[str, Any]:
        """The record that summary.json holds; the same keys in every run folder."""
        held_out: dict[str, Any] = {}
        if self.before:
            held_out = {"n": self.before[self.deciding].n, **self._pair(self.deciding)}
        held_out |= {"best_step": self.best_step, "best_metric": self.best_metric, "last_step": self.last_step}
        for setting in self.before:
            if setting != self.deciding:
                held_out[setting] = {"n": self.before[setting].n, **self._pair(setting)}
        return {
            "confirmation": self._confirmed(),
            "held_out": held_out,
            "wall_seconds": self.wall_seconds,
            "model_time_share": self.clock.model_time_share,
            "seed": self.seed,
            "config_sha256": self.config_sha256,
            "timing": self.clock.to_json(self.wall_seconds),
            "stopped": self.stopped,
            "warnings": [*self.warnings, *(finding.message for finding in self.findings)],
            "guards": self.guards,
        }

    def _confirmed(self) -> dict[str, Any]:
        c = self.confirmation
        out: dict[str, Any] = {"tasks": c.source, "why_none": c.why, "best_step": c.step}
        for arm in c.before:
            interval = c.interval(arm)
            out[arm] = {
                "n": c.before[arm].n,
                "decode": {"before": c.before[arm].sampling, "after": c.after[arm].sampling},
                "before": _figures(c.before[arm]),
                "after": _figures(c.after[arm]),
                "paired_test": asdict(c.test(arm)),
                "difference_interval": [interval.low, interval.high] if interval else None,
            }
        return out

    def _pair(self, setting: str) -> dict[str, Any]:
        return {
            "decode": self.before[setting].sampling,
            "before": _figures(self.before[setting]),
            "after": _figures(self.after[setting]),
            "paired_test": asdict(self.test(setting)),
        }


def _figures(m: Measurement) -> dict[str, Any]:
    return {
        "passed": m.passed,
        "assertion_rate": m.assertion_rate,
        "reward": m.reward,
        "mean_turns": m.mean_turns,
        "submitted": m.submitted,
        "pass_rate": m.pass_rate,
        "interval": [m.low, m.high],
        "graded": m.graded,
        "infrastructure": m.infrastructure,
        "pass_min": m.pass_min,
        "excluded": m.excluded,
        "broke": m.broke,
        "stops": m.stops,
    }
