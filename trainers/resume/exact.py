"""Exact resume: what a checkpoint must hold beyond what transformers and TRL put there, and how it is put back.

TRL alone resumes inexactly: its sampler replays the first epoch, and the phase of a generation cycle is lost with the
completions that were not trained on yet. Both are saved here, with everything of ours that a later step depends on.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from torch.utils.data import Sampler
from transformers import TrainerControl, TrainerState
from trl import GRPOTrainer

from agents.models.card import ModelCard, write_card
from agents.models.manifest import MANIFEST, replace_file, write_manifest
from agents.t2po import T2PO
from trainers.config import GiGPOConfig
from trainers.errors import ConfigError
from trainers.heldout.stock import load_weights
from trainers.resume.sampler import EpochRepeatSampler
from trainers.resume.settings import apply_settings
from trainers.rollouts.errors import RulesError
from trainers.run.checkpoints import FORMAT, LAST_WRITTEN, LISTED, SAVING, STATE_FILE, publish, rotate, step_of
from trainers.run.jsonl import json_text, write_json

if TYPE_CHECKING:
    from agents.policy import Policy
    from trainers.credit import Credit
    from trainers.heldout import HeldOut
    from trainers.rollouts.play import Rollouts

PROCESS_FILE = "turngym_process_{}.json"
"""What each process but the first knows for itself: its share of the rollouts' state and of T2PO's counts."""

ADAPTER = "adapter_model.safetensors"
"""The policy's adapter, at the root of a checkpoint; that of the reference is in a folder beside it."""

READ = (2, FORMAT)
"""Formats of checkpoints that a run goes on from."""

SMALL_FILES = 2 * 2**20
"""Bytes of what a checkpoint and a best hold beside weights and moments, roughly: tokenizers, states, settings."""

BATCH_FILE = "turngym_batch_{}.pt"
"""Of each process: played and not yet trained on. Only in a checkpoint inside a generation cycle."""


