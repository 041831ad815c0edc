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

import gc
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
if "PYTORCH_ALLOC_CONF" not in os.environ:  # torch's newer name of the same
    # A cache that grows leaves blocks behind that nothing later fits into, unless segments can grow too.
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")

from trainers.run.pipes import start
from trainers.settings.help import asks_for_help, short_help

if __name__ == "__main__":  # before what follows, which takes seconds to import and needs the extra `train`
    start((lambda: print(short_help()) or 0) if asks_for_help(sys.argv[1:]) else "trainers.grpo")

import transformers

from agents.policy import PolicyError
from sandboxes import SandboxPool
from trainers.checkpoint import Checkpoint, write_last
from trainers.errors import ConfigError, RewardError
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Severity, Watch
from trainers.heldout import HeldOut
from trainers.heldout.confirm import Weights, confirm
from trainers.measure import Confirmation
from trainers.processes import OtherProcessFailed, close_group, from_main, here, is_main, together
from trainers.report import write_report
from trainers.run.callback import RunCallback
from trainers.run.checkpoints import checkpoint_cells
from trainers.run.console import Plan, RunConsole
from trainers.run.device import GpuBusy
from trainers.run.dry_run import describe
from trainers.run.emergence import EmergenceLog
from trainers.run.folder import disk_full, full_line
from trainers.run.machine import AHEAD, set_threads
from trainers.run.memory import check_fits, keep_weights, peak_memory, ran_out, told
from trainers.run.record import REPORT, RunRecord
from trainers.run.setup import Run, make_env_factory, make_held_out, prepare, reply_cap
from trainers.run.standstill import Where
from trainers.run.start import REFUSALS, Start, find_start, introduce, load, look_back
from trainers.run.summary import RunSummary, Stopped
from trainers.run.traces import TRACKIO, Traces
from trainers.settings.parsing import parse

EXIT_CODES = {
    Stopped.FINISHED: 0,
    Stopped.PATIENCE: 0,
    Stopped.FAILED: 1,
    Stopped.GUARD: 3,
    Stopped.INTERRUPTED: 130,
}
TERMINATED = 143
COLLECT = (50_000, 20, 100)
"""Thresholds of the garbage collector while a run trains: it looked 400 times a step, for a tenth of a rollout."""


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
        return Ending(Stopped.INTERRUPTED, _code_of(error)).exit_code
    finally:
        if before is not None:
            signal.signal(signal.SIGTERM, before)


@dataclass(slots=True)
class Ending:
    """How a run ended.

    Attributes:
        why: The reason.
        code: Exit code where it is not that of the reason: SIGTERM, or a reward that is no number.
        error: No failure that is known: raised again once it is written down how far the run came.
        reason: What it failed with, for people.
        keeps: Memory ran out, and what the last finished step learned is to be kept.
    """

    why: Stopped = Stopped.FINISHED
    code: int | None = None
    error: Exception | None = None
    reason: str = ""
    keeps: bool = False

    @property
    def exit_code(self) -> int:
        """Of the program."""
        return EXIT_CODES[self.why] if self.code is None else self.code


def train(run: Run) -> int:
    """Train, measure, keep the best, summarise; returns the exit code."""
    _quiet()
    begin = find_start(run)
    if begin.ended is not None:
        if is_main():
            folder = Path(run.settings.config.output_dir)
            print(f"{folder}: nothing to do, the run ended at step {begin.ended} (its summary and report stand there)")
        return 0
    warning = together(lambda: check_fits(run), REFUSALS)
    training = TrainingRun(run, begin)
    try:
        training.open()
        if warning and training.callback:
            training.callback.warn(begin.step, warning)
        training.run()
    except Exception as error:
        if (found := ran_out(error)) is None:
            raise
        print(f"trainers.grpo: {told(run, found)}", file=sys.stderr)
        return EXIT_CODES[Stopped.FAILED]
    finally:
        training.close()
    return training.end()


