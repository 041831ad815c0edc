"""Train a policy on multi-turn tasks: `python -m trainers.grpo`.

    python -m trainers.grpo                                  # the quickstart
    python -m trainers.grpo --tasks my_tasks/                # your task YAMLs, the quickstart policy
    python -m trainers.grpo --tasks my_tasks/ --env ClawGym-v0 --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct
    python -m trainers.grpo --resume                         # after an interruption
    accelerate launch --num_processes 2 -m trainers.grpo     # several GPUs (on a CPU: torchrun)

Everything is checked before a model loads: settings, every task file, the sandbox. Exit codes: 0 done, 1 the run
failed, 2 a setting, a task or the machine is not right, 3 a guard ended the run (see docs/guards.md), 130 interrupted
(Ctrl-C), 143 terminated (SIGTERM).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

from trainers.run.help import asks_for_help, short_help
from trainers.run.pipes import start

if __name__ == "__main__":  # before what follows, which takes seconds to import and needs the extra `train`
    start((lambda: print(short_help()) or 0) if asks_for_help(sys.argv[1:]) else "trainers.grpo")

import transformers

from agents.models.card import read_card
from agents.models.errors import ModelError
from agents.models.loading import load_model
from agents.policy import PolicyError
from sandboxes import SandboxPool, SandboxUnavailable
from tasks.problems import TaskError
from trainers.errors import ConfigError, RewardError
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Severity, Watch
from trainers.heldout.best import BestLostError, write_last
from trainers.heldout.confirm import Weights, confirm
from trainers.measuring.confirmation import Confirmation
from trainers.processes import OtherProcessFailed, close_group, from_main, here, is_main, together
from trainers.report import write_report
from trainers.resume.exact import check_checkpoint
from trainers.run.callback import RunCallback
from trainers.run.checkpoints import (
    STATE_FILE,
    evaluated_steps,
    last_complete_checkpoint,
    patience_spent,
    set_aside,
    step_of,
    tidy,
)
from trainers.run.cli import parse
from trainers.run.console import Plan, RunConsole
from trainers.run.disk import disk_full, full_line
from trainers.run.dry_run import describe
from trainers.run.facts import facts_of
from trainers.run.going_on import DamagedError, damaged_best, going_on
from trainers.run.jsonl import RunFolderError
from trainers.run.left_behind import look_back
from trainers.run.machine import AHEAD, set_threads
from trainers.run.record import REPORT, SUMMARY, SUPERSEDED, RunRecord
from trainers.run.setup import (
    Run,
    make_env_factory,
    make_held_out,
    prepare,
    reply_cap,
    unseen_text,
)
from trainers.run.summary import RunSummary
from trainers.run.t2po_setup import check_t2po


class Stopped(StrEnum):
    """Why a run ended."""

    FINISHED = "finished"
    PATIENCE = "patience"
    GUARD = "guard"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


EXIT_CODES = {
    Stopped.FINISHED: 0,
    Stopped.PATIENCE: 0,
    Stopped.FAILED: 1,
    Stopped.GUARD: 3,
    Stopped.INTERRUPTED: 130,
}
TERMINATED = 143
REFUSALS = (ConfigError, TaskError, SandboxUnavailable, RunFolderError, ModelError, BestLostError, DamagedError)
"""Errors that are meant for people: what is wrong and what to do."""


class Terminated(KeyboardInterrupt):
    """SIGTERM: a run ends as it does on Ctrl-C, summary and report included."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    before = _end_on_sigterm()
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        run = together(lambda: prepare(settings), REFUSALS)
        if settings.dry_run:
            if is_main():
                print(describe(run))
            return 0
        return train(run)
    except (*REFUSALS, OtherProcessFailed) as error:
        if is_main():
            print(f"trainers.grpo: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if not disk_full(error):
            raise
        print(f"trainers.grpo: no space left on the disk: {error.filename or error}. Make room", file=sys.stderr)
        return EXIT_CODES[Stopped.FAILED]
    except KeyboardInterrupt as error:
        if is_main():
            print("trainers.grpo: interrupted before the first step, or while the run ended", file=sys.stderr)
        return TERMINATED if isinstance(error, Terminated) else EXIT_CODES[Stopped.INTERRUPTED]
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def train(run: Run) -> int:
    """Train, measure, keep the best, summarise; returns the exit code."""
    _quiet()
    settings, config = run.settings, run.settings.config
    folder = Path(config.output_dir)
    checkpoint = together(lambda: going_on(folder, settings.start) if config.resume else None, REFUSALS)
    first_step = step_of(checkpoint) if checkpoint else 0
    over = checkpoint is not None and (
        first_step >= config.max_steps or patience_spent(checkpoint, config.patience)
    )  # maybe killed right then, before its summary and report were there
    ended = from_main(
        ended_at(folder, config.max_steps, over=over, from_start=checkpoint is None) if config.resume else None
    )
    if ended is not None:
        if is_main() and checkpoint is None and (why := damaged_best(folder)):
            raise DamagedError(why)
        if is_main():
            print(f"{folder}: nothing to do, the run ended at step {ended} (its summary and report stand there)")
        return 0
    confirmation = Confirmation(run.tasks.confirm_text, why="the run did not come to its end")
    model, tokenizer, record = together(lambda: load(run, checkpoint), REFUSALS)
    set_threads(model, settings.policy.torch_threads)
    held_out = make_held_out(run) if run.tasks.measured else None
    callback: RunCallback | None = None
    if record is not None:
        plan = Plan.of(config, held_out, len(run.tasks.confirm))
        console = RunConsole(config.max_steps, first_step=first_step, plan=plan)
        callback = RunCallback(record, console, Watch(config.guards), keep_trajectories=config.save_trajectories)
        if checkpoint:
            callback.restore(checkpoint)
        if held_out:
            held_out.on_evaluation = callback.on_evaluation
    config.eval_strategy = config.eval_strategy if held_out else "no"
    config.eval_on_start = config.eval_on_start and bool(held_out) and checkpoint is None
    episodes = max(config.generation_batch_size, held_out.episodes if held_out else 0)
    slots = min(settings.env.slots, -(-episodes // config.world_size))
    sandboxes = SandboxPool(run.backend, slots + AHEAD)  # they start while the trainer is put together
    stopped = Stopped.FINISHED
    code: int | None = None
    failure: Exception | None = None
    try:
        trainer = _made(
            record,
            model,
            config,
            tokenizer,
            run.tasks.pool,
            make_env_factory(run, sandboxes),
            held_out=held_out,
            t2po=run.t2po,
            slots=slots,
            workers=settings.env.sandbox_workers or max(1, (os.cpu_count() or 1) // here()),
            ahead=AHEAD,
            max_turn_tokens=reply_cap(run),
            on_episodes=callback.on_episodes if callback else None,
            on_round=callback.console.playing if callback else None,
            callbacks=[callback] if callback else [],
            peft_config=run.peft,
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.remove_callback(transformers.ProgressCallback)
        if callback:
            _introduce(run, trainer, callback, first_step)
        try:
            start = Weights(trainer.accelerator.unwrap_model(trainer.model)) if run.tasks.confirm else None
            with callback.console if callback else nullcontext():
                if over and checkpoint:
                    trainer.stand_at(checkpoint)
                else:
                    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                if trainer.ended_by_guard():
                    stopped = Stopped.GUARD
                elif held_out:
                    if held_out.exhausted and trainer.state.global_step < config.max_steps:
                        stopped = Stopped.PATIENCE
                    if held_out.measured(trainer.state.global_step) is None:
                        trainer.evaluate()
                        if trainer.ended_by_guard():
                            stopped = Stopped.GUARD
                    last = folder / f"checkpoint-{trainer.state.global_step}"
                    if callback and last.exists():
                        trainer.save_run_state(last)  # a resumed run then knows this measurement too
                    if last.exists() or last_complete_checkpoint(folder) is None:
                        held_out.checkpoint_written()  # no checkpoint points to the best before
                if callback and stopped is not Stopped.GUARD:
                    callback.left(look_back(folder, trainer, sandboxes))
                    stopped = Stopped.GUARD if callback.stopped else stopped
                if not from_main(stopped is Stopped.GUARD):
                    began = time.perf_counter()
                    confirmation, episodes = confirm(trainer, run.tasks.confirm, start, run.tasks.confirm_text)
                    if callback:
                        callback.on_confirmation(confirmation, episodes, time.perf_counter() - began)
        except KeyboardInterrupt as error:
            stopped = Stopped.INTERRUPTED
            code = TERMINATED if isinstance(error, Terminated) else None
        except PolicyError as error:
            print(f"trainers.grpo: the policy failed: {error}", file=sys.stderr)
            stopped = Stopped.FAILED
        except OtherProcessFailed:
            raise
        except REFUSALS as error:
            if trainer.state.global_step <= first_step and (checkpoint or not (held_out and held_out.history)):
                if record is not None:
                    record.withdraw()  # nothing was played: refused, as before the start
                raise
            print(f"trainers.grpo: {error}", file=sys.stderr)
            stopped = Stopped.FAILED
            code = 2 if isinstance(error, RewardError) else None  # not the machine's failure: what it is given
        except Exception as error:  # raised again below, once it is written down how far the run came
            stopped, failure = Stopped.FAILED, error
        finally:
            trainer.close()
            if callback and trainer.state.global_step < first_step:
                callback.record.settings_back()
    finally:
        sandboxes.close()
    if trainer.state.global_step < first_step:  # the checkpoint was not taken up: there is no end to tell of
        if is_main() and failure is None:
            print(f"trainers.grpo: {stopped.value} while step {first_step} was loaded. Use --resume.", file=sys.stderr)
        if failure is not None:
            raise failure
        return EXIT_CODES[stopped] if code is None else code
    if failure is not None and disk_full(failure):
        if callback:
            _write_down(failure, lambda: finish(run, trainer, callback, stopped, confirmation))
            callback.record.close()
            print(f"trainers.grpo: {full_line(folder, trainer.checkpoint_bytes())}", file=sys.stderr)
        return EXIT_CODES[stopped]
    if failure is not None:
        if callback:
            _write_down(failure, lambda: finish(run, trainer, callback, stopped, confirmation))
            callback.record.close()
        raise failure
    if callback:
        try:
            finish(run, trainer, callback, stopped, confirmation)
        except KeyboardInterrupt as error:
            print(
                f"trainers.grpo: interrupted while summary and report were written, after step "
                f"{trainer.state.global_step} ({stopped.value}). Use --resume: it writes them, or goes on from the "
                "last checkpoint.",
                file=sys.stderr,
            )
            return TERMINATED if isinstance(error, Terminated) else EXIT_CODES[Stopped.INTERRUPTED]
        except OSError as error:
            if not disk_full(error):
                raise
            print(f"trainers.grpo: {full_line(folder, trainer.checkpoint_bytes())}", file=sys.stderr)
            return EXIT_CODES[Stopped.FAILED]
        callback.record.close()
    if stopped in (Stopped.FINISHED, Stopped.PATIENCE, Stopped.GUARD):  # after another end not all are here
        close_group()
    if stopped is Stopped.GUARD and not is_main():
        return 0  # a launcher ends all others as soon as one fails, and the main process may still write its report
    return EXIT_CODES[stopped] if code is None else code


def _write_down(failure: Exception, write: Callable[[], None]) -> None:
    """Summary and report of a run that failed; where they fail, too, the first error is the one to tell."""
    try:
        write()
    except Exception as error:
        failure.add_note(f"(summary and report could not be written either: {type(error).__name__}: {error})")


def _made(record: RunRecord | None, *args: Any, **kwargs: Any) -> GiGPOTrainer:
    """The trainer. One that is refused leaves no run folder that would be in the way of the next try."""
    try:
        return GiGPOTrainer(*args, **kwargs)
    except (*REFUSALS, ValueError, ImportError) as error:
        if record is not None:
            record.withdraw()
        if isinstance(error, REFUSALS):
            raise
        # What TRL and PEFT refuse once they see the model: `lora_target_modules=lm_head`, for example.
        raise ConfigError(f"the trainer cannot be made with these settings: {error}") from error


def load(run: Run, checkpoint: Path | None) -> tuple[Any, Any, RunRecord | None]:
    """Model, tokenizer, and the record on the process that writes it.

    Raises:
        ModelError: It cannot be loaded.
        ConfigError: The T2PO switches do not fit it, or the checkpoint is not one that these settings go on from.
        BestLostError: The weights that the checkpoint calls its best are gone.
        RunFolderError: See `open_record`.
    """
    if checkpoint is not None:
        check_checkpoint(checkpoint, run.settings.config.world_size)
        check_goes_on(run, checkpoint)
    model, tokenizer = load_model(run.model_folder, dtype=run.settings.policy.dtype, trainable=True)
    check_t2po(run.t2po, tokenizer)
    return model, tokenizer, open_record(run, checkpoint) if is_main() else None


def check_goes_on(run: Run, checkpoint: Path) -> None:
    """Refuse settings that cannot go on from a checkpoint, while the run folder is as it was.

    Raises:
        BestLostError: The weights that it calls its best are gone.
        ConfigError: Its best was measured in another way, or its tasks came in another order.
    """
    state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
    card, env = read_card(checkpoint), run.settings.env
    asked = (run.card.prompt_style, run.card.tools, run.card.revise) != (card.prompt_style, card.tools, card.revise)
    if (why := card.mismatch(env.env, run.card.prompt_hash)) and not asked:
        raise ConfigError(
            f"{checkpoint}: {why}. No setting says so: go on with the release of TurnGym that the run began with, or "
            "start in another output_dir."
        )
    if run.tasks.measured and state["held_out"]:
        make_held_out(run).check(state["held_out"])
    if bool(run.settings.config.curriculum) != ("curriculum" in state["rollouts"]):
        was = "with one" if "curriculum" in state["rollouts"] else "without"
        raise ConfigError(f"curriculum: this run began {was}. Go on as it began, or start in another output_dir.")


def ended_at(folder: Path, max_steps: int, *, over: bool, from_start: bool) -> int | None:
    """The last step of a run that ended and said so: by its last checkpoint or, where it has none, by its summary."""
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        stopped, step = summary["stopped"], int(summary["held_out"]["last_step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    told = stopped in (Stopped.FINISHED, Stopped.PATIENCE) and (folder / REPORT).is_file()
    return step if told and (over or (from_start and (step >= max_steps or stopped == Stopped.PATIENCE))) else None


def _introduce(run: Run, trainer: GiGPOTrainer, callback: RunCallback, first_step: int) -> None:
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
    if run.t2po is not None and run.t2po.turn_resample and run.t2po.eta is None:
        turns = run.t2po.warmup_turns
        console.note(f"turn_resample: eta is calibrated on the first {turns} turns, which stay as sampled")


def open_record(run: Run, checkpoint: Path | None) -> RunRecord:
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
            set_aside(record.path, step_of(checkpoint), record.path / SUPERSEDED)
        tidy(record.path, config.save_total_limit, checkpoint)
        if checkpoint:
            record.resume_at(step_of(checkpoint), evaluated_steps(checkpoint))
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


def finish(
    run: Run, trainer: GiGPOTrainer, callback: RunCallback, stopped: Stopped, confirmation: Confirmation
) -> None:
    """Write summary and report, and print the closing summary."""
    config, held_out = run.settings.config, trainer.held_out
    best = held_out.best if held_out else None
    step = trainer.state.global_step
    start = held_out.measured(0) if held_out else None
    chosen = held_out.measured(best.step) if held_out and best else None
    summary = RunSummary(
        before={name: arm for name, arm in start.arms.items() if name in chosen.arms} if start and chosen else {},
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
        findings=[finding for finding in callback.findings if finding.severity is not Severity.NOTE],
        guards=callback.watch.to_json(),
        guards_line=callback.watch.describe(),
        confirmation=confirmation,
    )
    callback.record.write_summary(summary)
    folder = Path(config.output_dir)
    if best is None and (stopped is Stopped.FINISHED or (held_out is None and stopped is not Stopped.GUARD)):
        write_last(folder, trainer.save_policy)
    report = write_report([folder], folder / REPORT)
    callback.console.close(summary, folder=folder, report=report)


def _millions(model: Any) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters"


def _end_on_sigterm() -> Any:
    """SIGTERM raises `Terminated`; returns the handler before, `None` where none was replaced."""

    def end(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return None  # a handler of the caller stays in charge
    return signal.signal(signal.SIGTERM, end)


def _quiet() -> None:
    """Library chatter off the screen: our console says what matters; errors still show."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(trl|transformers|torch|accelerate|peft)\b.*")
