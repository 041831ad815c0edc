"""What a run leaves, seen as somebody who measures it later will see it: the newest checkpoint, read from its folder.

At the end of a run a few held-out episodes are played once more with a checkpoint as `python -m trainers.evaluate`
would open it: tokenizer, style, caps and ends from the folder, weights that are those of its files. What the policy is
told, and what it answers, must be what the measurement in the run had. Nothing of the run changes: its random states,
its figures, its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agents.models.card import ModelError, read_card
from agents.models.loading import load_tokenizer
from agents.policies.transformers import TransformersPolicy
from agents.policy import PolicyError, Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, read_jsonl
from envs.conversation import ConversationEnv
from envs.registry import environment
from sandboxes import SandboxPool
from tasks.task import Task
from trainers.config.held_out import Arm
from trainers.guards.events import LeftBehind
from trainers.heldout.selection import random_states_kept
from trainers.heldout.stock import saved_weights
from trainers.measuring.manner import manner_of
from trainers.run.machine import environment_settings
from trainers.run.record import HELD_OUT_EPISODES

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer

FEW = 6
"""Episodes that are played again: no more than a pool of sandboxes has beyond those of the run's own engine."""


def look_back(folder: Path, trainer: GiGPOTrainer, sandboxes: SandboxPool) -> LeftBehind | None:
    """Play a few held-out episodes of the last step with its checkpoint as the folder says.

    Args:
        folder: Of the run.
        trainer: Its weights are those of the step, so that no second model is loaded.
        sandboxes: Of the run.

    Returns:
        What was played then and now; `None` where the step has no checkpoint, or was not measured.
    """
    step, held_out = trainer.state.global_step, trainer.held_out
    checkpoint = folder / f"checkpoint-{step}"
    if held_out is None or not checkpoint.is_dir():
        return None
    then: list[Trajectory] = []
    for arm in (Arm.GREEDY.value, Arm.SAMPLED.value):
        path = folder / HELD_OUT_EPISODES / f"step_{step:06d}_{arm}.jsonl"
        if not then and path.is_file() and arm in held_out.arms:
            then, sampling = read_few(path), held_out.arms[arm]
    if not then:
        return None
    tasks = {task.id: task for task in held_out.tasks}
    try:
        problems = tuple(_other_weights(trainer, checkpoint))
        now = _play(trainer, checkpoint, tasks, then, sampling.temperature, sandboxes)
    except (ModelError, PolicyError, ValueError) as error:
        return LeftBehind(step, str(checkpoint), skipped=str(error))
    return LeftBehind(step, str(checkpoint), then, now, problems, compares_replies=trainer.plain_sampling)


def read_few(path: Path) -> list[Trajectory]:
    """The first episodes of a file that the machinery did not end."""
    out: list[Trajectory] = []
    for episode in read_jsonl(path):
        if episode.stop_reason != "infrastructure":
            out.append(episode)
        if len(out) == FEW:
            break
    return out


def _play(
    trainer: GiGPOTrainer,
    checkpoint: Path,
    tasks: Mapping[str, Task],
    then: Sequence[Trajectory],
    temperature: float,
    sandboxes: SandboxPool,
) -> list[Trajectory]:
    """The episodes as they come out when only the folder is known."""
    card = read_card(checkpoint)
    manner = manner_of(card)
    jobs = [Job(tasks[e.task_id], e.attempt, e.seed or 0) for e in then]
    cap = manner.max_turn_tokens or max(job.task.budget.turn_tokens for job in jobs)
    kind: Callable[..., ConversationEnv] = environment(manner.env)
    make_env = partial(
        kind,
        tasks=[jobs[0].task],
        sandbox=sandboxes,
        max_turns=manner.max_turns or None,
        prompt_style=manner.prompt_style,
        allow_exposed_judges=True,  # the run has refused them, or was asked to allow them
        **environment_settings(manner.env, tools=manner.tools, revise=manner.revise),
    )
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    was_training = model.training
    model.eval()
    try:
        with random_states_kept():
            policy = TransformersPolicy(model, load_tokenizer(checkpoint), eos_ids=card.end_ids or None)
            with RolloutEngine(policy, make_env, slots=len(jobs), workers=1) as engine:
                return engine.run(jobs, Sampling(temperature, cap)).trajectories
    finally:
        model.train(was_training)


def _other_weights(trainer: GiGPOTrainer, checkpoint: Path) -> Iterator[str]:
    """Weights of the checkpoint that are not those in memory."""
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    for name, saved, own in saved_weights(model, checkpoint):
        if own is None or saved.shape != own.shape or not torch.equal(saved.cpu(), own.detach().cpu().to(saved.dtype)):
            yield f"the weight {name} in the folder is not the one that was trained"
