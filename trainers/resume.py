"""Exact resume: what a checkpoint holds beyond TRL's, and how it is put back (a base class of GiGPOTrainer)."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Sampler
from transformers import TrainerControl, TrainerState
from trl.trainer.utils import RepeatSampler

from agents.models.card import ModelCard, write_card, write_manifest
from agents.t2po import T2PO
from trainers.checkpoint import LAST_WRITTEN, SAVING, Checkpoint, rotate
from trainers.errors import ConfigError
from trainers.heldout.selection import HeldOutSelection, load_weights, random_states, satisfy_callbacks
from trainers.jsonl import json_text
from trainers.rollouts.curriculum import RulesError
from trainers.rollouts.rules import Draw
from trainers.settings import GiGPOConfig

if TYPE_CHECKING:
    from agents.policy import Policy
    from trainers.credit import Credit
    from trainers.rollouts.play import Rollouts


# -- Task order of a run: seeded per epoch, so that a resumed run draws what the uninterrupted one would have drawn ---


class EpochRepeatSampler(RepeatSampler):
    """TRL's sampler, with an order that depends on (seed, epoch) alone.

    TRL's own keeps one generator over all epochs: after a resume in epoch e it replays the order of epoch 0.
    """

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader at the start of each epoch."""
        if self.shuffle:
            self.generator.manual_seed((self.seed or 0) + epoch)

    def rows(self, epoch: int) -> list[int]:
        """Places of the rows of an epoch in the data set, in their order; what is being drawn is not disturbed."""
        own = copy.copy(self)
        own.generator = torch.Generator()
        own.set_epoch(epoch)
        return list(own)


# -- Settings of the optimizer that are said anew when a run resumes: they hold, not those in the checkpoint ----------

SETTINGS = {
    "initial_lr": "learning_rate",
    "betas": "adam_beta1, adam_beta2",
    "eps": "adam_epsilon",
    "weight_decay": "weight_decay",
}
"""What of a group of an optimizer is a setting, which its saved state would bring back."""
FIELDS = frozenset(name for names in SETTINGS.values() for name in names.split(", "))
"""The same by the names of the settings."""


def apply_settings(optimizer: Any, scheduler: Any, asked: Sequence[Mapping[str, Any]]) -> list[str]:
    """Put the settings of a run into an optimizer and a scheduler whose states were loaded.

    Where they are those of the state nothing changes, to the last bit.

    Args:
        optimizer: Of torch, or accelerate's around one.
        scheduler: The same; its learning rates follow where it is a `LambdaLR`, as all schedules of transformers but
            those that look at a metric.
        asked: The groups of the optimizer as they were made, before the state was loaded.

    Returns:
        What is another now, for people.
    """
    scheduler = getattr(scheduler, "scheduler", scheduler)
    changed: dict[str, None] = {}
    for group, made in zip(optimizer.param_groups, asked, strict=True):
        for key, name in SETTINGS.items():
            if key in made and key in group and made[key] != group[key]:
                changed[f"{name} is {made[key]}, was {group[key]}"] = None
                group[key] = made[key]
    if isinstance(scheduler, LambdaLR):
        scheduler.base_lrs = [group["initial_lr"] for group in optimizer.param_groups]
        factors = [schedule(scheduler.last_epoch) for schedule in scheduler.lr_lambdas]
        rates = [base * factor for base, factor in zip(scheduler.base_lrs, factors, strict=True)]
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if group["lr"] != rate:
                changed[f"the next step is taken at {rate:.3g}, not at {group['lr']:.3g}"] = None
                group["lr"] = rate
        scheduler._last_lr = rates
    return list(changed)


# -- Exact resume: what a checkpoint must hold beyond what transformers and TRL put there, and how it is put back -----
# TRL alone resumes inexactly: its sampler replays the first epoch, and the phase of a generation cycle is lost with
# the completions that were not trained on yet. Both are saved here, with everything of ours that a later step depends
# on.

ADAPTER = "adapter_model.safetensors"
"""The policy's adapter, at the root of a checkpoint; that of the reference is in a folder beside it."""

SMALL_FILES = 2 * 2**20
"""Bytes of what a checkpoint and a best hold beside weights and moments, roughly: tokenizers, states, settings."""


