"""What a GiGPOTrainer can be given: refusals, idle settings, the pool as TRL's dataset, weights TRL would round."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from envs.wrapping import as_conversation
from tasks.task import Task
from trainers.errors import ConfigError
from trainers.guards.levels import parse_levels
from trainers.heldout import HeldOut
from trainers.settings import GiGPOConfig
from trainers.settings.groups import DEFAULT_METRIC

# -- The pool as TRL's dataset ----------------------------------------------------------------------------------------


def prompt_of(task: Task) -> list[dict[str, str]]:
    """The task as TRL shows it; what the policy reads comes from the environment."""
    return [{"role": "user", "content": task.intent}]


def pool_dataset(tasks: Sequence[Task], args: GiGPOConfig) -> Dataset:
    """Tasks as TRL's dataset: as many rows as one step needs at least, and every optimizer step of an epoch whole.

    TRL drops a part batch of the pool, and transformers ends an epoch with whatever passes are left: an optimizer step
    of fewer than `gradient_accumulation_steps`. Where a generation is no whole number of steps, the first tasks of the
    pool are therefore drawn once more in an epoch, until it is one.
    """
    groups = max(1, args.generation_batch_size // max(1, args.num_generations))
    rows = [{"prompt": prompt_of(task), "task_id": task.id} for task in tasks]
    passes = max(1, (args.steps_per_generation or 1) * args.num_iterations)
    generations = args.gradient_accumulation_steps // gcd(args.gradient_accumulation_steps, passes)
    if generations == 1:
        return Dataset.from_list(rows * -(-groups // len(rows)))
    needed = generations * groups
    count = -(-len(rows) // needed) * needed
    return Dataset.from_list([rows[i % len(rows)] for i in range(count)])


def numbers_as_arrays(played: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """What a `rollout_func` gives, with ids and masks as arrays: TRL looks at each number of a list, twice."""
    named = ("prompt_ids", "completion_ids", "env_mask")
    return {name: [np.asarray(row) for row in rows] if name in named else rows for name, rows in played.items()}


# -- A model in 4 bits: TRL rounds what is trained of it to bfloat16, in which small updates are lost ------------------


def weights_in_full(model: Any) -> dict[int, torch.Tensor] | None:
    """The trained weights of a model in 4 bits as they are, by the id of each parameter; `None` for other models."""
    if not getattr(model, "is_loaded_in_4bit", False):
        return None
    return {id(parameter): parameter.data for parameter in model.parameters() if parameter.requires_grad}


def put_back_in_full(model: Any, kept: Mapping[int, torch.Tensor]) -> None:
    """Train in float32, from the weights in `kept` and those that TRL has made since."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = kept.get(id(parameter), parameter.data).float()


# -- A `GiGPOTrainer` that is put together in Python: what it cannot be given, and settings that it does not act on ---

_INSTEAD = {
    "train_dataset": "tasks are what is trained on: pass them as pool",
    "eval_dataset": "tasks that are only measured on: pass held_out=HeldOut.of(args, tasks)",
    "reward_funcs": "the environment gives the reward: pass make_env",
    "rollout_func": "the trainer plays the episodes: pass make_env",
    "environment_factory": "pass make_env, which opens one environment",
    "tools": "the environment has them: pass make_env",
    "optimizers": "set optim, learning_rate and lr_scheduler_type",
}
"""Arguments of TRL's trainer, and what to give ours."""


def check_arguments(
    model: Any,
    args: Any,
    pool: Sequence[Task],
    make_env: Callable[[], Any] | None,
    unknown: Mapping[str, Any],
) -> None:
    """Refuse what a trainer cannot be made of, in one line.

    Raises:
        ConfigError: It cannot; the first reason.
    """
    for name in unknown:
        raise ConfigError(f"{name}: no argument of GiGPOTrainer; {_INSTEAD.get(name, 'see docs/library.md')}.")
    if isinstance(model, str):
        raise ConfigError(
            f"model={model!r}: a loaded model is needed. `agents.models.loading.load_model(name, trainable=True)` "
            "gives model and tokenizer."
        )
    if not isinstance(args, GiGPOConfig):
        raise ConfigError(f"args: a GiGPOConfig is needed, got {type(args).__name__}; it takes the same settings.")
    if make_env is None:
        raise ConfigError("make_env: what opens one environment is needed, such as `lambda: ClawGymEnv(tasks)`.")
    if not pool:
        raise ConfigError("pool: holds no task. `tasks.sources.load_tasks(...)` reads some.")
    known: dict[str, str] = {}
    for task in pool:
        if known.setdefault(task.id, task.content_hash) != task.content_hash:
            raise ConfigError(f"pool: two tasks have the id {task.id!r}. Give one of them another.")
    made = make_env()
    try:
        as_conversation(made)
        if getattr(getattr(made, "unwrapped", made), "speaker", None) is not None:
            raise ValueError("a model answers as the tasks' user, for evaluation only; leave user= out to train")
    except ValueError as error:
        raise ConfigError(f"make_env: {error}") from error
    finally:
        made.close()


_ONLY_GRPO = {
    "resume": "call train(resume_from_checkpoint=...)",
    "overwrite": "choose an output_dir that is free",
    "save_trajectories": "pass on_episodes=, which gets the episodes of each step",
    "emergence": "pass on_episodes=trainers.run.emergence.EmergenceLog(folder, tokenizer, config).on_episodes",
}
"""Settings that only `python -m trainers.grpo` acts on, and what does it here."""


def idle_in_library(args: GiGPOConfig, held_out: HeldOut | None, callbacks: Iterable[Any]) -> Iterator[str]:
    """Settings that were changed and that a trainer without the command line does not act on, one sentence each."""
    for name, instead in _ONLY_GRPO.items():
        if _changed(args, name):
            yield f"{name}={getattr(args, name)} does nothing here, only `python -m trainers.grpo` reads it: {instead}"
    acts = _of(held_out)
    idle = [name for name, value in acts.items() if _changed(args, name) and getattr(args, name) != value]
    if idle:
        given = ", ".join(f"{name}={getattr(args, name)}" for name in idle)
        why = "nothing is held out" if held_out is None else "held_out has its own"
        yield f"{given}: does nothing here, {why}. Pass held_out=HeldOut.of(args, tasks)"
    if _changed(args, "guards") and parse_levels(args.guards) and not any(hasattr(c, "watch") for c in callbacks):
        yield f"guards={args.guards} does nothing here. Pass callbacks=[GuardCallback(Watch(args.guards))]"


def _of(held_out: HeldOut | None) -> dict[str, Any]:
    """What the held-out rule does, by the name of the setting; `None` where there is no rule."""
    sampled = held_out.arms.get("sampled") if held_out is not None else None
    return {
        "patience": held_out and held_out.patience,
        "min_delta": held_out and held_out.min_delta,
        "held_out_samples": held_out and held_out.samples,
        "held_out_temperature": sampled and sampled.temperature,
        "held_out_greedy": held_out and "greedy" in held_out.arms,
        "best_metric": held_out and held_out.metric,
    }


def _changed(args: GiGPOConfig, name: str) -> bool:
    default = next(f.default for f in dataclasses.fields(args) if f.name == name)
    default = DEFAULT_METRIC if name == "best_metric" else default
    return bool(getattr(args, name) != default)