class TrainingRun:
    """One run, from its policy to its report: `open`, `run`, `close`, `end`, in this order.

    With several processes each has one; `callback` (and with it the run folder and the console) is on the main process
    alone, and `None` on the others.

    Args:
        run: Checked and put together.
        begin: Where it begins.

    Attributes:
        trainer: After `open`.
        held_out: The rule that measures; `None` where nothing is held out.
        ending: How it ended; after `run`.
        confirmation: What start and `best/` do on tasks that nothing chose on, or why nobody knows.
    """

    trainer: GiGPOTrainer

    def __init__(self, run: Run, begin: Start) -> None:
        self._run, self._begin = run, begin
        self._folder = Path(run.settings.config.output_dir)
        self._sandboxes: SandboxPool | None = None
        self.held_out: HeldOut | None = None
        self.callback: RunCallback | None = None
        self.ending = Ending()
        self._trained = False
        self.confirmation = Confirmation(run.tasks.confirm_text, why="the run did not come to its end")

    # -- open ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Load the policy, take the run folder, start the sandboxes, put the trainer together.

        Raises:
            Exception: One of `REFUSALS`; a folder that this start made is gone again.
        """
        run, begin = self._run, self._begin
        model, tokenizer, record = together(lambda: load(run, begin.checkpoint), REFUSALS)
        set_threads(model, run.settings.policy.torch_threads)
        self.held_out = make_held_out(run) if run.tasks.measured else None
        if record is not None:
            self.callback = self._watch(record)
            self.callback.gpu = GpuBusy.of_this_process(use_cpu=run.settings.config.use_cpu)
            if run.settings.config.emergence:
                self.callback.logs.append(EmergenceLog(record.path, tokenizer, run.settings.config).on_episodes)
            if TRACKIO in (run.settings.config.report_to or ()):
                self.callback.logs.append(Traces(tokenizer).on_episodes)
        config = run.settings.config
        config.eval_strategy = config.eval_strategy if self.held_out else "no"
        config.eval_on_start = config.eval_on_start and bool(self.held_out) and begin.checkpoint is None
        episodes = max(config.rows_in_flight, self.held_out.episodes if self.held_out else 0)
        slots = min(run.settings.env.slots, -(-episodes // config.world_size))
        self._sandboxes = SandboxPool(run.backend, slots + AHEAD)  # they start while the trainer is put together
        with withdrawn_if_refused(record):
            self.trainer = self._make_trainer(model, tokenizer, slots, self._sandboxes)
        self.trainer.remove_callback(transformers.PrinterCallback)
        self.trainer.remove_callback(transformers.ProgressCallback)
        if self.callback:
            self.callback.console.where = self._where
            introduce(run, self.trainer, self.callback, begin.step)

    def _where(self) -> Where:
        rollouts = self.trainer.rollouts
        return Where(rollouts.phase, self._run.backend, rollouts.waiting())

    def _watch(self, record: RunRecord) -> RunCallback:
        """What writes the run folder and the console, where the process of the checkpoint stood."""
        config = self._run.settings.config
        plan = Plan.of(config, self.held_out, len(self._run.tasks.confirm))
        console = RunConsole(config.max_steps, first_step=self._begin.step, plan=plan)
        callback = RunCallback(record, console, Watch(config.guards), keep_trajectories=config.save_trajectories)
        if self._begin.checkpoint:
            callback.restore(self._begin.checkpoint)
        if self.held_out:
            self.held_out.on_evaluation = callback.on_evaluation
        return callback

    def _make_trainer(self, model: Any, tokenizer: Any, slots: int, sandboxes: SandboxPool) -> GiGPOTrainer:
        run, callback = self._run, self.callback
        return GiGPOTrainer(
            model,
            run.settings.config,
            tokenizer,
            run.tasks.pool,
            make_env_factory(run, sandboxes),
            held_out=self.held_out,
            t2po=run.t2po,
            slots=slots,
            workers=run.settings.env.sandbox_workers or max(1, (os.cpu_count() or 1) // here()),
            ahead=AHEAD,
            max_turn_tokens=reply_cap(run),
            max_episode_tokens=run.settings.env.max_episode_tokens,
            on_episodes=callback.on_episodes if callback else None,
            on_round=callback.console.playing if callback else None,
            callbacks=[callback] if callback else [],
            peft_config=run.peft,
        )

    # -- run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Train, measure the last step, look back, confirm. Whatever ends this is in `ending` afterwards.

        Raises:
            Exception: One of `REFUSALS`, before anything was played: refused, as before the start.
        """
        try:
            self._attempt()
            if self.ending.keeps:  # here nothing holds on to what the failed step had in memory
                self._keep()
        finally:
            self.trainer.close()
            if self.callback and not self._taken_up:
                self.callback.record.settings_back()

    def _attempt(self) -> None:
        try:
            start = Weights(self._model) if self._run.tasks.confirm else None
            with self.callback.console if self.callback else nullcontext():
                self._train()
                self._trained = True
                self._look_back()
                self._confirm(start)
        except KeyboardInterrupt as error:
            self.ending = Ending(Stopped.INTERRUPTED, _code_of(error))
        except OtherProcessFailed:
            raise
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """What is known is told here in one line; what is not is raised at the end."""
        if (found := ran_out(error)) is not None:
            self.ending = Ending(Stopped.FAILED, reason=told(self._run, found, self._step + 1), keeps=True)
        elif isinstance(error, PolicyError):
            print(f"trainers.grpo: the policy failed: {error}", file=sys.stderr)
            self.ending = Ending(Stopped.FAILED, reason=f"the policy failed: {error}")
        elif isinstance(error, REFUSALS):
            self._refused(error)
        else:
            said = str(error).strip().splitlines() or [""]
            self.ending = Ending(Stopped.FAILED, error=error, reason=f"{type(error).__name__}: {said[0]}")

    def _keep(self) -> None:
        """Memory ran out: what the last finished step learned goes into a checkpoint, and the line says so."""
        whole = not self._trained and not (self.callback is not None and self.callback.half_stepped)
        kept = keep_weights(self.trainer, self._begin.step, whole=whole) if self._taken_up else ""
        self.ending.reason = f"{self.ending.reason}. {kept}".rstrip()
        print(f"trainers.grpo: {self.ending.reason}", file=sys.stderr)

    def _train(self) -> None:
        """Every step that is left; then the last one is measured, if it was not, and competes."""
        trainer, held_out, checkpoint = self.trainer, self.held_out, self._begin.checkpoint
        if self._begin.over and checkpoint:
            trainer.stand_at(checkpoint.folder)
        else:
            gc.collect()
            gc.freeze()  # what stands now stays: looking through it again took a second of some steps
            gc.set_threshold(*COLLECT)
            trainer.train(resume_from_checkpoint=str(checkpoint.folder) if checkpoint else None)
        if trainer.ended_by_guard():
            self.ending.why = Stopped.GUARD
            return
        if held_out is None:
            return
        step = trainer.state.global_step
        if held_out.exhausted and step < self._run.settings.config.max_steps:
            self.ending.why = Stopped.PATIENCE
        if held_out.measured(step) is None:
            trainer.evaluate()
            if trainer.ended_by_guard():
                self.ending.why = Stopped.GUARD
        last = self._folder / f"checkpoint-{step}"
        if self.callback and last.exists():
            trainer.save_run_state(last)  # a resumed run then knows this measurement too
        if last.exists() or Checkpoint.newest_whole(self._folder) is None:
            held_out.checkpoint_written()  # no checkpoint points to the best before

    def _look_back(self) -> None:
        """See the last checkpoint as an evaluation will: what a guard finds there ends the run, too."""
        if self.callback is None or self.ending.why is Stopped.GUARD:
            return
        assert self._sandboxes is not None
        self.callback.left(look_back(self._folder, self.trainer, self._sandboxes))
        if self.callback.stopped:
            self.ending.why = Stopped.GUARD

    def _confirm(self, start: Weights | None) -> None:
        """The headline: start and `best/` on tasks that nothing chose on. A run that a guard ended has none."""
        if from_main(self.ending.why is Stopped.GUARD):
            return
        began, tasks = time.perf_counter(), self._run.tasks
        self.confirmation, episodes = confirm(self.trainer, tasks.confirm, start, tasks.confirm_text)
        if self.callback:
            self.callback.on_confirmation(self.confirmation, episodes, time.perf_counter() - began)

    def _refused(self, error: Exception) -> None:
        """A refusal: of the start where nothing was played yet, and raised; else an end like others."""
        played = self.held_out is not None and self.held_out.history
        if self._step <= self._begin.step and (self._begin.checkpoint or not played):
            if self.callback:
                self.callback.record.withdraw()
            raise error
        print(f"trainers.grpo: {error}", file=sys.stderr)
        # A reward that is no number is not the machine's failure: it is in what the run is given.
        self.ending = Ending(Stopped.FAILED, 2 if isinstance(error, RewardError) else None, reason=str(error))

    def close(self) -> None:
        """End the sandboxes, and what watches the GPU."""
        if self.callback is not None and self.callback.gpu is not None:
            self.callback.gpu.close()
        if self._sandboxes is not None:
            self._sandboxes.close()

    # -- end ----------------------------------------------------------------------------------------------------

    def end(self) -> int:
        """Write summary and report, print the closing summary; returns the exit code.

        Raises:
            Exception: What the run failed with, if nobody knows it.
        """
        if not self._taken_up:
            return self._end_without_trace()
        if self.ending.error is not None:
            return self._end_failed(self.ending.error)
        if self.callback:
            try:
                self._write(self.callback)
            except KeyboardInterrupt as error:
                print(
                    f"trainers.grpo: interrupted while summary and report were written, after step {self._step} "
                    f"({self.ending.why.value}). Use --resume: it writes them, or goes on from the last checkpoint.",
                    file=sys.stderr,
                )
                return Ending(Stopped.INTERRUPTED, _code_of(error)).exit_code
            except OSError as error:
                if not disk_full(error):
                    raise
                self._say_full()
                return EXIT_CODES[Stopped.FAILED]
            self.callback.record.close()
        if self.ending.why in (Stopped.FINISHED, Stopped.PATIENCE, Stopped.GUARD):  # after another end not all are here
            close_group()
        if self.ending.why is Stopped.GUARD and not is_main():
            return 0  # a launcher ends all others as soon as one fails, and the main process may still write its report
        return self.ending.exit_code

    def _end_without_trace(self) -> int:
        """The checkpoint was not taken up: there is no end to tell of."""
        if self.ending.error is not None:
            raise self.ending.error
        if is_main():
            print(
                f"trainers.grpo: {self.ending.why.value} while step {self._begin.step} was loaded. Use --resume.",
                file=sys.stderr,
            )
        return self.ending.exit_code

    def _end_failed(self, error: Exception) -> int:
        """By an error that nobody knows, or a full disk: how far the run came is written down first."""
        if self.callback:
            try:
                self._write(self.callback)
            except Exception as other:  # the first error is the one to tell
                error.add_note(f"(summary and report could not be written either: {type(other).__name__}: {other})")
            self.callback.record.close()
        if not disk_full(error):
            raise error
        if self.callback:
            self._say_full()
        return self.ending.exit_code

    def _write(self, callback: RunCallback) -> None:
        """Summary, report, and the weights of a run that chose none; then the closing summary on the screen."""
        summary = self._summary(callback)
        callback.record.write_summary(summary)
        why, best = self.ending.why, self.held_out.best if self.held_out else None
        if best is None and (why is Stopped.FINISHED or (self.held_out is None and why is not Stopped.GUARD)):
            write_last(self._folder, self.trainer.save_policy)
        report = write_report([self._folder], self._folder / REPORT)
        callback.console.close(summary, folder=self._folder, report=report)

    def _summary(self, callback: RunCallback) -> RunSummary:
        held_out = self.held_out
        best = held_out.best if held_out else None
        start = held_out.measured(0) if held_out else None
        chosen = held_out.measured(best.step) if held_out and best else None
        return RunSummary(
            before={name: arm for name, arm in start.arms.items() if name in chosen.arms} if start and chosen else {},
            after=dict(chosen.arms) if start and chosen else {},
            best_step=best.step if best else self._step,
            last_step=self._step,
            wall_seconds=callback.record.wall_seconds,
            clock=callback.clock,
            seed=self._run.settings.config.seed,
            config_sha256=self._run.sha256,
            best_metric=self._run.settings.config.best_metric if best else "",
            stopped=self.ending.why.value,
            reason=self.ending.reason,
            warnings=callback.console.warnings,
            findings=[finding for finding in callback.findings if finding.severity is not Severity.NOTE],
            guards=callback.watch.to_json(),
            guards_line=callback.watch.describe(),
            confirmation=self.confirmation,
            memory=peak_memory(self._run),
            checkpoints=checkpoint_cells(callback.record.path),
        )

    def _say_full(self) -> None:
        print(f"trainers.grpo: {full_line(self._folder, self.trainer.checkpoint_bytes())}", file=sys.stderr)

    @property
    def _step(self) -> int:
        """Optimizer steps taken."""
        return int(self.trainer.state.global_step)

    @property
    def _taken_up(self) -> bool:
        """The trainer stands where the run begins, or later; before a checkpoint is loaded it does not."""
        return self._step >= self._begin.step

    @property
    def _model(self) -> Any:
        return self.trainer.accelerator.unwrap_model(self.trainer.model)


@contextmanager
def withdrawn_if_refused(record: RunRecord | None) -> Iterator[None]:
    """A trainer that is refused leaves no run folder that would be in the way of the next try.

    Raises:
        ConfigError: TRL or PEFT refused what they saw in the model: `lora_target_modules=lm_head`, for example.
    """
    try:
        yield
    except Exception as error:
        short, refused = ran_out(error) is not None, isinstance(error, (*REFUSALS, ValueError, ImportError))
        if record is not None and (short or refused):
            record.withdraw()
        if short or not refused or isinstance(error, REFUSALS):
            raise
        raise ConfigError(f"the trainer cannot be made with these settings: {error}") from error


def _code_of(error: KeyboardInterrupt) -> int | None:
    """The exit code of an interruption, where it is not Ctrl-C's."""
    return TERMINATED if isinstance(error, Terminated) else None


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