class ExactResume(HeldOutSelection):
    """The part of the trainer that saves and resumes. `GiGPOTrainer` plays and credits."""

    # Set by transformers, which is not analysed.
    control: TrainerControl
    credit: Credit
    rollouts: Rollouts
    run_state: Callable[[], dict[str, Any]] | None = None
    """What the run around the trainer remembers (guards, clock); saved with the rest, read by who saved it."""
    _pass: tuple[int, int] = (-1, 0)
    """Optimizer steps taken before the micro-step of now, and its number inside its optimizer step."""
    _epoch_tasks: tuple[int, list[str]] = (-1, [])
    """An epoch, and the tasks of its rows in their order."""
    _finished: str | None = None
    """While a step is under way: what a checkpoint of the one before it holds of ours, as JSON."""
    _draw_as_then: Callable[[], None] | None = None
    """Puts the random states back that it began with: TRL shuffles each generation."""
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
        self._pass = (-1, 0)
        # Transformers takes logging_steps, eval_steps and save_steps from the checkpoint, whatever this run says.
        self.state.compute_steps(self.args, self.state.max_steps)
        return out

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        """One micro-step; the generation cycle of a resumed run is where the saved one stood."""
        self._stepped = True
        step, number = self.state.global_step, self._pass[1] + 1
        self._pass = (step, number if self._pass[0] == step else 0)
        if self._resumed is not None:
            self._step, self._total_loss_scalar = self._resumed["micro_step"], self._resumed["total_loss"]
            if self._resumed_batch is None:  # of cycles of another length: a step trains on what it samples itself
                self._step = -(-self._step // self._cycle) * self._cycle
            self._buffered_inputs, self._resumed_batch, self._resumed = self._resumed_batch, None, None
        if self._pass[1] == 0:
            self._finished, self._draw_as_then = json_text(self._whole_state()), random_states()
        return super().training_step(model, inputs, num_items_in_batch)

    # -- the generation to come -----------------------------------------------------------------------------------

    def _next_draw(self, after: int = 1, *, unless: Callable[[int], bool] | None = None) -> Draw | None:
        """The rows of a generation after the one that is learned on now; `None` where the run ends before it.

        Args:
            after: Which one; 1 is the next.
            unless: `None` is given, too, where it says so of an optimizer step that ends before that generation begins.
        """
        sampler = self._get_train_sampler()
        assert isinstance(sampler, EpochRepeatSampler)
        size, accumulation = self.args.generation_batch_size, self.args.gradient_accumulation_steps
        passes = len(sampler) // size  # of an epoch: a multiple of both cycle and optimizer step (`pool_dataset`)
        step, number = self._pass
        at = step * accumulation + number + after * self._cycle
        epoch, first = divmod(at, passes)
        then = at // accumulation
        if then >= self.state.max_steps or (unless is not None and any(map(unless, range(step + 1, then + 1)))):
            return None
        if self._epoch_tasks[0] != epoch:
            names = list(self.train_dataset["task_id"])
            self._epoch_tasks = (epoch, [names[row] for row in sampler.rows(epoch)])
        tasks = self._epoch_tasks[1][first * size : (first + 1) * size]
        return Draw(tasks, 0, self._step + after * self._cycle, step)

    def _saves(self, step: int) -> bool:
        """Whether a checkpoint of that step is known of ahead."""
        return self.args.save_strategy == "steps" and step % int(self.state.save_steps) == 0

    def _measures(self, step: int) -> bool:
        """Whether a measurement behind that step is known of ahead."""
        return self.args.eval_strategy == "steps" and step % int(self.state.eval_steps) == 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As TRL; the mean loss at the end is that of the whole run, not of the process that ended it."""
        if self._continues and "train_loss" in logs:
            logs = {**logs, "train_loss": self._total_loss_scalar / max(self.state.global_step, 0.001)}
        super().log(logs, start_time)
        if "loss" in logs:
            self._agree()

    def _settle(self) -> None:
        """Training is over, and nobody needs what is sampled ahead."""
        self.rollouts.drop()
        if (partial := self.rollouts.rules.partial) is not None and (words := partial.words()) is not None:
            self.warn(self.state.global_step, words)
        super()._settle()

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
        self._finished = None
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
        staged = Checkpoint(run / SAVING / final.name)
        if self.args.should_save:
            shutil.rmtree(run / SAVING, ignore_errors=True)
        self.rollouts.discard()
        self.accelerator.wait_for_everyone()
        self._staging = str(staged.folder.parent)
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

    def _complete(self, staged: Checkpoint, final: Path) -> None:
        """What belongs to a checkpoint beside what transformers saves, then its name."""
        if self.held_out is not None:
            self.held_out.checkpoint_begun()
        staged.write_state(self._whole_state())
        if self.state.best_model_checkpoint == str(staged.folder):
            self.state.best_model_checkpoint = str(final)
            self.state.save_to_json(str(staged.folder / LAST_WRITTEN))
        staged.publish(final)

    def checkpoint_bytes(self) -> int:
        """About what a checkpoint and the weights of a new best take on the disk."""
        model = self.accelerator.unwrap_model(self.model)
        adapter = hasattr(model, "peft_config")
        weights = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad or not adapter)
        states = getattr(self.optimizer, "state", {}).values() if self.optimizer is not None else ()
        moments = sum(t.numel() * t.element_size() for s in states for t in s.values() if isinstance(t, torch.Tensor))
        trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
        return 2 * weights + max(moments, 2 * trained) + SMALL_FILES

    def save_finished_step(self) -> None:
        """Write the checkpoint of the last step that was finished; the one after it failed, and nothing goes on here.

        Its weights and the optimizer's moments must still be those of that step.
        """
        if self._finished is not None:
            assert self._draw_as_then is not None
            self._step = json.loads(self._finished)["micro_step"]
            self._draw_as_then()
        self._save_checkpoint(self.model, None)

    @property
    def output_folder(self) -> Path:
        """Where checkpoints are."""
        return Path(self.args.output_dir)

    def save_run_state(self, checkpoint: Path) -> None:
        """What TRL does not save, anew into a checkpoint that is written: whole or not at all."""
        Checkpoint(checkpoint).replace_state(self._whole_state())

    def _whole_state(self) -> dict[str, Any]:
        """What TRL does not save, of the main process or of all; that of the step before while one is under way."""
        if self._finished is not None:
            state: dict[str, Any] = json.loads(self._finished)
            return state
        return {
            "held_out": self.held_out.state() if self.held_out is not None else None,
            "credit": self.credit.state_dict(),
            "micro_step": self._step,
            "cycle": self._cycle,
            "total_loss": self._total_loss_scalar,
            "processes": self.accelerator.num_processes,
            "run": self.run_state() if self.run_state is not None else None,
            **self._own_state(),
        }

    def _own_state(self) -> dict[str, Any]:
        """What this process knows for itself."""
        return {
            "t2po": self.policy.state_dict() if isinstance(self.policy, T2PO) else None,
            "rollouts": self.rollouts.state_dict(),
        }

    def _save_process_state(self, staged: Checkpoint) -> None:
        rank = self.accelerator.process_index
        if rank > 0:
            staged.write_process_state(rank, self._own_state())
        if self._step % self._cycle:
            torch.save(self._buffered_inputs, staged.batch_file(rank))

    # -- resuming -----------------------------------------------------------------------------------------------

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        checkpoint, rank = Checkpoint(Path(resume_from_checkpoint)), self.accelerator.process_index
        checkpoint.check(self.accelerator.num_processes)
        folder, state = checkpoint.folder, checkpoint.state
        if self.held_out is not None and state["held_out"]:
            self.held_out.remake(self, state["held_out"], listed=checkpoint.lists_files)
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        # Transformers 5.17 leaves the policy's adapter out where a reference is saved beside it.
        if (folder / ADAPTER).is_file():
            load_weights(self.accelerator.unwrap_model(self.model), folder)
        own = checkpoint.process_state(rank)
        self._resumed = {"micro_step": state["micro_step"], "total_loss": state["total_loss"]}
        self._continues = True
        if (batch := checkpoint.batch_file(rank)).is_file():
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
                self.warn(checkpoint.step, differs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Take moments and position from the checkpoint, and the settings from this run, which may be others."""
        asked = [dict(group) for group in self.optimizer.param_groups] if checkpoint is not None else []
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None:
            changed = apply_settings(self.optimizer, self.lr_scheduler, asked)
            if changed:
                self.warn(Checkpoint(Path(checkpoint)).step, f"resumed with other settings: {'; '.join(changed)}.")

    def stand_at(self, checkpoint: Path) -> None:
        """Be what `train` was when it ended, for a run that was killed after its last step.

        Weights, history and best are those of the checkpoint; nothing is trained. The mean loss is logged, and the
        record of transformers told what `best/` is, as `train` does at its end.
        """
        satisfy_callbacks(self.args, self.callback_handler.callbacks, self.held_out)
        self._load_from_checkpoint(str(checkpoint))
        assert self._resumed is not None
        self._step, self._total_loss_scalar = self._resumed["micro_step"], self._resumed["total_loss"]
        self._resumed = None
        main, local = self.is_world_process_zero(), self.is_local_process_zero()
        self.state = TrainerState.load_from_json(str(checkpoint / LAST_WRITTEN))
        self.state.is_world_process_zero, self.state.is_local_process_zero = main, local
        self.log({"train_loss": 0.0})
        self._settle()
