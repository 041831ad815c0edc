"""Held-out measurement during training: the figure that chooses the checkpoint, and when to stop.

The pool never decides. The step-0 baseline competes, so a run that never beats its start ships its start. Ties keep
the earlier checkpoint. `best/` is written beside the checkpoints and is never rotated away.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agents.policy import Sampling
from agents.rollout import Job, RolloutResult
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tasks.task import Task
from trainers.measuring.measure import Measurement, measure
from trainers.run.checkpoints import sync
from trainers.stats import paired_test

BEST_FILE = "BEST.json"


class BestLostError(RuntimeError):
    """The weights that a checkpoint calls its best are not in the run folder any more."""


class Player(Protocol):
    """Who holds the weights that are measured: the trainer."""

    def rollout(self, jobs: Sequence[Job], sampling: Sampling, *, training: bool) -> RolloutResult:
        """Play episodes with the weights as they are."""

    def save_policy(self, folder: Path) -> None:
        """Write weights and tokenizer into a new folder."""


@dataclass(slots=True)
class Best:
    """The best held-out figure so far."""

    step: int
    value: float
    metric: str
    reason: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One held-out evaluation.

    Attributes:
        step: Optimizer steps taken before it.
        arms: Measurement of each decode setting (`sampled`, `greedy`).
        metrics: The figures, under the names of the logs.
        is_best: It became the best.
        p_value: Paired test of the deciding arm against the best before it; `None` for the first.
        stop: Patience is spent.
    """

    step: int
    arms: dict[str, Measurement]
    metrics: dict[str, float]
    is_best: bool
    p_value: float | None
    stop: bool


