"""Where a run begins: its first step or a checkpoint; what is damaged; what an evaluation will find in the last one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from agents.chat import ChatError
from agents.chat_tools import template_of
from agents.models.card import Damage, ModelError, damage_of, read_card
from agents.models.loading import load_model, load_tokenizer
from agents.policies.transformers import TransformersPolicy
from agents.policy import PolicyError, Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, read_jsonl
from envs.conversation import ConversationEnv
from envs.protocol import DEFAULT_PROTOCOL, protocol
from envs.registry import environment
from sandboxes import SandboxPool, SandboxUnavailable
from tasks.model import TaskError
from tasks.task import Task
from trainers.checkpoint import Best, Checkpoint, can_remake, kept, set_aside, tidy
from trainers.errors import BestLostError, ConfigError, DamagedError, RunFolderError
from trainers.guards.guard import LeftBehind
from trainers.heldout.selection import random_states_kept, saved_weights
from trainers.processes import from_main, is_main, together
from trainers.rollouts.manner import SPOKEN, manner_of
from trainers.rollouts.partial import NO_RESUME, PARTIAL
from trainers.run.callback import facts_of
from trainers.run.machine import settings_of
from trainers.run.record import HELD_OUT_EPISODES, REPORT, SUMMARY, SUPERSEDED, RunRecord
from trainers.run.setup import Run, make_held_out, more_text
from trainers.run.summary import Stopped
from trainers.settings.checks import check_t2po
from trainers.settings.groups import Arm

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer
    from trainers.run.callback import RunCallback


# -- What `--resume` goes on from: the newest checkpoint, if it and the best that it points to are what was written ---
# A checkpoint that is damaged is not one that is absent: a run that has one is refused, with the file that is wrong
# and the newest checkpoint that is whole, and nothing in its folder changes. It starts over only where there is none.


def going_on(folder: Path, start: int | None = None) -> Checkpoint | None:
    """The checkpoint that a run goes on from; `None` where there is none, so that it starts over.

    Args:
        folder: Of the run.
        start: `--from`: the step of the checkpoint to go back to; `None` takes the newest.

    Raises:
        DamagedError: It, or the best that it points to, is not what was written, or there is no such checkpoint.
    """
    found = Checkpoint.all_of(folder)
    if start is not None:
        found = [checkpoint for checkpoint in found if checkpoint.step == start]
        if not found:
            raise DamagedError(f"--from {start}: {folder} has no checkpoint of this step. {_remedy(folder)}")
    if not found:
        return None
    checkpoint = found[-1]
    if not checkpoint.whole:
        raise DamagedError(f"{_said(checkpoint.damage)}: checkpoint-{checkpoint.step} is damaged. {_remedy(folder)}")
    if why := _best_problem(checkpoint, goes_back=start is not None):
        raise DamagedError(why)
    return checkpoint


def damaged_best(folder: Path) -> str | None:
    """What is wrong with the `best/` that a run which is over left, with what to do; `None` where it is whole."""
    damage = damage_of(folder / "best")
    if not damage:
        return None
    return f"{_said(damage)}: what the run ended with is damaged. {_remedy(folder)}"


def _best_problem(checkpoint: Checkpoint, *, goes_back: bool) -> str | None:
    """Why a run cannot go on with the best of its checkpoint; `None` where it can, or its absence is told elsewhere."""
    folder, (best, listed) = checkpoint.folder.parent, _best_of(checkpoint)
    if best is None or kept(folder, best, listed=listed):
        return None
    if goes_back and can_remake(folder, best):
        return None
    places = (folder / "best", folder / "best.old")
    damage = [one for place in places if place.exists() for one in damage_of(place, needs_list=listed)]
    if can_remake(folder, best):
        remedy = f"`--resume --from {checkpoint.step}` goes on from this checkpoint and writes best/ again, from " + (
            f"checkpoint-{best.step}" if best.step else "the policy that the run started with"
        )
    else:
        remedy = f"Its weights are those of step {best.step}, which no checkpoint has any more. {_remedy(folder)}"
    if damage:
        return f"{_said(damage)}: the best that checkpoint-{checkpoint.step} points to is damaged. {remedy}"
    return (
        f"{folder / 'best'} is not step {best.step}, the best that checkpoint-{checkpoint.step} points to: its weights "
        f"are gone. {remedy}"
    )


def _best_of(checkpoint: Checkpoint) -> tuple[Best | None, bool]:
    """The best as a whole checkpoint has it, and whether it counts on a list of the best's files."""
    held_out = checkpoint.state.get("held_out")
    best = Best(**held_out["best"]) if held_out and held_out["best"] else None
    return best, checkpoint.lists_files


def _said(damage: Sequence[Damage]) -> str:
    more = len(damage) - 1
    return f"{damage[0]}" + (f" (and {more} more file{'s' * (more > 1)})" if more else "")


