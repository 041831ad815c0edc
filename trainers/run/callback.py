"""Ties a trainer to run folder, console and guards."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from agents.credited import Advantages
from agents.models.card import read_card
from agents.policy import Sampling
from agents.rollout import RolloutResult
from agents.t2po import T2PO
from agents.trajectory import Trajectory
from trainers.checkpoint import Checkpoint
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Facts, Finding, Measured, Severity, Watch
from trainers.guards.guard import LeftBehind, Update
from trainers.guards.signal import read_groups
from trainers.heldout import Evaluation
from trainers.jsonl import append_line
from trainers.measure import Confirmation, Episodes
from trainers.processes import is_main
from trainers.resume import FIELDS
from trainers.rollouts.samplers import sampled_dtype
from trainers.run.console import RunConsole
from trainers.run.device import GpuBusy
from trainers.run.record import FINDINGS, RunRecord
from trainers.run.setup import Run, kept_note, reply_cap
from trainers.run.summary import Clock
from trainers.settings.groups import take_apart

# -- How far a step moved the weights, and whether it had a gradient, on a sample of them -----------------------------

SAMPLE = 65_536
"""Weights looked at, spread evenly over all that are trained: enough for three digits, cheap for any model."""


class WeightDelta:
    """Looks at the weights before and after an optimizer step, and at its gradients; changes nothing.

    Every trained tensor has a weight in the sample, an adapter's as well as a norm's, so that a sample in which nothing
    moved is no chance.
    """

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._before: torch.Tensor | None = None
        self._rate = 0.0
        self._trained = 0
        self._slope: bool | None = None

    def begin(self, model: Any, rate: float) -> None:
        """A step begins, with learning rate `rate`."""
        self._tensors = [p for p in model.parameters() if p.requires_grad]
        self._trained = sum(p.numel() for p in self._tensors)
        self._before, self._rate, self._slope = self._sample(), rate, None

    def gradients(self) -> None:
        """The gradients of the step are there, and it is not taken yet."""
        slopes = [p.grad.flatten()[:: self._stride] for p in self._tensors if p.grad is not None]
        if any(slope.numel() for slope in slopes):
            self._slope = any(bool(torch.cat(some).count_nonzero()) for some in _by_device(slopes))
        # Without a gradient anywhere nothing is known: some optimizers keep them elsewhere.

    def end(self, advantages: float = 0.0) -> tuple[dict[str, float], Update | None]:
        """The step is done: its figures under the names of the logs, and what guards are told.

        `update/weight_delta` is the L2 norm of the change of all trained weights; `update/weight_delta_share` that in
        units of learning rate * sqrt(number of weights): about 1 in Adam's first step, where each weight moves by the
        learning rate, and less in later ones, where gradients of different signs cancel. Both are left out without
        trained weights or a rate.

        Args:
            advantages: Trained tokens of the step whose advantage was not 0.
        """
        before, self._before = self._before, None
        if before is None:
            return {}, None
        tensors, self._tensors = self._tensors, []
        if not before.numel():  # nothing is trained, or other processes hold all of it
            moved = None if tensors else 0.0
            return {}, Update(self._rate, advantages, moved, self._slope)
        norm = float((self._sample(tensors) - before).norm())
        moved = norm * math.sqrt(self._trained / before.numel())
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        visible = 1.0 if norm else self._visible(tensors)
        update = Update(self._rate, advantages, moved, self._slope, visible, dtype)
        if self._rate <= 0:
            return {}, update
        share = norm / (self._rate * math.sqrt(before.numel()))
        return {"update/weight_delta": moved, "update/weight_delta_share": share}, update

    @property
    def _stride(self) -> int:
        return -(-self._trained // SAMPLE) or 1

    def _sample(self, tensors: list[torch.Tensor] | None = None) -> torch.Tensor:
        held = self._tensors if tensors is None else tensors
        parts = _by_device([p.detach().flatten()[:: self._stride] for p in held])
        # A few kernels and one copy per device, not one per weight: an adapter has hundreds.
        return torch.cat([torch.cat(some).double().cpu() for some in parts]) if parts else torch.empty(0)

    def _visible(self, tensors: list[torch.Tensor]) -> float:
        """Share of the sample that adding the learning rate would change, in the weights' own number format."""
        changed = total = 0
        for tensor in tensors:
            some = tensor.detach().flatten()[:: self._stride]
            changed += int(((some + self._rate) != some).sum())
            total += some.numel()
        return changed / total