class ExactResume(GRPOTrainer):
    """The part of the trainer that saves and resumes. `GiGPOTrainer` plays, credits and measures."""

    # Set by transformers, which is not analysed.
    control: TrainerControl
    held_out: HeldOut | None
    credit: Credit
    rollouts: Rollouts
    run_state: Callable[[], dict[str, Any]] | None = None
    """What the run around the trainer remembers (guards, clock); saved with the rest, read by who saved it."""
    _stepped: bool = False
    """This process has taken a step."""
    _staging: str | None = None
    _resumed: dict[str, Any] | None = None
    _resumed_batch: list[dict[str, Any]] | None = None
    _continues: bool = False

    # Set by transformers and TRL, which are not analysed.
    _step: int
    _total_loss_scalar: float = 0.0
    _buffered_inputs: list[dict[str, Any]] | None

    @property
    def policy(self) -> Policy:
        """The policy that acts."""
        return self.rollouts.policy

    @property
    def _cycle(self) -> int:
        """Micro-steps that train on one generation."""
        return int(self.args.steps_per_generation * self.num_iterations)

    # -- what a resumed run must draw and log as the uninterrupted one --------------------------------------------

    def _get_train_sampler(self, dataset: Any = None) -> Sampler:
        args: GiGPOConfig = self.args
        return EpochRepeatSampler(
            data_source=self.train_dataset if dataset is None else dataset,
            mini_repeat_count=self.num_generations,
            batch_size=args.generation_batch_size // self.num_generations,
            repeat_count=self.num_iterations * args.steps_per_generation,
            shuffle=self.shuffle_dataset,
            seed=args.seed,
        )

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        out = super()._init_training_state(*args, **kwargs)
        # Transformers takes logging_steps, eval_steps and save_steps from the checkpoint, whatever this run says.
        self.state.compute_steps(self.args, self.state.max_steps)
        return out

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        """One micro-step; the generation cycle of a resumed run is where the saved one stood."""
        self._stepped = True
        if self._resumed is not None:
            self._step, self._total_loss_scalar = self._resumed["micro_step"], self._resumed["total_loss"]
            if self._resumed_batch is None:  # of cycles of another length: a step trains on what it samples itself
                self._step = -(-self._step // self._cycle) * self._cycle
            self._buffered_inputs, self._resumed_batch, self._resumed = self._resumed_batch, None, None
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As TRL; the mean loss at the end is that of the whole run, not of the process that ended it."""
        if self._continues and "train_loss" in logs:
            logs = {**logs, "train_loss": self._total_loss_scalar / max(self.state.global_step, 0.001)}
        super().log(logs, start_time)
        if "loss" in logs:
            self._agree()

    # -- one mind: only the main process has guards, and where one process acts alone, the others wait for ever -----

    def _agree(self) -> None:
        """What the main process's callbacks decided holds on every process; so does a stop that any of them decided."""
        if self.accelerator.num_processes == 1:
            return
        c = self.control
        flags = gather_object([(c.should_training_stop, c.should_log, c.should_evaluate, c.should_save)])
        _, c.should_log, c.should_evaluate, c.should_save = flags[0]
        c.should_training_stop = any(stop for stop, *_ in flags)

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._agree()
        super()._maybe_log_save_evaluate(*args, **kwargs)
        self._agree()

    def _evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        self._agree()
        if self.control.should_training_stop and not self._stepped:
            return {}  # ended before its first step: there is nothing to measure
        metrics = super()._evaluate(*args, **kwargs)
        self._agree()
        return metrics

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Transformers looks for a stop after each step; one decided before the first step is heeded here."""
        self._agree()
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    # -- saving -------------------------------------------------------------------------------------------------

    def own_card(self) -> ModelCard | None:
        """What every folder of weights says about how the policy is spoken to; `None` where nobody knows."""
        return None

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:  # several processes may come here
            self.write_own_card(Path(output_dir or self.args.output_dir))

    def write_own_card(self, folder: Path) -> None:
        """Put the policy's card into a folder of weights."""
        if (card := self.own_card()) is not None:
            write_card(folder, card)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As transformers does, with the card and the list of files; a folder of its own is better than the run's."""
        super().save_model(output_dir, _internal_call)
        own = output_dir is not None and Path(output_dir).resolve() != Path(self.args.output_dir).resolve()
        if own and not _internal_call and self.args.should_save:
            write_manifest(Path(str(output_dir)))

    def _get_output_dir(self, trial: Any) -> str:
        return self._staging or super()._get_output_dir(trial)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        run = Path(self._get_output_dir(trial))
        final = run / f"checkpoint-{self.state.global_step}"
        staged = run / SAVING / final.name
        if self.args.should_save:
            shutil.rmtree(run / SAVING, ignore_errors=True)
        self.accelerator.wait_for_everyone()
        self._staging = str(staged.parent)
        try:
            super()._save_checkpoint(model, trial)
            self._save_process_state(staged)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self._complete(staged, final)
        except Exception:  # a full disk: half a checkpoint is in nobody's way
            if self.args.should_save:
                shutil.rmtree(run / SAVING, ignore_errors=True)
            raise
        finally:
            self._staging = None
        if self.args.should_save:
            if self.held_out is not None:
                self.held_out.checkpoint_written()
            best = self.state.best_model_checkpoint
            rotate(run, self.args.save_total_limit, [best] if best else [])
            shutil.rmtree(run / SAVING, ignore_errors=True)
        self.accelerator.wait_for_everyone()

    def _complete(self, staged: Path, final: Path) -> None:
        """What belongs to a checkpoint beside what transformers saves; the list of its files last; then its name."""
        if self.held_out is not None:
            self.held_out.checkpoint_begun()
        self.save_run_state(staged)
        if self.state.best_model_checkpoint == str(staged):
            self.state.best_model_checkpoint = str(final)
            self.state.save_to_json(str(staged / LAST_WRITTEN))
        write_manifest(staged)
        publish(staged, final)

    def checkpoint_bytes(self) -> int:
        """About what a checkpoint and the weights of a new best take on the disk."""
        model = self.accelerator.unwrap_model(self.model)
        adapter = hasattr(model, "peft_config")
        weights = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad or not adapter)
        states = getattr(self.optimizer, "state", {}).values() if self.optimizer is not None else ()
        moments = sum(t.numel() * t.element_size() for s in states for t in s.values() if isinstance(t, torch.Tensor))
        trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        return 2 * weights + max(moments, 2 * trained) + SMALL_FILES

    def save_run_state(self, folder: Path) -> None:
        """Write what TRL does not save, of the main process or of all: for a checkpoint, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "format": FORMAT,
            "held_out": self.held_out.state() if self.held_out is not None else None,
            "credit": self.credit.state_dict(),
            "micro_step": self._step,
            "cycle": self._cycle,
            "total_loss": self._total_loss_scalar,
            "processes": self.accelerator.num_processes,
            "run": self.run_state() if self.run_state is not None else None,
            **self._own_state(),
        }
        if folder.parent.name == SAVING:
            write_json(folder / STATE_FILE, state)
            return
        if not (folder / MANIFEST).exists():  # of release 0.6
            write_manifest(folder)
        replace_file(folder, STATE_FILE, json_text(state))

    def _own_state(self) -> dict[str, Any]:
        """What this process knows for itself."""
        return {
            "t2po": self.policy.state_dict() if isinstance(self.policy, T2PO) else None,
            "rollouts": self.rollouts.state_dict(),
        }

    def _save_process_state(self, folder: Path) -> None:
        rank = self.accelerator.process_index
        if rank > 0:
            write_json(folder / PROCESS_FILE.format(rank), self._own_state())
        if self._step % self._cycle:
            torch.save(self._buffered_inputs, folder / BATCH_FILE.format(rank))

    # -- resuming -----------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder, rank = Path(resume_from_checkpoint), self.accelerator.process_index
        check_checkpoint(folder, self.accelerator.num_processes)
        state = json.loads((folder / STATE_FILE).read_text(encoding="utf-8"))
        if self.held_out is not None and state["held_out"]:
            self.held_out.remake(self, state["held_out"], listed=state["format"] >= LISTED)
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if (
            folder / ADAPTER
        ).is_file():  # transformers 5.17 leaves the policy's out where a reference is saved beside it
            load_weights(self.accelerator.unwrap_model(self.model), folder)
        own = json.loads((folder / PROCESS_FILE.format(rank)).read_text(encoding="utf-8")) if rank else state
        self._resumed = {"micro_step": state["micro_step"], "total_loss": state["total_loss"]}
        self._continues = True
        if (batch := folder / BATCH_FILE.format(rank)).is_file():
            if (cycle := state.get("cycle", self._cycle)) != self._cycle:
                raise ConfigError(
                    f"{folder}: stands inside a generation that is trained on for {cycle} micro-steps, now "
                    f"steps_per_generation x num_iterations are {self._cycle}. Resume with what the run had."
                )
            self._resumed_batch = torch.load(batch, map_location=self.accelerator.device, weights_only=True)
        self.credit.load_state_dict(state["credit"])
        try:
            self.rollouts.load_state_dict(own["rollouts"])
        except RulesError as error:
            raise ConfigError(f"{resume_from_checkpoint}: {error}") from error
        if self.held_out is not None and state["held_out"]:
            self.held_out.restore(state["held_out"])
        if isinstance(self.policy, T2PO) and own["t2po"]:
            try:
                differs = self.policy.load_state_dict(own["t2po"])
            except ValueError as error:
                raise ConfigError(f"{resume_from_checkpoint}: {error}") from error
            if differs is not None:
                self.warn(step_of(folder), differs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Take moments and position from the checkpoint, and the settings from this run, which may be others."""
        asked = [dict(group) for group in self.optimizer.param_groups] if checkpoint is not None else []
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            changed = apply_settings(self.optimizer, self.lr_scheduler, asked)
            if changed:
                self.warn(step_of(Path(checkpoint)), f"resumed with other settings: {'; '.join(changed)}.")

    def stand_at(self, checkpoint: Path) -> None:
        """Be what `train` was when it ended, for a run that was killed after its last step.

        Weights, history and best are those of the checkpoint; nothing is trained. The mean loss is logged as `train`
        does at its end.
        """
        self._load_from_checkpoint(str(checkpoint))
        assert self._resumed is not None
        self._step, self._total_loss_scalar = self._resumed["micro_step"], self._resumed["total_loss"]
        self._resumed = None
        main, local = self.is_world_process_zero(), self.is_local_process_zero()
        self.state = TrainerState.load_from_json(str(checkpoint / LAST_WRITTEN))
        self.state.is_world_process_zero, self.state.is_local_process_zero = main, local
        self.log({"train_loss": 0.0})

    def warn(self, step: int, message: str) -> None:
        """Tell the callbacks that tell people (those with `warn`), or say it here where there is none."""
        if not self.is_world_process_zero():
            return
        told = [callback for callback in self.callback_handler.callbacks if hasattr(callback, "warn")]
        for callback in told:
            callback.warn(step, message)
        if not told:
            warnings.warn(message, stacklevel=1)


def check_checkpoint(checkpoint: Path, processes: int) -> None:
    """Refuse to resume from what another release wrote, or with another number of processes.

    Args:
        checkpoint: A whole one.
        processes: How many there are now.

    Raises:
        ConfigError: It cannot be gone on from; the message says what to do.
    """
    state = json.loads((checkpoint / STATE_FILE).read_text(encoding="utf-8"))
    written = state.get("format", 1)
    if written not in READ:
        by = "TurnGym 0.5.0 or an older release" if written < FORMAT else "a newer release of TurnGym"
        raise ConfigError(
            f"{checkpoint}: {by} wrote it (format {written}, this release has {FORMAT}). End the run with the release "
            f"that began it, or begin a new one in another output_dir: {checkpoint.parent / 'best'} or the checkpoint "
            "itself can be its --model_name_or_path."
        )
    wrote = state["processes"]
    if wrote != processes:
        how = f"with `accelerate launch --num_processes {wrote}`" if wrote > 1 else "without a launcher"
        raise ConfigError(
            f"{checkpoint}: {wrote} process{'es' if wrote > 1 else ''} wrote it, now there are {processes}. Each has "
            f"random states of its own: resume {how}."
        )
