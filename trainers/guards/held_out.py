"""Guard 1, ship by held-out: whether what is chosen is chosen by measurement, and what the pool hides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.events import Facts, Measured
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName
from trainers.stats import fisher_exact


@dataclass
class ShipByHeldOut(Guard):
    """The held-out figure does not follow the pool, or there is none.

    Attributes:
        alpha: p-value below which a difference counts. Small, because the K attempts at a pool task are alike.
    """

    name: ClassVar[str] = GuardName.SHIP_BY_HELD_OUT
    alpha: float = 0.01
    _pool: list[int] = field(default_factory=lambda: [0, 0])
    """Passed and graded pool episodes since the last evaluation."""
    _pool_at_best: list[int] = field(default_factory=lambda: [0, 0])
    _best: list[int] = field(default_factory=list)
    """Step, passed and graded of the best held-out figure."""

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Nothing selects."""
        if not facts.held_out:
            yield note(
                "nothing_selects",
                "nothing is held out, so nothing selects a checkpoint: the last one is kept, good or not. Name tasks "
                "with --held_out.",
            )
        elif facts.config.eval_strategy == "no":
            yield warn(
                "not_measured",
                f"eval_strategy=no: the {len(facts.held_out)} held-out tasks are measured at the end only, and no "
                "checkpoint before can become `best/`. Use eval_strategy=steps.",
            )

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Count the pool."""
        graded = [episode for episode in played.trajectories if episode.passed is not None]
        self._pool = [self._pool[0] + sum(bool(e.passed) for e in graded), self._pool[1] + len(graded)]
        return iter(())

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Held-out flat or falling while the pool rises."""
        arm, pool = held_out.arms[held_out.deciding], self._pool
        self._pool = [0, 0]
        if held_out.is_best or not self._best:
            self._best, self._pool_at_best = [held_out.step, arm.passed, arm.graded], pool
            return
        if not self._pool_at_best[1]:  # the best is the start, before which no pool task was played
            self._pool_at_best = pool
            return
        if arm.pass_rate is None or arm.low is None or arm.high is None:
            return
        step, passed, graded = self._best
        p = "unknown" if held_out.p_value is None else f"{held_out.p_value:.2g}"
        figures = (
            f"held-out at step {held_out.step}: {arm.passed}/{arm.graded} ({100 * arm.pass_rate:.1f} %, 95 % interval "
            f"{100 * arm.low:.1f}-{100 * arm.high:.1f}) against {passed}/{graded} of the best at step {step} (p={p})"
        )
        keeps = f"`best/` stays at step {step}, and the pool is not used for selection"
        (was, was_of), (now, now_of) = self._pool_at_best, pool
        if now_of and now / now_of > was / was_of and (rise := fisher_exact(now, now_of, was, was_of)) < self.alpha:
            yield warn(
                "pool_runs_ahead",
                f"{figures}: no better, while the pool rose from {was}/{was_of} to {now}/{now_of} (p={rise:.2g}). "
                f"{keeps}. Train on more tasks, lower learning_rate, or set patience to stop here.",
            )
        if held_out.p_value is not None and held_out.p_value < self.alpha and arm.passed * graded < passed * arm.graded:
            yield warn("held_out_falls", f"{figures}: it fell. {keeps}. Lower learning_rate, or set patience.")
