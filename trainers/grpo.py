"""Train a policy on multi-turn tasks: `python -m trainers.grpo`.

    python -m trainers.grpo                                  # the quickstart
    python -m trainers.grpo --tasks my_tasks/                # your task YAMLs, the quickstart policy
    python -m trainers.grpo --tasks my_tasks/ --env ClawGym-v0 --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct
    python -m trainers.grpo --resume                         # after an interruption

Everything is checked before a model loads: settings, every task file, the sandbox. Exit codes: 0 done, 1 the run
failed, 2 a setting, a task or the machine is not right, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from trainers.run.help import asks_for_help, short_help

if __name__ == "__main__" and asks_for_help(sys.argv[1:]):
    print(short_help())  # before what follows, which takes seconds to import
    sys.exit(0)

import transformers

from agents.models.card import write_card
from agents.models.errors import ModelError
from agents.models.loading import load_model
from agents.policy import PolicyError
from agents.t2po import T2PO
from sandboxes import SandboxPool, SandboxUnavailable
from tasks.problems import TaskError
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Resampling, default_guards
from trainers.heldout import BestLostError
from trainers.refusals import ConfigError
from trainers.report import write_report
from trainers.run.callback import RunCallback
from trainers.run.checkpoints import last_complete_checkpoint, patience_spent, step_of
from trainers.run.cli import parse
from trainers.run.console import RunConsole
from trainers.run.dry_run import describe
from trainers.run.jsonl import RunFolderError
from trainers.run.machine import AHEAD, set_threads
from trainers.run.record import RunRecord
from trainers.run.setup import (
    Run,
    make_env_factory,
    make_held_out,
    prepare,
    reply_cap,
)
from trainers.run.summary import RunSummary
from trainers.run.t2po_setup import check_t2po


class Stopped(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    PATIENCE = "patience"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


EXIT_CODES = {Stopped.FINISHED: 0, Stopped.PATIENCE: 0, Stopped.FAILED: 1, Stopped.INTERRUPTED: 130}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        run = prepare(settings)
        if settings.dry_run:
            _show(describe(run))
            return 0
        return train(run)
    except (ConfigError, TaskError, SandboxUnavailable, RunFolderError, ModelError, BestLostError) as error:
        print(f"trainers.grpo: {error}", file=sys.stderr)
        return 2


def train(run: Run) -> int:
    """Train, measure, keep the best, summarise; returns the exit code."""
    _quiet()
    settings, config = run.settings, run.settings.config
    folder = Path(config.output_dir)
    checkpoint = last_complete_checkpoint(folder) if config.resume else None
    first_step = step_of(checkpoint) if checkpoint else 0
    if checkpoint and (first_step >= config.max_steps or patience_spent(checkpoint, config.patience)):
        print(f"{folder}: nothing to do, the run ended at step {first_step} (its summary and report stand there)")
        return 0
    model, tokenizer = load_model(run.model_folder, dtype=settings.policy.dtype, trainable=True)
    check_t2po(run.t2po, tokenizer)
    record = open_record(run, checkpoint)
    set_threads(model, settings.policy.torch_threads)
    console = RunConsole(config.max_steps, first_step=first_step)
    callback = RunCallback(
        record, console, default_guards(config.beta_turn), keep_trajectories=config.save_trajectories
    )
    if checkpoint:
        callback.restore(checkpoint)
    held_out = make_held_out(run) if run.tasks.held_out else None
    if held_out:
        held_out.on_evaluation = callback.on_evaluation
    config.eval_strategy = config.eval_strategy if held_out else "no"
    config.eval_on_start = config.eval_on_start and bool(held_out) and checkpoint is None
    slots = min(settings.env.slots, max(config.generation_batch_size, len(run.tasks.held_out)))
    sandboxes = SandboxPool(run.backend, slots + AHEAD)  # they start while the trainer is put together
    trainer = GiGPOTrainer(
        model,
        config,
        tokenizer,
        run.tasks.pool,
        make_env_factory(run, sandboxes),
        held_out=held_out,
        t2po=run.t2po,
        slots=slots,
        workers=settings.env.sandbox_workers or os.cpu_count() or 1,
        ahead=AHEAD,
        max_turn_tokens=reply_cap(run),
        on_episodes=callback.on_episodes,
        on_round=console.playing,
        callbacks=[callback],
        peft_config=run.peft,
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.remove_callback(transformers.ProgressCallback)
    callback.trainer = trainer
    if isinstance(trainer.policy, T2PO):
        callback.guards.append(Resampling(trainer.policy.warning))
    console.note(
        f"policy {settings.policy.model_name_or_path} ({_millions(model)}), {len(run.tasks.pool)} pool and "
        f"{len(run.tasks.held_out)} held-out tasks, sandbox {run.backend}"
    )
    if run.coverage:
        console.note(run.coverage)
    for note in run.notes():
        callback.warn(first_step, note)
    if run.t2po is not None and run.t2po.turn_resample and run.t2po.eta is None:
        turns = run.t2po.warmup_turns
        console.note(f"turn_resample: eta is calibrated on the first {turns} turns, which stay as sampled")
    stopped = Stopped.FINISHED
    try:
        with console:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            if held_out:
                if held_out.exhausted and trainer.state.global_step < config.max_steps:
                    stopped = Stopped.PATIENCE
                if held_out.measured(trainer.state.global_step) is None:
                    trainer.evaluate()
                last = folder / f"checkpoint-{trainer.state.global_step}"
                if last.exists():
                    trainer.save_run_state(last)  # a resumed run then knows this measurement too
    except KeyboardInterrupt:
        stopped = Stopped.INTERRUPTED
    except PolicyError as error:
        print(f"trainers.grpo: the policy failed: {error}", file=sys.stderr)
        stopped = Stopped.FAILED
    finally:
        trainer.close()
        sandboxes.close()
    finish(run, trainer, callback, stopped)
    return EXIT_CODES[stopped]


def open_record(run: Run, checkpoint: Path | None) -> RunRecord:
    """The run folder: made, or taken back to the checkpoint that the run goes on from.

    Raises:
        RunFolderError: It is occupied, or its tasks are other ones.
    """
    config = run.settings.config
    record = RunRecord(config.output_dir, resume=config.resume)
    # First what can refuse: a folder that is refused stays as it was.
    record.write_tasks(run.tasks.split)
    if config.resume:
        record.resume_at(step_of(checkpoint) if checkpoint else -1)
    record.write_config(run.settings.resolved())
    record.write_environment(
        sandbox=run.backend, model=run.model_folder, prompt_style=run.prompt_style, prompt_hash=run.prompt_hash
    )
    return record


def finish(run: Run, trainer: GiGPOTrainer, callback: RunCallback, stopped: Stopped) -> None:
    """Write summary and report, and print the closing summary."""
    config, held_out = run.settings.config, trainer.held_out
    best = held_out.best if held_out else None
    step = trainer.state.global_step
    start = held_out.measured(0) if held_out else None
    chosen = held_out.measured(best.step) if held_out and best else None
    summary = RunSummary(
        before=dict(start.arms) if start and chosen else {},
        after=dict(chosen.arms) if start and chosen else {},
        best_step=best.step if best else step,
        last_step=step,
        wall_seconds=callback.record.wall_seconds,
        clock=callback.clock,
        seed=config.seed,
        config_sha256=run.sha256,
        best_metric=config.best_metric if best else "",
        stopped=stopped.value,
        warnings=callback.console.warnings,
    )
    callback.record.write_summary(summary)
    folder = Path(config.output_dir)
    if held_out is None:
        trainer.save_policy(folder / "last")
        write_card(folder / "last", run.card())
    report = write_report([folder], folder / "report.html")
    callback.console.close(summary, folder=folder, report=report)


def _show(text: str) -> None:
    """Print for a reader that may go away (`... | head`). SIGPIPE itself stays ignored: sandboxes are pipes, too."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _millions(model: Any) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters"


def _quiet() -> None:
    """Library chatter off the screen: our console says what matters; errors still show."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(trl|transformers|torch|accelerate|peft)\b.*")


if __name__ == "__main__":
    sys.exit(main())