def _remedy(folder: Path) -> str:
    """The newest checkpoint that can be gone on from, in words."""
    for checkpoint in reversed(Checkpoint.all_of(folder)):
        if checkpoint.whole:
            best, listed = _best_of(checkpoint)
            if best is None or kept(folder, best, listed=listed) or can_remake(folder, best):
                step = checkpoint.step
                return (
                    f"The newest whole checkpoint is that of step {step}: `--resume --from {step}` goes on from it. "
                    "Nothing was changed"
                )
    return (
        "No checkpoint of this run can be gone on from: `--overwrite` starts anew (the old run is kept under another "
        "name). Nothing was changed"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Where a run begins: at the first step or at the checkpoint that it goes on from; its policy and its folder, opened.
#
# What can refuse comes first, so that a folder that cannot be gone on with stays as it was.

REFUSALS = (ConfigError, TaskError, SandboxUnavailable, RunFolderError, ModelError, BestLostError, DamagedError)
"""Errors that are meant for people: what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a run begins.

    Attributes:
        checkpoint: What it goes on from; `None` starts at the first step.
        step: Optimizer steps taken before.
        over: The checkpoint is that of the run's end: it was killed then, or went on to its summary and report.
        ended: The last step of a run that is over and has its summary and report: nothing is to be done.
    """

    checkpoint: Checkpoint | None = None
    step: int = 0
    over: bool = False
    ended: int | None = None


def find_start(run: Run) -> Start:
    """Where the run begins; every process has the same answer.

    Raises:
        DamagedError: What it would go on from, or what it ended with, is not what was written.
    """
    config = run.settings.config
    if not config.resume:
        return Start()
    folder = Path(config.output_dir)
    checkpoint = together(lambda: going_on(folder, run.settings.start), REFUSALS)
    step = checkpoint.step if checkpoint else 0
    over = checkpoint is not None and (step >= config.max_steps or checkpoint.patience_spent(config.patience))
    ended = from_main(_ended_at(folder, config.max_steps, over=over, from_start=checkpoint is None))
    if ended is not None and is_main() and checkpoint is None and (why := damaged_best(folder)):
        raise DamagedError(why)
    return Start(checkpoint, step, over, ended)


def _ended_at(folder: Path, max_steps: int, *, over: bool, from_start: bool) -> int | None:
    """The last step of a run that ended and said so: by its last checkpoint or, where it has none, by its summary."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        stopped, step = summary["stopped"], int(summary["held_out"]["last_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    told = stopped in (Stopped.FINISHED, Stopped.PATIENCE) and (folder / REPORT).is_file()
    return step if told and (over or (from_start and (step >= max_steps or stopped == Stopped.PATIENCE))) else None


def load(run: Run, checkpoint: Checkpoint | None) -> tuple[Any, Any, RunRecord | None]:
    """Model, tokenizer, and the record on the process that writes it.

    Raises:
        ModelError: It cannot be loaded.
        ConfigError: T2PO switches or protocol do not fit it, or these settings cannot go on from the checkpoint.
        BestLostError: The weights that the checkpoint calls its best are gone.
        RunFolderError: See `open_record`.
    """
    if checkpoint is not None:
        checkpoint.check(run.settings.config.world_size)
        check_goes_on(run, checkpoint)
    policy = run.settings.policy
    four_bit = policy.quantize == "4bit"
    model, tokenizer = load_model(run.model_folder, dtype=policy.dtype, trainable=True, four_bit=four_bit)
    check_t2po(run.t2po, tokenizer)
    check_protocol(run, tokenizer)
    return model, tokenizer, open_record(run, checkpoint) if is_main() else None


def check_protocol(run: Run, tokenizer: Any) -> None:
    """Refuse a chat template that cannot carry the protocol of the run.

    Raises:
        ConfigError: It cannot.
    """
    spoken = protocol(run.protocol)
    try:
        if spoken.tools:
            template_of(tokenizer, None, spoken)
    except ChatError as error:
        raise ConfigError(f"model_name_or_path={run.source.name}: {error}") from error


def check_goes_on(run: Run, checkpoint: Checkpoint) -> None:
    """Refuse settings that cannot go on from a checkpoint, while the run folder is as it was.

    Raises:
        BestLostError: The weights that it calls its best are gone.
        ConfigError: Its best was measured in another way, or its tasks came in another order.
    """
    state, card, env = checkpoint.state, read_card(checkpoint.folder), run.settings.env
    said = (*SPOKEN, "tools", "revise", "keep_observations", "shots")
    asked = any(getattr(run.card, name) != getattr(card, name) for name in said)
    if (why := card.mismatch(env.env, run.card.prompt_hash)) and not asked:
        raise ConfigError(
            f"{checkpoint.folder}: {why}. No setting says so: go on with the release of TurnGym that the run began "
            "with, or start in another output_dir."
        )
    if PARTIAL in state["rollouts"]:
        raise ConfigError(NO_RESUME)
    if run.tasks.measured and state["held_out"]:
        make_held_out(run).check(state["held_out"])
    if bool(run.settings.config.curriculum) != ("curriculum" in state["rollouts"]):
        was = "with one" if "curriculum" in state["rollouts"] else "without"
        raise ConfigError(f"curriculum: this run began {was}. Go on as it began, or start in another output_dir.")


def open_record(run: Run, checkpoint: Checkpoint | None) -> RunRecord:
    """The run folder: made, or taken back to the checkpoint that the run goes on from.

    Raises:
        RunFolderError: It is occupied, or its tasks are other ones.
    """
    config = run.settings.config
    record = RunRecord(config.output_dir, resume=config.resume, overwrite=config.overwrite)
    # First what can refuse: a folder that is refused stays as it was.
    record.write_tasks(run.tasks.split)
    if config.resume:
        if checkpoint and run.settings.start is not None:
            set_aside(record.path, checkpoint.step, record.path / SUPERSEDED)
        tidy(record.path, config.save_total_limit, checkpoint)
        if checkpoint:
            record.resume_at(checkpoint.step, checkpoint.evaluated_steps)
        else:
            record.resume_at(-1)
    record.write_config(run.settings.resolved())
    record.write_environment(
        sandbox=run.backend,
        model=run.model_folder,
        prompt_style=run.prompt_style,
        prompt_hash=run.prompt_hash,
        processes=config.world_size,
        images=run.images,
        **({} if run.protocol == DEFAULT_PROTOCOL else {"protocol": run.protocol}),
    )
    return record


def introduce(run: Run, trainer: GiGPOTrainer, callback: RunCallback, first_step: int) -> None:
    """Tell callback and trainer of each other, and people what is about to run."""
    console = callback.console
    callback.trainer = trainer
    trainer.on_advantages = callback.on_advantages
    trainer.card = run.card
    trainer.run_state = callback.state
    if callback.record.moved_to is not None:
        console.note(f"the run that was there is now {callback.record.moved_to}")
    processes = trainer.args.world_size
    console.note(
        f"policy {run.settings.policy.model_name_or_path} ({_millions(trainer.model)}), {len(run.tasks.pool)} pool and "
        f"{len(run.tasks.held_out)} held-out tasks{more_text(run.tasks)}, sandbox {run.backend}"
        + (f", {processes} processes" if processes > 1 else "")
    )
    console.note(f"confirmation at the end: {run.tasks.confirm_text}")
    for note in run.remarks():
        console.note(note)
    said = callback.record.warnings()
    for note in (*run.notes(), *callback.record.other_images):
        if note in said:  # by an earlier process of this run
            console.warn(note)
        else:
            callback.warn(first_step, note)
    callback.begin(facts_of(run, trainer, trainer.processing_class), first_step)
    if run.t2po is not None and run.t2po.turn_resample and run.t2po.turn_resample_eta is None:
        turns = run.t2po.turn_resample_warmup
        console.note(f"turn_resample: eta is calibrated on the first {turns} turns, which stay as sampled")


def _millions(model: Any) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters"


# ---------------------------------------------------------------------------------------------------------------------
# What a run leaves, seen as somebody who measures it later will see it: the newest checkpoint, read from its folder.
#
# At the end of a run a few held-out episodes are played once more with a checkpoint as `python -m trainers.evaluate`
# would open it: tokenizer, style, caps and ends from the folder, weights that are those of its files. What the policy
# is told, and what it answers, must be what the measurement in the run had. Nothing of the run changes: its random
# states, its figures, its files.

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
        allow_shared_judges=True,
        verifier_network=next((e.environment.get("verifier_network") for e in then if e.environment), None),
        **settings_of(manner),
    )
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    was_training = model.training
    model.eval()
    try:
        with random_states_kept():
            policy = TransformersPolicy(model, load_tokenizer(checkpoint), eos_ids=card.end_ids or None)
            with RolloutEngine(policy, make_env, slots=len(jobs), workers=1) as engine:
                return engine.run(jobs, Sampling(temperature, cap, manner.max_episode_tokens)).trajectories
    finally:
        model.train(was_training)


def _other_weights(trainer: GiGPOTrainer, checkpoint: Path) -> Iterator[str]:
    """Weights of the checkpoint that are not those in memory."""
    model: Any = trainer.accelerator.unwrap_model(trainer.model)
    for name, saved, own in saved_weights(model, checkpoint):
        if own is None or saved.shape != own.shape or not torch.equal(saved.cpu(), own.detach().cpu().to(saved.dtype)):
            yield f"the weight {name} in the folder is not the one that was trained"