@dataclass(slots=True)
class HeldOut:
    """The held-out tasks and the rule that chooses the best.

    Attributes:
        tasks: Only measured on.
        arms: Decode settings by name.
        metric: `<arm>_<figure>`; its figure decides.
        seed: Of the samples; equal at every step, so that steps are compared on common random numbers.
        output_dir: Where `best/` goes; `None` keeps no weights.
        patience: Evaluations without a new best before the run stops; 0 never stops.
        min_delta: How much better a new best must be.
        extra_files: Called with the folder of new best weights, to add what belongs beside them.
        on_evaluation: Called after each evaluation with its trajectories by arm, for records and the console.
    """

    tasks: Sequence[Task]
    arms: dict[str, Sampling]
    metric: str
    seed: int = 0
    output_dir: Path | None = None
    patience: int = 0
    min_delta: float = 0.0
    extra_files: Callable[[Path], None] | None = None
    on_evaluation: Callable[[Evaluation, dict[str, list[Trajectory]]], None] | None = None
    best: Best | None = None
    history: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    _since_best: int = 0
    _best_arm: dict[str, list[bool]] = field(default_factory=dict)

    def evaluate(self, player: Player, step: int) -> Evaluation:
        """Play every held-out task once per arm with the weights as they are, and judge."""
        done = self.measured(step)
        if done is not None:
            return done
        episodes: dict[str, list[Trajectory]] = {}
        arms: dict[str, Measurement] = {}
        for name, sampling in self.arms.items():
            jobs = [Job(t, 0, derive_seed(self.seed, "held_out", name, i)) for i, t in enumerate(self.tasks)]
            result = player.rollout(jobs, sampling, training=False)
            self.seconds += result.timing.wall_seconds
            episodes[name] = result.trajectories
            arms[name] = measure(result.trajectories, result.label)
        best, p_value = self._challenge(step, arms)
        if best is not None and self.output_dir is not None:
            self._save_best(player, best)
        # Only now: an interruption while the weights were written leaves the old best in force.
        if best is not None:
            self.best, self._since_best = best, 0
            self._best_arm = {task: list(passes) for task, passes in arms[self._arm].outcomes.items()}
        else:
            self._since_best += 1
        evaluation = Evaluation(step, arms, _figures(arms), best is not None, p_value, self.exhausted)
        self.history.append(evaluation)
        if self.on_evaluation is not None:
            self.on_evaluation(evaluation, episodes)
        return evaluation

    def measured(self, step: int) -> Evaluation | None:
        """The evaluation after `step` optimizer steps, if there was one."""
        return next((e for e in self.history if e.step == step), None)

    @property
    def exhausted(self) -> bool:
        """Patience is spent."""
        return bool(self.patience) and self._since_best >= self.patience

    @property
    def _arm(self) -> str:
        return self.metric.partition("_")[0]

    def _challenge(self, step: int, arms: dict[str, Measurement]) -> tuple[Best | None, float | None]:
        """The new best, if it is one, and the paired p-value against the best before it."""
        value = getattr(arms[self._arm], self.metric.partition("_")[2])
        p_value = paired_test(self._best_arm, arms[self._arm].outcomes).p_value if self._best_arm else None
        if value is None:
            return None, p_value
        if self.best is None:
            return Best(step, value, self.metric, "first measurement"), p_value
        if value <= self.best.value + self.min_delta:
            return None, p_value
        reason = f"{value:.4f} beats {self.best.value:.4f} at step {self.best.step} (p={p_value:.2g})"
        return Best(step, value, self.metric, reason), p_value

    def _save_best(self, player: Player, best: Best) -> None:
        """Write the weights to `best.tmp`, then swap: a crash leaves the old best or the new one, whole.

        The best that the last checkpoint points to stays as `best.old` until the next checkpoint is written, so that a
        run that goes back to that checkpoint finds its best again.
        """
        assert self.output_dir is not None
        fresh, final, old = (self.output_dir / name for name in ("best.tmp", "best", "best.old"))
        shutil.rmtree(fresh, ignore_errors=True)
        player.save_policy(fresh)
        if self.extra_files is not None:
            self.extra_files(fresh)
        (fresh / BEST_FILE).write_text(json.dumps(asdict(best), indent=2) + "\n")
        sync([*fresh.rglob("*"), fresh])
        if final.exists() and old.exists():
            shutil.rmtree(final)
        elif final.exists():
            final.rename(old)
        fresh.rename(final)

    # -- resume -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Best, patience and history, JSON-able: part of every checkpoint."""
        return {
            "best": asdict(self.best) if self.best else None,
            "since_best": self._since_best,
            "best_arm": self._best_arm,
            "history": [asdict(e) for e in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""
        self.best = Best(**state["best"]) if state["best"] else None
        self._since_best = state["since_best"]
        self._best_arm = state["best_arm"]
        self.history = [
            Evaluation(**{**e, "arms": {k: Measurement.from_json(m) for k, m in e["arms"].items()}})
            for e in state["history"]
        ]
        if self.output_dir is not None and self.best is not None:
            _go_back(self.output_dir, self.best)

    def checkpoint_written(self) -> None:
        """The newest checkpoint points to the present best: the one before it is no longer needed."""
        if self.output_dir is not None:
            shutil.rmtree(self.output_dir / "best.old", ignore_errors=True)


def _figures(arms: dict[str, Measurement]) -> dict[str, float]:
    """The figures of an evaluation under the names of the logs."""
    out = {}
    for name, m in arms.items():
        for key in ("pass_rate", "assertion_rate", "reward", "mean_turns", "submitted"):
            if (number := getattr(m, key)) is not None:
                out[f"{name}_{key}"] = float(number)
        out[f"{name}_infrastructure"] = float(m.infrastructure)
    return out


def _go_back(folder: Path, best: Best) -> None:
    """Make `best/` the weights that the checkpoint points to, whatever an earlier process did after it."""
    final, old = folder / "best", folder / "best.old"
    if _step_of(final) != best.step and _step_of(old) == best.step:
        shutil.rmtree(final, ignore_errors=True)
        old.rename(final)
    if _step_of(final) != best.step:
        raise BestLostError(
            f"{final}: holds step {_step_of(final)}, but the checkpoint's best is step {best.step}, whose weights are "
            "gone; start again in another --output_dir"
        )
    shutil.rmtree(old, ignore_errors=True)  # else the next best would take it for the checkpoint's


def _step_of(folder: Path) -> int | None:
    path = folder / BEST_FILE
    return int(json.loads(path.read_text())["step"]) if path.is_file() else None
