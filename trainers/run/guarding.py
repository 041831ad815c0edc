"""The guards of a run as a callback: one line for a trainer that is put together in Python (docs/guards.md)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.config.held_out import take_apart
from trainers.guards import Finding, Measured, Severity, Watch
from trainers.guards.events import LeftBehind
from trainers.guards.signal import read_groups
from trainers.heldout import Evaluation
from trainers.processes import is_main
from trainers.run.checkpoints import Checkpoint
from trainers.run.facts import trainer_facts
from trainers.run.jsonl import append_line
from trainers.run.record import FINDINGS
from trainers.run.weight_delta import WeightDelta

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer


class GuardCallback(TrainerCallback):
    """Shows a run to the guards, tells what they find, and ends the run where they say so.

    Pass it in `callbacks` of a `GiGPOTrainer`. Findings go to `guards.jsonl` in its `output_dir`; what is more than a
    note is a Python warning, too (or goes to the callbacks that have `warn`). What guards remember is in no checkpoint:
    a run that is resumed is judged anew. `python -m trainers.grpo` keeps it.

    Args:
        watch: The guards: `Watch(config.guards)`.

    Attributes:
        stopped: What a guard ended the run for.
        findings: What guards found.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.stopped: Finding | None = None
        self.findings: list[Finding] = []
        self.trainer: GiGPOTrainer | None = None
        self._weights = WeightDelta()

    def attach(self, trainer: GiGPOTrainer) -> None:
        """The trainer, which calls this once, at the end of its construction. With several processes one watches."""
        if not is_main():
            return
        self.trainer = trainer
        trainer.on_episodes = _both(trainer.on_episodes, self.on_episodes)
        if trainer.held_out is not None:
            trainer.held_out.on_evaluation = _both(trainer.held_out.on_evaluation, self.on_evaluation)

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        if self.trainer is not None:
            args = self.trainer.args
            meter = read_groups(result.trajectories, args, args.turn_signal)
            for name, value in meter.metrics().items():
                self.trainer.note_metric(name, value)
        self._found(self.watch.episodes(step + 1, result))

    def on_evaluation(self, evaluation: Evaluation, episodes: dict[str, list[Trajectory]]) -> None:
        """A held-out evaluation is done."""
        assert self.trainer is not None and self.trainer.held_out is not None
        held_out = self.trainer.held_out
        measured = Measured(
            evaluation.step,
            evaluation.arms,
            take_apart(held_out.metric).arm,
            evaluation.is_best,
            evaluation.p_value,
            held_out.best.step if held_out.best else None,
            episodes,
        )
        self._found(self.watch.measured(measured))

    def left(self, behind: LeftBehind | None) -> None:
        """The run is over; `None` where no checkpoint could be looked at."""
        if behind is not None:
            self._found(self.watch.left(behind))

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Settings, tasks and model; what guards say to them may end the run already."""
        if self.trainer is not None:
            self._found(self.watch.begin(trainer_facts(self.trainer), state.global_step))
        self._end_if_stopped(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        if self.trainer is not None and kwargs.get("optimizer") is not None:
            self._weights.begin(kwargs["model"], float(kwargs["optimizer"].param_groups[0]["lr"]))
            self.trainer.advantaged = 0.0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients of the step are there."""
        if self.trainer is not None:
            self._weights.gradients()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: how far the weights moved."""
        if self.trainer is None:
            return
        figures, update = self._weights.end(self.trainer.advantaged)
        for name, value in figures.items():
            self.trainer.note_metric(name, value)
        if update is not None:
            self._found(self.watch.update(state.global_step, update))
        if self.stopped is not None:  # by its episodes or its update; `on_log` may be steps away
            control.should_log = True
            self._end_if_stopped(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Metrics of a training step."""
        if logs and state.is_world_process_zero and "reward" in logs:
            numbers = {k: float(v) for k, v in logs.items() if isinstance(v, (int, float))}
            self._found(self.watch.step(state.global_step, numbers))
            self._end_if_stopped(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What guards said to a measurement may end the run."""
        self._end_if_stopped(control)

    # -- what they found ----------------------------------------------------------------------------------------

    def tell(self, finding: Finding) -> None:
        """Write a finding down, and show what is more than a note."""
        assert self.trainer is not None
        folder = self.output_dir()
        folder.mkdir(parents=True, exist_ok=True)
        append_line(folder / FINDINGS, asdict(finding))
        if finding.severity is not Severity.NOTE:
            self.trainer.warn(finding.step, f"guard {finding.guard} (step {finding.step}): {finding.message}")

    def output_dir(self) -> Path:
        """Where findings and checkpoints are."""
        assert self.trainer is not None
        return Path(self.trainer.args.output_dir)

    def way_back(self) -> str:
        """How to go on from the checkpoint that is left."""
        return "train(resume_from_checkpoint=...) goes back to it"

    def _end_if_stopped(self, control: Any) -> None:
        if self.stopped is not None:
            control.should_training_stop = True
            # What is stopped for is neither kept nor measured: the last checkpoint stays the one from before.
            control.should_save = control.should_evaluate = False

    def _found(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.severity is Severity.STOP:
                finding = replace(finding, message=f"{finding.message} {self._what_is_left()}")
                self.stopped = self.stopped or finding
            self.findings.append(finding)
            self.tell(finding)

    def _what_is_left(self) -> str:
        """What is left from before, and how to go on from it."""
        parts = []
        if (checkpoint := Checkpoint.newest_whole(self.output_dir())) is not None:
            parts.append(
                f"the last checkpoint from before is step {checkpoint.step}: {self.way_back()} (change a "
                "setting first: the same ones lead here again)"
            )
        if self.trainer is not None and self.trainer.held_out is not None and self.trainer.held_out.best is not None:
            parts.append(f"`best/` holds step {self.trainer.held_out.best.step}")
        return f"The run ends here; {'; '.join(parts) or 'no checkpoint was written before'}."


def _both(first: Callable[..., None] | None, second: Callable[..., None]) -> Callable[..., None]:
    """Call one after the other."""

    def call(*arguments: Any) -> None:
        if first is not None:
            first(*arguments)
        second(*arguments)

    return call
