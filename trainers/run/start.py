"""Where a run begins: at the first step or at the checkpoint that it goes on from; its policy and its folder, opened.

What can refuse comes first, so that a folder that cannot be gone on with stays as it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.models.card import ModelError, read_card
from agents.models.loading import load_model
from sandboxes import SandboxUnavailable
from tasks.problems import TaskError
from trainers.errors import BestLostError, ConfigError, DamagedError, RunFolderError
from trainers.processes import from_main, is_main, together
from trainers.run.checkpoints import Checkpoint, set_aside, tidy
from trainers.run.facts import facts_of
from trainers.run.going_on import damaged_best, going_on
from trainers.run.record import REPORT, SUMMARY, SUPERSEDED, RunRecord
from trainers.run.setup import Run, make_held_out, unseen_text
from trainers.run.summary import Stopped
from trainers.run.t2po_setup import check_t2po

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer
    from trainers.run.callback import RunCallback

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
        ConfigError: The T2PO switches do not fit it, or the checkpoint is not one that these settings go on from.
        BestLostError: The weights that the checkpoint calls its best are gone.
        RunFolderError: See `open_record`.
    """
    if checkpoint is not None:
        checkpoint.check(run.settings.config.world_size)
        check_goes_on(run, checkpoint)
    model, tokenizer = load_model(run.model_folder, dtype=run.settings.policy.dtype, trainable=True)
    check_t2po(run.t2po, tokenizer)
    return model, tokenizer, open_record(run, checkpoint) if is_main() else None


def check_goes_on(run: Run, checkpoint: Checkpoint) -> None:
    """Refuse settings that cannot go on from a checkpoint, while the run folder is as it was.

    Raises:
        BestLostError: The weights that it calls its best are gone.
        ConfigError: Its best was measured in another way, or its tasks came in another order.
    """
    state, card, env = checkpoint.state, read_card(checkpoint.folder), run.settings.env
    asked = (run.card.prompt_style, run.card.tools, run.card.revise) != (card.prompt_style, card.tools, card.revise)
    if (why := card.mismatch(env.env, run.card.prompt_hash)) and not asked:
        raise ConfigError(
            f"{checkpoint.folder}: {why}. No setting says so: go on with the release of TurnGym that the run began "
            "with, or start in another output_dir."
        )
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
    )
    return record


def introduce(run: Run, trainer: GiGPOTrainer, callback: RunCallback, first_step: int) -> None:
    """Tell callback and trainer of each other, and people what is about to run."""
    console = callback.console
    callback.trainer = trainer
    trainer.card = run.card
    trainer.run_state = callback.state
    if callback.record.moved_to is not None:
        console.note(f"the run that was there is now {callback.record.moved_to}")
    processes = trainer.args.world_size
    console.note(
        f"policy {run.settings.policy.model_name_or_path} ({_millions(trainer.model)}), {len(run.tasks.pool)} pool and "
        f"{len(run.tasks.held_out)} held-out tasks{unseen_text(run.tasks)}, sandbox {run.backend}"
        + (f", {processes} processes" if processes > 1 else "")
    )
    console.note(f"confirmation at the end: {run.tasks.confirm_text}")
    for note in run.remarks():
        console.note(note)
    said = callback.record.warnings()
    for note in run.notes():
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
