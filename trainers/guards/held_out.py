"""Guard 1, ship by held-out: whether what is chosen is chosen by measurement, and what the pool hides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agents.rollout import RolloutResult
from trainers.guards.events import Facts, Measured
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName
from trainers.measuring.measure import is_graded
from trainers.rollouts.groups import first_drawn
from trainers.stats import effective_n, fisher_exact


@dataclass
class ShipByHeldOut(Guard):
    """The held-out figure does not follow the pool, or there is none.

    Attributes:
        alpha: p-value below which a difference counts; on effective counts, for the attempts at a pool task are alike.
        compares: Pool windows may be compared; not under a curriculum, which makes the pool harder on purpose.
    """

    name: ClassVar[str] = GuardName.SHIP_BY_HELD_OUT
    alpha: float = 0.01
    compares: bool = True
    _played: dict[str, list[int]] = field(default_factory=dict)
    """Passed and graded pool episodes since the last evaluation, by task."""
    _at_best: dict[str, list[int]] = field(default_factory=dict)
    """The same before the best evaluation."""
    _best: list[int] = field(default_factory=list)
    """Step, passed and graded of the best held-out figure."""

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Nothing selects; and whether the pool stays one pool."""
        self.compares = not facts.config.curriculum
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
        if facts.held_out and not self.compares:
            yield note(
                "curriculum",
                "curriculum: tasks come in an order, so pool rates of two times are those of other tasks and are not "
                "compared: that the pool runs ahead of the held-out tasks goes unseen.",
            )

    def episodes(self, step: int, played: RolloutResult) -> None:
        """Count the pool."""
        for episode in first_drawn(played.trajectories):
            if is_graded(episode):
                passed, graded = self._played.get(episode.task_id, (0, 0))
                self._played[episode.task_id] = [passed + bool(episode.passed), graded + 1]

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Held-out flat or falling while the pool rises."""
        arm, pool = held_out.arms[held_out.deciding], self._played
        self._played = {}
        if held_out.is_best or not self._best:
            self._best, self._at_best = [held_out.step, arm.passed, arm.graded], pool
            return
        if not self._at_best:  # the best is the start, before which no pool task was played
            self._at_best = pool
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
        rise = risen(self._at_best, pool) if self.compares and pool else 1.0
        if rise < self.alpha:
            yield warn(
                "pool_runs_ahead",
                f"{figures}: no better, while the pool rose from {_counts(self._at_best)} to {_counts(pool)} "
                f"(p={rise:.2g}). {keeps}. Train on more tasks, lower learning_rate, or set patience to stop here.",
            )
        if held_out.p_value is not None and held_out.p_value < self.alpha and arm.passed * graded < passed * arm.graded:
            yield warn("held_out_falls", f"{figures}: it fell. {keeps}. Lower learning_rate, or set patience.")


def risen(before: Mapping[str, Sequence[int]], after: Mapping[str, Sequence[int]]) -> float:
    """p-value of a rise of the pass rate; 1 where it did not rise.

    Args:
        before: Task id to its passed and graded attempts, at least one of them graded.
        after: Likewise.
    """
    (was, was_n), (now, now_n) = _independent(before), _independent(after)
    return fisher_exact(round(now * now_n), now_n, round(was * was_n), was_n) if now > was else 1.0


def _independent(counts: Mapping[str, Sequence[int]]) -> tuple[float, int]:
    """Pass rate, and how many independent episodes it is worth."""
    n = effective_n({task: [True] * passed + [False] * (graded - passed) for task, (passed, graded) in counts.items()})
    return sum(passed for passed, _ in counts.values()) / sum(graded for _, graded in counts.values()), round(n)


def _counts(counts: Mapping[str, Sequence[int]]) -> str:
    return f"{sum(passed for passed, _ in counts.values())}/{sum(graded for _, graded in counts.values())}"
