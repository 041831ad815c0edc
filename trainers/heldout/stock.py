"""What users of transformers set to choose a checkpoint, in terms of `best/`: one rule chooses, theirs follows.

`metric_for_best_model` is another name of `best_metric` (see `trainers.config.held_out`). TRL keeps its own record of
that metric, which `EarlyStoppingCallback` reads; it does not know the step-0 baseline, nor `min_delta`. Where the two
differ, `best/` wins, and a line says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import EarlyStoppingCallback, PreTrainedModel, TrainerCallback, TrainerState

from trainers.config import GiGPOConfig
from trainers.errors import ConfigError
from trainers.heldout.best import Best
from trainers.heldout.held_out import Evaluation, HeldOut


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
