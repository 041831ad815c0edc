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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import transformers
import yaml

from agents.models.card import ModelCard, read_card, write_card
from agents.models.errors import ModelError
from agents.models.loading import load_model, resolve_model
from agents.policy import Sampling
from agents.t2po import Keep, T2POConfig
from agents.thinking import ThinkStop
from envs.clawgym import ClawGymEnv
from sandboxes import SandboxUnavailable, open_sandbox
from tasks.problems import TaskError
from trainers.checkpoints import last_complete_checkpoint
from trainers.cli import Settings, parse
from trainers.config import PolicyArguments, T2POArguments
from trainers.console import RunConsole
from trainers.gigpo import GiGPOTrainer
from trainers.guards import default_guards
from trainers.heldout import HeldOut
from trainers.jsonl import RunFolderError
from trainers.machine import ENVIRONMENTS, set_threads
from trainers.record import RunRecord
from trainers.refusals import ConfigError, check_config
from trainers.report import write_report
from trainers.run_callback import RunCallback
from trainers.summary import RunSummary
from trainers.tasksets import TaskSets, load_task_sets


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
        run = prepare(settings)
        if settings.dry_run:
            print(run.describe())
            return 0
        return train(run)
    except (ConfigError, TaskError, SandboxUnavailable, RunFolderError, ModelError) as error:
        print(f"trainers.grpo: {error}", file=sys.stderr)
        return 2


@dataclass(frozen=True, slots=True)
class Run:
    """A checked run that has not loaded a model yet.

    Attributes:
        settings: As parsed.
        tasks: Pool and held-out.
        backend: The sandbox that was opened and works.
        model_folder: Where the policy's files are; a hub id stays as it is.
        prompt_style: Of the environment's messages.
    """

    settings: Settings
    tasks: TaskSets
    backend: str
    model_folder: str
    prompt_style: str

    def describe(self) -> str:
        """What would run, for `--dry-run`."""
        c = self.settings.config
        episodes = c.generation_batch_size
        lines = [
            "# dry run: settings, tasks and sandbox are right; no model was loaded",
            f"# pool {len(self.tasks.pool)} tasks, held-out {len(self.tasks.held_out)} tasks (none in both)",
            f"# sandbox {self.backend}; policy {self.model_folder}; prompt style {self.prompt_style}",
            f"# {c.max_steps} steps of {episodes // c.num_generations} tasks x {c.num_generations} attempts",
            *[f"# note: {note}" for note in self.tasks.notes],
            f"# settings hash {self.settings.sha256()}",
            yaml.safe_dump(self.settings.resolved(), sort_keys=False).rstrip(),
        ]
        return "\n".join(lines)


def prepare(settings: Settings) -> Run:
    """Check everything that needs no model.

    Raises:
        ConfigError: A setting cannot work.
        TaskError: A task file is wrong.
        SandboxUnavailable: No sandbox works here; the message has the remedies.
    """
    check_config(settings.config)
    env = settings.env
    if env.env not in ENVIRONMENTS:
        raise ConfigError(f"env={env.env}: can be trained now: {', '.join(ENVIRONMENTS)}")
    tasks = load_task_sets(env, settings.config.seed)
    with open_sandbox(env.sandbox) as sandbox:
        sandbox.open({})
        probe = sandbox.run("echo ready")
        backend = str(sandbox.backend)
    if probe.exit_code != 0:
        raise SandboxUnavailable(f"sandbox {backend}: `echo ready` ended with {probe.exit_code}: {probe.stderr_text}")
    folder = resolve_model(settings.policy.model_name_or_path).location
    style = read_card(folder).prompt_style if env.prompt_style == "auto" else env.prompt_style
    run = Run(settings, tasks, backend, folder, style)
    try:
        make_env_factory(run)().close()
    except ValueError as error:
        raise ConfigError(str(error)) from error
    make_t2po(settings.t2po)
    make_peft(settings.policy)
    return run


def make_env_factory(run: Run) -> Callable[[], ClawGymEnv]:
    """Opens one environment of the run; each has a sandbox of its own."""
    env = run.settings.env
    return partial(
        ENVIRONMENTS[env.env],
        tasks=list(run.tasks.pool[:1]),
        sandbox=run.backend,
        max_turns=env.max_turns or None,
        reward=env.reward,
        turn_penalty=env.turn_penalty,
        subtract_baseline=env.subtract_baseline,
        prompt_style=run.prompt_style,
    )