def _by_device(values: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    out: dict[torch.device, list[torch.Tensor]] = {}
    for value in values:
        out.setdefault(value.device, []).append(value)
    return list(out.values())


# -- What guards are told about a run before its first step -----------------------------------------------------------


def facts_of(run: Run, trainer: GiGPOTrainer, tokenizer: Any) -> Facts:
    """The facts of a run that is put together."""
    config, facts = run.settings.config, trainer_facts(trainer, tokenizer)
    raw = run.prompt_style == "base"
    return replace(
        facts,
        config=config,
        pool=run.tasks.pool,
        held_out=run.tasks.measured,
        choice=run.tasks.split.choice,
        sampling=Sampling(config.temperature, reply_cap(run), run.settings.env.max_episode_tokens),
        environment=run.settings.env.env,
        prompt_hash=run.prompt_hash,
        card=read_card(run.model_folder),
        raw_prompts=raw,
        overrun=None if raw else facts.overrun,
        self_test=run.self_test,
        resample_rate=run.settings.t2po.turn_resample_rate,
    )


def trainer_facts(trainer: GiGPOTrainer, tokenizer: Any = None) -> Facts:
    """What a trainer knows by itself: not its environment's prompts, the policy's card or how the sides were chosen."""
    policy, config = trainer.policy, trainer.args
    tokenizer = trainer.processing_class if tokenizer is None else tokenizer
    inner = policy.policy if isinstance(policy, T2PO) else policy
    dtype = str(next(trainer.model.parameters()).dtype).removeprefix("torch.")
    resamples = isinstance(policy, T2PO) and policy.config.turn_resample
    held_out = trainer.held_out
    return Facts(
        config=config,
        pool=list(trainer.rollouts.pool.values()),
        held_out=held_out.everything if held_out is not None else (),
        sampling=trainer.rollouts.sampling,
        arms=dict(held_out.arms) if held_out is not None else {},
        template_ids=template_tokens(tokenizer),
        overrun=trainer.engine.template.overrun if tokenizer.chat_template else None,
        pad_id=tokenizer.pad_token_id,
        eos_ids=frozenset(policy.eos_ids),
        exact=trainer.rollouts.exact,
        sampler=type(inner).__name__,
        dtype=sampled_dtype(trainer.model, config.sampler, config.sample_dtype),
        training_dtype="bfloat16" if config.bf16 else "float16" if config.fp16 else dtype,
        resampling=policy.warning if isinstance(policy, T2PO) and resamples else None,
        parameters=sum(p.numel() for p in trainer.model.parameters()),
    )


def template_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Special tokens that the chat template puts around a message; none where there is no template."""
    if not tokenizer.chat_template:
        return ()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=False)
    return tuple(token for token in tokenizer.all_special_tokens if token in text)


# -- The guards of a run as a callback: one line for a trainer that is put together in Python (docs/guards.md) --------


class GuardCallback(TrainerCallback):
    """Shows a run to the guards, tells what they find, and ends the run where they say so.

    Pass it in `callbacks` of a `GiGPOTrainer`. Findings go to `guards.jsonl` in its `output_dir`; what is more than a
    note is a Python warning, too (or goes to the callbacks that have `warn`). What guards remember is in no checkpoint:
    a run that is resumed is judged anew. `python -m trainers.grpo` keeps it.

    Args:
        watch: The guards: `Watch(config.guards)`.

    Attributes:
        stopped: What a guard ended the run for.
        findings: What guards found.
    """

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.stopped: Finding | None = None
        self.findings: list[Finding] = []
        self.trainer: GiGPOTrainer | None = None
        self._weights = WeightDelta()

    def attach(self, trainer: GiGPOTrainer) -> None:
        """The trainer, which calls this once, at the end of its construction. With several processes one watches."""
        if not is_main():
            return
        self.trainer = trainer
        trainer.on_episodes = _both(trainer.on_episodes, self.on_episodes)
        if trainer.held_out is not None:
            trainer.held_out.on_evaluation = _both(trainer.held_out.on_evaluation, self.on_evaluation)

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        if self.trainer is not None:
            args = self.trainer.args
            meter = read_groups(result.trajectories, args, args.turn_signal)
            for name, value in meter.metrics().items():
                self.trainer.note_metric(name, value)
        self._found(self.watch.episodes(step + 1, result))

    def on_evaluation(self, evaluation: Evaluation, episodes: dict[str, list[Trajectory]]) -> None:
        """A held-out evaluation is done."""
        assert self.trainer is not None and self.trainer.held_out is not None
        held_out = self.trainer.held_out
        measured = Measured(
            evaluation.step,
            evaluation.arms,
            take_apart(held_out.metric).arm,
            evaluation.is_best,
            evaluation.p_value,
            held_out.best.step if held_out.best else None,
            episodes,
        )
        self._found(self.watch.measured(measured))

    def left(self, behind: LeftBehind | None) -> None:
        """The run is over; `None` where no checkpoint could be looked at."""
        if behind is not None:
            self._found(self.watch.left(behind))

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Settings, tasks and model; what guards say to them may end the run already."""
        if self.trainer is not None:
            self._found(self.watch.begin(trainer_facts(self.trainer), state.global_step))
        self._end_if_stopped(control)

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        if self.trainer is not None and kwargs.get("optimizer") is not None:
            self._weights.begin(kwargs["model"], float(kwargs["optimizer"].param_groups[0]["lr"]))
            self.trainer.advantaged = 0.0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients of the step are there."""
        if self.trainer is not None:
            self._weights.gradients()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: how far the weights moved."""
        if self.trainer is None:
            return
        figures, update = self._weights.end(self.trainer.advantaged)
        for name, value in figures.items():
            self.trainer.note_metric(name, value)
        if update is not None:
            self._found(self.watch.update(state.global_step, update))
        if self.stopped is not None:  # by its episodes or its update; `on_log` may be steps away
            control.should_log = True
            self._end_if_stopped(control)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Metrics of a training step."""
        if logs and state.is_world_process_zero and "reward" in logs:
            numbers = {k: float(v) for k, v in logs.items() if isinstance(v, (int, float))}
            self._found(self.watch.step(state.global_step, numbers))
            self._end_if_stopped(control)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """What guards said to a measurement may end the run."""
        self._end_if_stopped(control)

    # -- what they found ----------------------------------------------------------------------------------------

    def tell(self, finding: Finding) -> None:
        """Write a finding down, and show what is more than a note."""
        assert self.trainer is not None
        folder = self.output_dir()
        folder.mkdir(parents=True, exist_ok=True)
        append_line(folder / FINDINGS, asdict(finding))
        if finding.severity is not Severity.NOTE:
            self.trainer.warn(finding.step, f"guard {finding.guard} (step {finding.step}): {finding.message}")

    def output_dir(self) -> Path:
        """Where findings and checkpoints are."""
        assert self.trainer is not None
        return Path(self.trainer.args.output_dir)

    def way_back(self) -> str:
        """How to go on from the checkpoint that is left."""
        return "train(resume_from_checkpoint=...) goes back to it"

    def _end_if_stopped(self, control: Any) -> None:
        if self.stopped is not None:
            control.should_training_stop = True
            # What is stopped for is neither kept nor measured: the last checkpoint stays the one from before.
            control.should_save = control.should_evaluate = False

    def _found(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            if finding.severity is Severity.STOP:
                finding = replace(finding, message=f"{finding.message} {self._what_is_left()}")
                self.stopped = self.stopped or finding
            self.findings.append(finding)
            self.tell(finding)

    def _what_is_left(self) -> str:
        """What is left from before, and how to go on from it."""
        parts = []
        if (checkpoint := Checkpoint.newest_whole(self.output_dir())) is not None:
            parts.append(
                f"the last checkpoint from before is step {checkpoint.step}: {self.way_back()} (change a "
                "setting first: the same ones lead here again)"
            )
        if self.trainer is not None and self.trainer.held_out is not None and self.trainer.held_out.best is not None:
            parts.append(f"`best/` holds step {self.trainer.held_out.best.step}")
        return f"The run ends here; {'; '.join(parts) or 'no checkpoint was written before'}."


def _both(first: Callable[..., None] | None, second: Callable[..., None]) -> Callable[..., None]:
    """Call one after the other."""

    def call(*arguments: Any) -> None:
        if first is not None:
            first(*arguments)
        second(*arguments)

    return call


# -- Ties a trainer to its run folder and console: logs, guards, where the time went ----------------------------------


WARM_UP = 2
"""Steps of a process that do not count for its pace: kernels are compiled, graphs captured, caches grown."""


class RunCallback(GuardCallback):
    """Writes what happens to the record and shows it; `clock` adds up where the time went."""

    keeps_run_folder = True

    def __init__(self, record: RunRecord, console: RunConsole, watch: Watch, *, keep_trajectories: bool) -> None:
        super().__init__(watch)  # its findings: what ended an earlier process of the run is a warning in this one
        self.record, self.console = record, console
        self.clock = Clock()
        self.gpu: GpuBusy | None = None
        self.logs: list[Callable[[int, RolloutResult], None]] = []
        """More that is told of training episodes, as `on_episodes` is."""
        self._before = Clock()
        self._warm = 0
        """Steps that this process has taken."""
        self.half_stepped = False
        """An optimizer step was begun and is not finished: the weights are those of no step."""
        self._saved = False
        """A checkpoint of this process is written."""
        self._keep = keep_trajectories
        self._begin = self._began = 0.0
        self._aside_before = self._hidden_before = 0.0
        self._held_out_before = 0.0

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on counting where the process of `checkpoint` stood."""
        if state := checkpoint.state.get("run"):
            self.clock = Clock.of(state["clock"])
            self.watch.load_state_dict(state["guards"])
        self.watch.restore(self.record.findings())
        self.findings = list(self.watch.findings)
        self._held_out_before = self.clock.held_out
        self.console.warnings.extend(self.record.warnings())

    def state(self) -> dict[str, Any]:
        """Where the time went so far and what the guards remember: part of every checkpoint."""
        return {"clock": asdict(self.clock), "guards": self.watch.state_dict()}

    def attach(self, trainer: GiGPOTrainer) -> None:
        """`trainers.grpo` has wired it already, and sets `trainer` when everything is put together."""

    def begin(self, facts: Facts, step: int) -> None:
        """Everything is put together and step `step` was the last."""
        self._found(self.watch.begin(facts, step))

    # -- called by the trainer ----------------------------------------------------------------------------------

    def on_episodes(self, step: int, result: RolloutResult) -> None:
        """The episodes of the step after `step` optimizer steps."""
        self.clock.add(result.timing)
        self.record.write_episodes(step + 1, result.trajectories, keep=self._keep)
        for log in self.logs:
            log(step, result)
        super().on_episodes(step, result)

    def on_advantages(self, step: int, advantages: Advantages) -> None:
        """What the turns of these episodes were credited with."""
        if self._keep:
            self.record.write_advantages(step + 1, advantages)

    def on_evaluation(self, evaluation: Evaluation, episodes: dict[str, list[Trajectory]]) -> None:
        """A held-out evaluation is done."""
        assert self.trainer is not None and self.trainer.held_out is not None
        held_out = self.trainer.held_out
        self.clock.held_out = self._held_out_before + held_out.seconds
        best_step = held_out.best.step if held_out.best else None
        self.record.write_held_out(evaluation, episodes, best_step=best_step, metric=held_out.metric)
        self.console.held_out(evaluation, best_step=best_step, metric=held_out.metric)
        super().on_evaluation(evaluation, episodes)

    def on_confirmation(self, confirmation: Confirmation, episodes: Episodes, seconds: float) -> None:
        """What was chosen has been measured once more, or needed not to be; it took `seconds` of wall time."""
        self.clock.confirm += seconds
        self.record.write_confirmation(confirmation, episodes)

    # -- transformers' callbacks --------------------------------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step begins."""
        self._begin, self._began = time.perf_counter(), time.time()
        assert self.trainer is not None
        self._before = replace(self.clock)
        self._aside_before = self.trainer.rollouts.aside_seconds
        self._hidden_before = self.trainer.rollouts.hidden_seconds
        super().on_step_begin(args, state, control, **kwargs)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The gradients of the step are there; the optimizer is next."""
        super().on_pre_optimizer_step(args, state, control, **kwargs)
        self.half_stepped = True

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An optimizer step is done: what was not waiting for episodes was learning."""
        assert self.trainer is not None
        self.half_stepped = False
        rollouts = self.trainer.rollouts
        waited = self.clock.rollout - self._before.rollout - (rollouts.aside_seconds - self._aside_before)
        seconds = time.perf_counter() - self._begin
        learn = seconds - waited
        self.clock.hidden += rollouts.hidden_seconds - self._hidden_before
        self.clock.learn += learn
        self.clock.steps += 1
        self._count_steady(seconds)
        self.trainer.note_metric("time/learn_seconds", learn)
        super().on_step_end(args, state, control, **kwargs)

    def _count_steady(self, seconds: float) -> None:
        """A step of `seconds` is done: it counts, but for the first two of a process."""
        self._warm += 1
        shares = self.gpu.take(self._began, time.time()) if self.gpu is not None else []
        if self._warm <= WARM_UP:
            return
        clock, before, steady = self.clock, self._before, self.clock.steady
        steady.steps += 1
        steady.seconds += seconds
        steady.model += clock.model - before.model
        steady.sandbox += clock.sandbox - before.sandbox
        steady.tokens += clock.tokens - before.tokens
        steady.busy += sum(shares)
        steady.looks += len(shares)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Metrics: to the record; those of a training step also to the console and the guards."""
        if not logs or not state.is_world_process_zero:
            return
        figures = {k: v for k, v in logs.items() if k != "total_flos"}
        if "loss" in figures:
            figures["policy_loss"] = figures["loss"] - args.beta * figures.get("kl", 0.0)
        self.record.log(state.global_step, figures)
        if "reward" not in figures:
            return
        self.console.step(state.global_step, figures)
        super().on_log(args, state, control, figures, **kwargs)
        numbers = {k: float(v) for k, v in figures.items() if isinstance(v, (int, float))}
        self.record.write_gauges(state.global_step, self.watch.gauges(numbers))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint is written. With the first, while all are there, people hear which of them will go."""
        if not self._saved and (note := kept_note(args)) is not None:
            self.console.note(f"checkpoint-{state.global_step} is written; {note}")
        self._saved = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The checkpoint is taken up; what guards said to settings and tasks (see `begin`) may have ended the run."""
        # Of the fields of the optimizer the trainer tells, with what follows for the next step.
        changed = [text for name, text in self.record.changed.items() if name not in FIELDS]
        if state.global_step and changed:
            self.warn(state.global_step, f"resumed with other settings: {'; '.join(changed)}.")
        self._end_if_stopped(control)

    # -- what guards found --------------------------------------------------------------------------------------

    def tell(self, finding: Finding) -> None:
        """To the record and the console."""
        self.record.write_finding(finding)
        self.console.found(finding)

    def output_dir(self) -> Path:
        """The run folder."""
        return self.record.path

    def way_back(self) -> str:
        """How to go on from the checkpoint that is left."""
        return "--resume goes back to it"

    def warn(self, step: int, message: str) -> None:
        """Say it now, in the record and in the summary."""
        self.console.warn(message)
        self.record.warn(step, message)
