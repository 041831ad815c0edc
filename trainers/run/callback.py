"""Ties a trainer to its run folder and console: logs, guards, where the time went."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.guards import Facts, Finding, Watch
from trainers.heldout import Evaluation
from trainers.measuring.confirmation import Confirmation, Episodes
from trainers.resume.settings import FIELDS
from trainers.run.checkpoints import Checkpoint
from trainers.run.console import RunConsole
from trainers.run.guarding import GuardCallback
from trainers.run.record import RunRecord
from trainers.run.summary import Clock

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer


class RunCallback(GuardCallback):
    """Writes what happens to the record and shows it; `clock` adds up where the time went."""

    keeps_run_folder = True

    def __init__(self, record: RunRecord, console: RunConsole, watch: Watch, *, keep_trajectories: bool) -> None:
        super().__init__(watch)  # its findings: what ended an earlier process of the run is a warning in this one
        self.record, self.console = record, console
        self.clock = Clock()
        self._keep = keep_trajectories
        self._begin = 0.0
        self._rollout_before = 0.0
        self._held_out_before = 0.0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on counting where the process of `checkpoint` stood."""
        if state := checkpoint.state.get("run"):
            self.clock = Clock(**state["clock"])
            self.watch.load_state_dict(state["guards"])
        self.watch.restore(self.record.findings())
        self.findings = list(self.watch.findings)
        self._held_out_before = self.clock.held_out
        self.console.warnings.extend(self.record.warnings())

    def state(self) -> dict[str, Any]:
        """Where the time went so far and what the guards remember: part of every checkpoint."""
        return {"clock": asdict(self.clock), "guards": self.watch.state_dict()}

    def attach(self, trainer: GiGPOTrainer) -> None:
        """`trainers.grpo` has wired it already, and sets `trainer` when everything is put together."""

    def begin(self, facts: Facts, step: int) -> None:
        """Everything is put together and step `step` was the last."""
        self._found(self.watch.begin(facts, step))

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        self.clock.add(result.timing)
        self.record.write_episodes(step + 1, result.trajectories, keep=self._keep)
        super().on_episodes(step, result)

    def on_evaluation(self, evaluation: Evaluation, episodes: dict[str, list[Trajectory]]) -> None:
        """A held-out evaluation is done."""
        assert self.trainer is not None and self.trainer.held_out is not None
        held_out = self.trainer.held_out
        self.clock.held_out = self._held_out_before + held_out.seconds
        best_step = held_out.best.step if held_out.best else None
        self.record.write_held_out(evaluation, episodes, best_step=best_step, metric=held_out.metric)
        self.console.held_out(evaluation, best_step=best_step, metric=held_out.metric)
        super().on_evaluation(evaluation, episodes)

    def on_confirmation(self, confirmation: Confirmation, episodes: Episodes, seconds: float) -> None:
        """What was chosen has been measured once more, or needed not to be; it took `seconds` of wall time."""
        self.clock.confirm += seconds
        self.record.write_confirmation(confirmation, episodes)

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        self._begin = time.perf_counter()
        self._rollout_before = self.clock.rollout
        super().on_step_begin(args, state, control, **kwargs)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: what was not rollout was learning."""
        assert self.trainer is not None
        learn = time.perf_counter() - self._begin - (self.clock.rollout - self._rollout_before)
        self.clock.learn += learn
        self.clock.steps += 1
        self.trainer.note_metric("time/learn_seconds", learn)
        super().on_step_end(args, state, control, **kwargs)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Metrics: to the record; those of a training step also to the console and the guards."""
        if not logs or not state.is_world_process_zero:
            return
        figures = {k: v for k, v in logs.items() if k != "total_flos"}
        self.record.log(state.global_step, figures)
        if "reward" not in figures:
            return
        self.console.step(state.global_step, figures)
        super().on_log(args, state, control, figures, **kwargs)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The checkpoint is taken up; what guards said to settings and tasks (see `begin`) may have ended the run."""
        # Of the fields of the optimizer the trainer tells, with what follows for the next step.
        changed = [text for name, text in self.record.changed.items() if name not in FIELDS]
        if state.global_step and changed:
            self.warn(state.global_step, f"resumed with other settings: {'; '.join(changed)}.")
        self._end_if_stopped(control)

    # -- what guards found --------------------------------------------------------------------------------------

    def tell(self, finding: Finding) -> None:
        """To the record and the console."""
        self.record.write_finding(finding)
        self.console.found(finding)

    def output_dir(self) -> Path:
        """The run folder."""
        return self.record.path

    def way_back(self) -> str:
        """How to go on from the checkpoint that is left."""
        return "--resume goes back to it"

    def warn(self, step: int, message: str) -> None:
        """Say it now, in the record and in the summary."""
        self.console.warn(message)
        self.record.warn(step, message)
