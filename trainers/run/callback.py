"""Ties a trainer to its run folder and console: logs, guards, where the time went."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.guards import Guard
from trainers.heldout import Evaluation
from trainers.run.console import RunConsole
from trainers.run.jsonl import write_json
from trainers.run.record import RunRecord
from trainers.run.summary import Clock

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer

CLOCK_FILE = "clock.json"


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Writes what happens to the record and shows it; `clock` adds up where the time went."""

    def __init__(
        self, record: RunRecord, console: RunConsole, guards: Sequence[Guard], *, keep_trajectories: bool
    ) -> None:
        self.record, self.console, self.guards = record, console, list(guards)
        self.clock = Clock()
        self.trainer: GiGPOTrainer | None = None
        self._keep = keep_trajectories
        self._begin = 0.0
        self._rollout_before = 0.0
        self._held_out_before = 0.0

    def restore(self, checkpoint: Path) -> None:
        """Go on counting where the process of `checkpoint` stood."""
        path = checkpoint / CLOCK_FILE
        if path.is_file():
            self.clock = Clock(**json.loads(path.read_text(encoding="utf-8")))
        self._held_out_before = self.clock.held_out
        for step, numbers in self.record.training_metrics():  # guards look back: they see what they had seen
            for guard in self.guards:
                guard.see(step, numbers)
        self.console.warnings.extend(self.record.warnings())

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        self.clock.add(result.timing)
        self.record.write_episodes(step + 1, result.trajectories, keep=self._keep)

    def on_evaluation(self, evaluation: Evaluation, episodes: dict[str, list[Trajectory]]) -> None:
        """A held-out evaluation is done."""
        assert self.trainer is not None and self.trainer.held_out is not None
        held_out = self.trainer.held_out
        self.clock.held_out = self._held_out_before + held_out.seconds
        best_step = held_out.best.step if held_out.best else None
        self.record.write_held_out(
            evaluation.step,
            episodes,
            evaluation.arms,
            best=evaluation.is_best,
            p_value=evaluation.p_value,
            p_values=evaluation.p_values,
            best_step=best_step,
            metric=held_out.metric,
            pool=asdict(evaluation.pool) if evaluation.pool else None,
        )
        self.console.held_out(
            evaluation.step,
            evaluation.arms,
            best=evaluation.is_best,
            best_step=best_step,
            p_value=evaluation.p_value,
            p_values=evaluation.p_values,
            metric=held_out.metric,
            pool=evaluation.pool,
        )

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        self._begin = time.perf_counter()
        self._rollout_before = self.clock.rollout

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: what was not rollout was learning."""
        assert self.trainer is not None
        learn = time.perf_counter() - self._begin - (self.clock.rollout - self._rollout_before)
        self.clock.learn += learn
        self.clock.steps += 1
        self.trainer.note_metric("time/learn_seconds", learn)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written: the clock goes with it."""
        write_json(Path(args.output_dir) / f"checkpoint-{state.global_step}" / CLOCK_FILE, asdict(self.clock))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Metrics: to the record; those of a training step also to the console and the guards."""
        if not logs or not state.is_world_process_zero:
            return
        figures = {k: v for k, v in logs.items() if k != "total_flos"}
        self.record.log(state.global_step, figures)
        if "reward" not in figures:
            return
        self.console.step(state.global_step, figures)
        numbers = {k: float(v) for k, v in figures.items() if isinstance(v, (int, float))}
        for guard in self.guards:
            message = guard.see(state.global_step, numbers)
            if message is not None:
                self.warn(state.global_step, message)

    def warn(self, step: int, message: str) -> None:
        """Say it now, in the record and in the summary."""
        self.console.warn(message)
        self.record.warn(step, message)
