"""The part of the trainer that measures: held-out episodes choose `best/`, end a run, and answer transformers' options.

transformers calls `evaluate` between the log and the checkpoint of a step, so that the checkpoint knows the verdict.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import TrainerControl
from trl import GRPOTrainer

from tasks.task import Task
from trainers.errors import ConfigError
from trainers.heldout.held_out import HeldOut
from trainers.heldout.stock import satisfy_callbacks, settle, why_stopped
from trainers.processes import from_main


class HeldOutSelection(GRPOTrainer):
    """Measures, keeps the best weights, stops when patience is spent. `GiGPOTrainer` plays and credits."""

    # Set by transformers, which is not analysed.
    control: TrainerControl
    held_out: HeldOut | None

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Measure the held-out tasks; keep the best weights; stop when patience is spent.

        The training metrics, the training mode and every random state are as before afterwards.

        Args:
            eval_dataset: Other tasks to measure (`tasks.task.Task`) in the same arms: their figures are returned and
                choose nothing. `None`: the held-out tasks.
            ignore_keys: Not used.
            metric_key_prefix: Stands before each figure's name.

        Raises:
            ConfigError: `eval_dataset` holds no tasks, or there are no decode settings to measure it with.
        """
        own = self._tasks_of(eval_dataset)
        if self.held_out is None:
            return {}
        was_measured = self.held_out.measured(self.state.global_step) is not None
        was_training = self.model.training
        self.model.eval()
        try:
            with random_states_kept():
                verdict = self.held_out.evaluate(self, self.state.global_step) if own is None else None
                figures = verdict.metrics if verdict else self.held_out.measure(self, own or [])
            metrics = {f"{metric_key_prefix}_{name}": value for name, value in figures.items()}
            self.log(dict(metrics))
        finally:
            self.model.train(was_training)
        if verdict is None:
            return metrics
        if verdict.lost is not None and not was_measured:
            self.warn(self.state.global_step, verdict.lost)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        if not verdict.stop and self.control.should_training_stop:
            why = why_stopped(self.callback_handler.callbacks, self.held_out, self.state.global_step)
            if why is not None:
                self.warn(self.state.global_step, why)
        if verdict.stop:
            self.control.should_training_stop = True
            stopped = any(getattr(callback, "stopped", None) for callback in self.callback_handler.callbacks)
            # A resumed run then knows that it ended; what a guard ended the run for is not kept.
            self.control.should_save = self.args.save_strategy != "no" and not stopped
        return metrics

    def _tasks_of(self, eval_dataset: Any) -> list[Task] | None:
        if eval_dataset is None:
            return None
        rows = list(eval_dataset) if isinstance(eval_dataset, Iterable) else []
        if not rows or not all(isinstance(row, Task) for row in rows):
            raise ConfigError(
                "evaluate(eval_dataset=...): give a list of tasks (`tasks.sources.load_tasks(...)`), or nothing to "
                "measure the held-out tasks. Rows of a data set cannot be played."
            )
        if self.held_out is None:
            raise ConfigError("evaluate(eval_dataset=...): pass held_out= to the trainer: it says how to decode.")
        return rows

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        if self.args.metric_for_best_model not in metrics:  # none is set, or nothing was graded
            return False
        better = super()._determine_best_metric(metrics=metrics, trial=trial)
        self.state.best_global_step = None  # or checkpoints would not rotate by age; `best/` holds the best
        return bool(better)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as TRL does; with `load_best_model_at_end` the model then has the weights of `best/`."""
        satisfy_callbacks(self.args, self.callback_handler.callbacks, self.held_out)  # some were added since
        out = super().train(*args, **kwargs)
        self._settle()
        return out

    def ended_by_guard(self) -> bool:
        """Whether a callback ended the run for what it found (it has `stopped`), on any process.

        Only the main process has guards, and what it decides all must do: every process has to ask.
        """
        return from_main(any(getattr(callback, "stopped", None) for callback in self.callback_handler.callbacks))

    def warn(self, step: int, message: str) -> None:
        """Tell the callbacks that tell people (those with `warn`), or say it here where there is none."""
        if not self.is_world_process_zero():
            return
        told = [callback for callback in self.callback_handler.callbacks if hasattr(callback, "warn")]
        for callback in told:
            callback.warn(step, message)
        if not told:
            warnings.warn(message, stacklevel=1)

    def _settle(self) -> None:
        """Training is over: the last step competes, and the record of transformers says what `best/` is."""
        if self.held_out is None:
            return
        asked = self.args.load_best_model_at_end and self.held_out.measured(self.state.global_step) is None
        if asked and not self.ended_by_guard():
            self.evaluate()
        self.accelerator.wait_for_everyone()  # one process writes `best/`, all may load it
        settle(self.args, self.state, self.held_out, self.accelerator.unwrap_model(self.model), self.warn)


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Python, numpy, torch and every GPU draw afterwards what they would have drawn without."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(enabled=True):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
