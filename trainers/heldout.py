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
from typing import TYPE_CHECKING, Any

from agents.policy import Sampling
from agents.rollout import Job
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tasks.task import Task
from trainers.measure import Measurement, measure
from trainers.stats import paired_test

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer


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

    def evaluate(self, trainer: GiGPOTrainer, step: int) -> Evaluation:
        """Play every held-out task once per arm with the weights as they are, and judge."""
        done = next((e for e in self.history if e.step == step), None)
        if done is not None:
            return done
        episodes: dict[str, list[Trajectory]] = {}
        arms: dict[str, Measurement] = {}
        for name, sampling in self.arms.items():
            jobs = [Job(t, 0, derive_seed(self.seed, "held_out", name, i)) for i, t in enumerate(self.tasks)]
            result = trainer.rollout(jobs, sampling, training=False)
            self.seconds += result.timing.wall_seconds
            episodes[name] = result.trajectories
            arms[name] = measure(result.trajectories, sampling.label())
        evaluation = self._judge(step, arms)
        if evaluation.is_best and self.output_dir is not None:
            self._save_best(trainer)
        self.history.append(evaluation)
        if self.on_evaluation is not None:
            self.on_evaluation(evaluation, episodes)
        return evaluation

    def _judge(self, step: int, arms: dict[str, Measurement]) -> Evaluation:
        arm, _, figure = self.metric.partition("_")
        value = getattr(arms[arm], figure)
        outcomes = arms[arm].outcomes
        p_value = paired_test(self._best_arm, outcomes).p_value if self._best_arm else None
        is_best = value is not None and (self.best is None or value > self.best.value + self.min_delta)
        if is_best:
            before = "the baseline" if self.best is None else f"{self.best.value:.4f} at step {self.best.step}"
            reason = "first measurement" if self.best is None else f"{value:.4f} beats {before} (p={p_value:.2g})"
            self.best = Best(step, value, self.metric, reason)
            self._best_arm = {task: list(passes) for task, passes in outcomes.items()}
            self._since_best = 0
        else:
            self._since_best += 1
        metrics = {}
        for name, m in arms.items():
            for key in ("pass_rate", "assertion_rate", "reward", "mean_turns", "submitted"):
                if (number := getattr(m, key)) is not None:
                    metrics[f"{name}_{key}"] = float(number)
            metrics[f"{name}_infrastructure"] = float(m.infrastructure)
        stop = bool(self.patience) and self._since_best >= self.patience
        return Evaluation(step, arms, metrics, is_best, p_value, stop)

    def _save_best(self, trainer: GiGPOTrainer) -> None:
        """Write the weights to `best.tmp`, then swap: a crash leaves the old best or the new one, whole."""
        assert self.output_dir is not None and self.best is not None
        fresh, final, old = (self.output_dir / name for name in ("best.tmp", "best", "best.old"))
        for leftover in (fresh, old):
            shutil.rmtree(leftover, ignore_errors=True)
        trainer.accelerator.unwrap_model(trainer.model).save_pretrained(fresh)
        trainer.processing_class.save_pretrained(fresh)
        if self.extra_files is not None:
            self.extra_files(fresh)
        (fresh / "BEST.json").write_text(json.dumps(asdict(self.best), indent=2) + "\n")
        if final.exists():
            final.rename(old)
        fresh.rename(final)
        shutil.rmtree(old, ignore_errors=True)

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
        if self.output_dir is not None:
            _finish_swap(self.output_dir)


def _finish_swap(folder: Path) -> None:
    """A crash between the two renames of a swap leaves only the old best: put it back."""
    if not (folder / "best").exists() and (folder / "best.old").exists():
        (folder / "best.old").rename(folder / "best")