def train(run: Run) -> int:
    """Train, measure, keep the best, summarise; returns the exit code."""
    _quiet()
    settings, config = run.settings, run.settings.config
    folder = Path(config.output_dir)
    record = RunRecord(folder, resume=config.resume)
    checkpoint = last_complete_checkpoint(folder) if config.resume else None
    first_step = int(checkpoint.name.rsplit("-", 1)[1]) if checkpoint else 0
    if config.resume:
        record.resume_at(first_step if checkpoint else -1)
    record.write_config(settings.resolved())
    record.write_environment(sandbox=run.backend, model=run.model_folder, prompt_style=run.prompt_style)
    record.write_tasks(run.tasks.pool, run.tasks.held_out, str(run.tasks.lock["hash"]))

    model, tokenizer = load_model(run.model_folder, dtype=settings.policy.dtype)
    set_threads(model, settings.policy.torch_threads)
    console = RunConsole(config.max_steps, first_step=first_step)
    callback = RunCallback(
        record, console, default_guards(config.beta_turn), keep_trajectories=config.save_trajectories
    )
    held_out = make_held_out(run, folder, callback) if run.tasks.held_out else None
    config.eval_strategy = config.eval_strategy if held_out else "no"
    config.eval_on_start = bool(held_out) and checkpoint is None
    trainer = GiGPOTrainer(
        model,
        config,
        tokenizer,
        run.tasks.pool,
        make_env_factory(run),
        held_out=held_out,
        t2po=make_t2po(settings.t2po),
        slots=min(settings.env.slots, max(config.generation_batch_size, len(run.tasks.held_out))),
        workers=settings.env.sandbox_workers or os.cpu_count() or 1,
        max_turn_tokens=settings.t2po.max_turn_tokens or 512,
        on_episodes=callback.on_episodes,
        callbacks=[callback],
        peft_config=make_peft(settings.policy),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.remove_callback(transformers.ProgressCallback)
    callback.trainer = trainer
    console.note(
        f"policy {settings.policy.model_name_or_path} ({_millions(model)}), {len(run.tasks.pool)} pool and "
        f"{len(run.tasks.held_out)} held-out tasks, sandbox {run.backend}"
    )
    for note in run.tasks.notes:
        callback.warn(first_step, note)
    stopped = "finished"
    try:
        with console:
            try:
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                if trainer.state.global_step < config.max_steps:
                    stopped = "patience"
            except KeyboardInterrupt:
                stopped = "interrupted"
            if held_out and stopped != "interrupted":
                trainer.evaluate()  # the last step; nothing is played again if it was measured already
    finally:
        trainer.close()
    finish(run, trainer, callback, stopped)
    return 130 if stopped == "interrupted" else 0


def finish(run: Run, trainer: GiGPOTrainer, callback: RunCallback, stopped: str) -> None:
    """Write summary and report, and print the closing summary."""
    config, held_out = run.settings.config, trainer.held_out
    history = held_out.history if held_out else []
    best = held_out.best if held_out else None
    step = trainer.state.global_step
    chosen = next((e for e in history if best and e.step == best.step), None)
    summary = RunSummary(
        before=dict(history[0].arms) if chosen else {},
        after=dict(chosen.arms) if chosen else {},
        best_step=best.step if best else step,
        last_step=step,
        wall_seconds=callback.record.wall_seconds,
        clock=callback.clock,
        seed=config.seed,
        config_sha256=run.settings.sha256(),
        best_metric=config.best_metric if best else "",
        stopped=stopped,
        warnings=callback.console.warnings,
    )
    callback.record.write_summary(summary)
    folder = Path(config.output_dir)
    if held_out is None:
        trainer.save_model(str(folder / "last"))
        write_card(folder / "last", ModelCard(run.prompt_style))
    report = write_report([folder], folder / "report.html")
    callback.console.close(summary, folder=folder, report=report)


def make_held_out(run: Run, folder: Path, callback: RunCallback) -> HeldOut:
    """The held-out rule of the run."""
    config = run.settings.config
    cap = run.settings.t2po.max_turn_tokens or 512
    arms = {"sampled": Sampling(config.held_out_temperature, cap)}
    if config.held_out_greedy:
        arms["greedy"] = Sampling(0.0, cap)
    return HeldOut(
        tasks=run.tasks.held_out,
        arms=arms,
        metric=config.best_metric,
        seed=config.seed,
        output_dir=folder,
        patience=config.patience,
        min_delta=config.min_delta,
        extra_files=lambda best: write_card(best, ModelCard(run.prompt_style)),
        on_evaluation=callback.on_evaluation,
    )


def make_t2po(args: T2POArguments) -> T2POConfig | None:
    """The T2PO switches; `None` when all are off (the turn cap is the sampler's own)."""
    if not (args.think_budget or args.think_stop != "none" or args.turn_resample):
        return None
    try:
        return T2POConfig(
            think_budget=args.think_budget or None,
            think_stop=cast(ThinkStop, args.think_stop),
            turn_resample=args.turn_resample,
            eta=args.turn_resample_eta or None,
            target_rate=args.turn_resample_rate,
            max_try=args.turn_resample_max_try,
            keep=cast(Keep, args.turn_resample_keep),
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error


def make_peft(policy: PolicyArguments) -> Any:
    """LoRA settings, or `None` to train all weights."""
    full = policy.adapter == "none" or (policy.adapter == "auto" and policy.model_name_or_path == "quickstart")
    if policy.adapter not in ("auto", "lora", "none"):
        raise ConfigError(f"adapter={policy.adapter!r}: one of auto, lora, none")
    if full:
        return None
    from peft import LoraConfig

    targets: Any = policy.lora_target_modules
    if targets != "all-linear":
        targets = [name.strip() for name in targets.split(",")]
    return LoraConfig(
        r=policy.lora_r, lora_alpha=policy.lora_alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )


def _millions(model: Any) -> str:
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters"


def _quiet() -> None:
    """Library chatter off the screen: our console says what matters; errors still show."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", module=r"(trl|transformers|torch|accelerate|peft)\b.*")


if __name__ == "__main__":
    sys.exit(main())
