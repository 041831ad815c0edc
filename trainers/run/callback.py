"""Ties a trainer to its run folder and console: logs, guards, where the time went."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.guards import Facts, Finding, Measured, Severity, Watch
from trainers.guards.signal import read_groups
from trainers.heldout import Evaluation
from trainers.run.checkpoints import STATE_FILE, last_complete_checkpoint, step_of
from trainers.run.console import RunConsole
from trainers.run.record import RunRecord
from trainers.run.summary import Clock
from trainers.run.weight_delta import WeightDelta

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer


class RunCallback(TrainerCallback):  # type: ignore[misc]
    """Writes what happens to the record and shows it; `clock` adds up where the time went."""

    def __init__(self, record: RunRecord, console: RunConsole, watch: Watch, *, keep_trajectories: bool) -> None:
        self.record, self.console, self.watch = record, console, watch
        self.clock = Clock()
        self.stopped: Finding | None = None
        """What a guard ended the run for."""
        self._weights = WeightDelta()
        self.trainer: GiGPOTrainer | None = None
        self._keep = keep_trajectories
        self._begin = 0.0
        self._rollout_before = 0.0
        self._held_out_before = 0.0

    def restore(self, checkpoint: Path) -> None:
        """Go on counting where the process of `checkpoint` stood."""
        state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8")).get("run")
        if state:
            self.clock = Clock(**state["clock"])
            self.watch.load_state_dict(state["guards"])
        self.watch.restore(self.record.findings())
        self._held_out_before = self.clock.held_out
        self.console.warnings.extend(self.record.warnings())

    def state(self) -> dict[str, Any]:
        """Where the time went so far and what the guards remember: part of every checkpoint."""
        return {"clock": asdict(self.clock), "guards": self.watch.state_dict()}

    def begin(self, facts: Facts, step: int) -> None:
        """Everything is put together and step `step` was the last."""
        self._found(self.watch.begin(facts, step))

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        self.clock.add(result.timing)
        self.record.write_episodes(step + 1, result.trajectories, keep=self._keep)
        if self.trainer is not None:
            for name, value in read_groups(result.trajectories).metrics().items():
                self.trainer.note_metric(name, value)
        self._found(self.watch.episodes(step + 1, result))

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
        deciding = held_out.metric.partition("_")[0]
        self._found(
            self.watch.measured(
                Measured(
                    evaluation.step,
                    evaluation.arms,
                    deciding,
                    evaluation.is_best,
                    evaluation.p_value,
                    best_step,
                    episodes,
                )
            )
        )

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        self._begin = time.perf_counter()
        self._rollout_before = self.clock.rollout
        if kwargs.get("optimizer") is not None:
            self._weights.begin(kwargs["model"], float(kwargs["optimizer"].param_groups[0]["lr"]))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: what was not rollout was learning."""
        assert self.trainer is not None
        learn = time.perf_counter() - self._begin - (self.clock.rollout - self._rollout_before)
        self.clock.learn += learn
        self.clock.steps += 1
        self.trainer.note_metric("time/learn_seconds", learn)
        for name, value in self._weights.end(kwargs["model"]).items() if "model" in kwargs else ():
            self.trainer.note_metric(name, value)

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
        self._found(self.watch.step(state.global_step, numbers))
        if self.stopped is not None:
            control.should_training_stop = True
            # What is stopped for is neither kept nor measured: the last checkpoint stays the one from before.
            control.should_save = control.should_evaluate = False

    def _found(self, findings: Sequence[Finding]) -> None:
        """Write down what guards found, and show what is more than a note."""
        for finding in findings:
            if finding.severity is Severity.STOP:
                finding = replace(finding, message=f"{finding.message} {self._way_back()}")
                self.stopped = self.stopped or finding
            self.record.write_finding(finding)
            self.console.found(finding)

    def _way_back(self) -> str:
        """What is left from before, and how to go on from it."""
        folder = self.record.path
        parts = []
        if (checkpoint := last_complete_checkpoint(folder)) is not None:
            parts.append(
                f"the last checkpoint from before is step {step_of(checkpoint)}: --resume goes back to it (change a "
                "setting first: the same ones lead here again)"
            )
        if self.trainer is not None and self.trainer.held_out is not None and self.trainer.held_out.best is not None:
            parts.append(f"`best/` holds step {self.trainer.held_out.best.step}")
        return f"The run ends here; {'; '.join(parts) or 'no checkpoint was written before'}."

    def warn(self, step: int, message: str) -> None:
        """Say it now, in the record and in the summary."""
        self.console.warn(message)
        self.record.warn(step, message)
