"""The part of the trainer that measures; transformers' own options for choosing a checkpoint in these terms."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainerCallback, TrainerControl, TrainerState
from trl import GRPOTrainer

from tasks.task import Task
from trainers.checkpoint import Best
from trainers.errors import ConfigError
from trainers.heldout.held_out import Evaluation, HeldOut
from trainers.processes import from_main
from trainers.settings import GiGPOConfig

# -- What users of transformers set to choose a checkpoint, in terms of `best/`: one rule chooses, theirs follows -----
# `metric_for_best_model` is another name of `best_metric` (see `trainers.settings.groups`). TRL keeps its own record
# of that metric, which `EarlyStoppingCallback` reads; it does not know the step-0 baseline, nor `min_delta`. Where the
# two differ, `best/` wins, and a line says so.


def satisfy_callbacks(args: GiGPOConfig, callbacks: Sequence[TrainerCallback], held_out: HeldOut | None) -> None:
    """Give `EarlyStoppingCallback` the metric that it asserts to be set.

    Raises:
        ConfigError: It, or `load_best_model_at_end`, is used where nothing is measured or kept.
    """
    stops = any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks)
    if stops and (held_out is None or args.eval_strategy == "no"):
        raise ConfigError(
            "EarlyStoppingCallback: nothing is measured, so it would never stop. Pass held_out= and set "
            "eval_strategy='steps', or leave it out."
        )
    if args.load_best_model_at_end and (held_out is None or held_out.output_dir is None):
        raise ConfigError(
            "load_best_model_at_end: no best weights are kept. Pass held_out= with an output_dir, or leave it out."
        )
    if stops and args.metric_for_best_model is None:
        args.metric_for_best_model, args.greater_is_better = f"eval_{args.best_metric}", True


def stock_best(history: Sequence[Evaluation], metric: str) -> int | None:
    """The step that TRL's own record holds for the best: the first of the largest, without the baseline."""
    steps = [e for e in history if e.step and metric in e.metrics]
    return max(steps, key=lambda e: e.metrics[metric]).step if steps else None


def why_stopped(callbacks: Sequence[TrainerCallback], held_out: HeldOut, step: int) -> str | None:
    """What to say when `EarlyStoppingCallback` ends a run; `None` where it does not."""
    for callback in callbacks:
        if isinstance(callback, EarlyStoppingCallback):
            spent = callback.early_stopping_patience_counter
            if spent >= callback.early_stopping_patience:
                best = held_out.best.step if held_out.best else None
                return (
                    f"EarlyStoppingCallback ends the run at step {step}: {spent} evaluations without a better "
                    f"{held_out.metric} by its own count, which leaves the step-0 baseline out. `best/` is step {best}."
                )
    return None


def settle(
    args: GiGPOConfig, state: TrainerState, held_out: HeldOut, model: Any, warn: Callable[[int, str], None]
) -> None:
    """The end of training: TRL's record says what `best/` is, and its weights are loaded where that was asked for."""
    best = held_out.best
    if args.metric_for_best_model is None or best is None:
        return
    theirs = stock_best(held_out.history, held_out.metric)
    if theirs is not None and theirs != best.step:
        warn(state.global_step, _differs(theirs, best))
    state.best_metric, state.best_global_step = best.value, best.step
    if held_out.output_dir is None:
        return
    folder = held_out.output_dir / "best"
    state.best_model_checkpoint = str(folder)
    if args.load_best_model_at_end:
        load_weights(model, folder)


def _differs(theirs: int, best: Best) -> str:
    return (
        f"TRL's own record calls step {theirs} the best by {best.metric}, `best/` is step {best.step} (the baseline "
        "competes, ties keep the earlier, min_delta counts): `best/` wins."
    )


def saved_weights(model: Any, folder: Path) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    """The weights in a folder that `save_policy` or a checkpoint wrote: name, what is in the folder, in the model.

    Args:
        model: A model of transformers, or a PEFT model, of which the active adapter is compared.
        folder: Whole weights, or an adapter's.
    """
    from safetensors import safe_open

    adapter = hasattr(model, "peft_config")
    if adapter:
        from peft import get_peft_model_state_dict

        own = get_peft_model_state_dict(model, adapter_name=model.active_adapter)
    else:
        own = model.state_dict()
    for path in sorted(folder.glob("adapter_model*.safetensors" if adapter else "model*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                yield name, file.get_tensor(name), own.get(name)


def load_weights(model: Any, folder: Path) -> None:
    """Put the weights of a folder that `save_policy` wrote into the model, in place.

    Args:
        model: A model of transformers, or a PEFT model, whose active adapter is replaced.
        folder: Whole weights, or an adapter's.

    Raises:
        ValueError: The folder holds weights of another kind of model.
    """
    if isinstance(model, PreTrainedModel):
        fresh = type(model).from_pretrained(folder, dtype=model.dtype)
        model.load_state_dict(fresh.state_dict())
        return
    from peft import PeftModel, load_peft_weights, set_peft_model_state_dict

    if not isinstance(model, PeftModel):
        raise ValueError(f"load_best_model_at_end: {type(model).__name__} is no model of transformers or PEFT")
    result = set_peft_model_state_dict(model, load_peft_weights(str(folder)), adapter_name=model.active_adapter)
    if result.unexpected_keys:
        raise ValueError(f"{folder}: holds another adapter's weights, such as {result.unexpected_keys[0]}")


# ---------------------------------------------------------------------------------------------------------------------
# The part of the trainer that measures: held-out episodes choose `best/`, end a run, and answer transformers'
# options.
#
# transformers calls `evaluate` between the log and the checkpoint of a step, so that the checkpoint knows the
# verdict.


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


def random_states() -> Callable[[], None]:
    """The random states of now, of Python, numpy, torch and this process's GPU; what is returned puts them back."""
    python, arrays, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    gpu = torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None

    def put_back() -> None:
        random.setstate(python)
        np.random.set_state(arrays)
        torch.set_rng_state(cpu)
        if gpu is not None:
            torch.cuda.set_rng_state(gpu)

    return put_back
