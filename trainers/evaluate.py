"""Measure a policy on tasks: `python -m trainers.evaluate`.

    python -m trainers.evaluate                                      # the quickstart policy, as shipped
    python -m trainers.evaluate --model runs/quickstart --samples 4  # the checkpoint a run chose, pass@k
    python -m trainers.evaluate --model oracle --tasks my_tasks/     # are my tasks solvable?
    python -m trainers.evaluate --env GSM8K-v0 --tasks gsm8k:test.jsonl --model Qwen/Qwen2.5-1.5B-Instruct
    python -m trainers.evaluate --tasks my_tasks/ --split my.lock    # are both sides of a split equally hard?
    python -m trainers.evaluate --compare runs/eval-a runs/eval-b    # paired p-value of two evaluations

Every figure comes with its counts, interval and decode settings. Exit codes: 0 measured, 1 the engine failed or nothing
could be graded, 2 an argument, a task or the machine is not right.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import yaml
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from agents.models.card import ModelCard, read_card
from agents.models.errors import ModelError
from agents.models.loading import ModelSource, load_model, resolve_model
from agents.policies.scripted import NoOpPolicy, OraclePolicy
from agents.policy import Policy, PolicyError, Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult
from agents.seeds import derive_seed
from envs.conversation import ConversationEnv
from envs.mixed import kind_of_env
from sandboxes import SandboxPool, SandboxUnavailable, open_sandbox
from tasks.assertions.timing import reset_timings, timing_table
from tasks.problems import TaskError
from tasks.sources import load_tasks
from tasks.sources.self_test import self_test
from tasks.split_lock import apply_lock
from tasks.splits import Split
from tasks.task import Task
from trainers.compare import compare_arms, read_arms
from trainers.evaluation import EvaluationRecord
from trainers.jsonl import RunFolderError
from trainers.machine import ENVIRONMENTS, MIXED_TASKS, environment_settings, set_threads, unfit_task
from trainers.measure import Measurement, measure, tag_counts, wrote_on
from trainers.record import CONFIG, TASKS
from trainers.sides import side_rates
from trainers.stats import mean_pass_at_k
from trainers.tables import count_table, measurement_table, percent

SCRIPTED: dict[str, Callable[[], Policy]] = {"oracle": OraclePolicy, "noop": NoOpPolicy}
DEFAULT_CAP = 512
DEFAULT_TASKS = "generated:quickstart?n=320&seed=1000"


class EvaluateError(ValueError):
    """An argument that cannot work; one line for a person."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who is measured.

    Attributes:
        policy: Acts.
        source: The model, resolved; `None` for a scripted policy.
        card: What it was made for.
    """

    policy: Policy
    source: ModelSource | None
    card: ModelCard


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parser().parse_args(argv)
    console = Console(highlight=False, emoji=False)  # `instruction:repeat:...` is a name, and no picture
    try:
        if arguments.compare:
            first, second = (read_arms(path) for path in arguments.compare)
            for part in compare_arms(first, second):
                console.print(part)
            return 0
        return _evaluate(arguments, console)
    except (EvaluateError, TaskError, ModelError, SandboxUnavailable, RunFolderError) as error:
        print(f"trainers.evaluate: {error}", file=sys.stderr)
        return 2
    except PolicyError as error:
        print(f"trainers.evaluate: the policy failed, nothing was measured: {error}", file=sys.stderr)
        return 1


def play(
    actor: Actor,
    tasks: Sequence[Task],
    sampling: Sampling,
    make_env: Callable[[], ConversationEnv],
    *,
    samples: int = 1,
    seed: int = 0,
    slots: int = 32,
    workers: int = 1,
    on_episode: Callable[[Any], None] | None = None,
) -> RolloutResult:
    """Play every task `samples` times; each attempt has a seed of its own, derived from `seed`.

    Raises:
        PolicyError: The engine failed.
    """
    jobs = [Job(task, k, derive_seed(seed, "evaluate", task.id, k)) for task in tasks for k in range(samples)]
    with RolloutEngine(actor.policy, make_env, slots=min(slots, len(jobs)), workers=workers) as engine:
        return engine.run(jobs, sampling, on_episode=on_episode)


def open_actor(model: str, *, dtype: str = "float32", device: str = "auto", threads: int = 0) -> Actor:
    """The policy that `model` names: `oracle`, `noop`, or what `agents.models.loading` takes.

    Raises:
        ModelError: It cannot be loaded.
    """
    if model in SCRIPTED:
        return Actor(SCRIPTED[model](), None, ModelCard())
    import torch
    import transformers

    from agents.policies.transformers import TransformersPolicy

    transformers.logging.disable_progress_bar()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    source = resolve_model(model)
    weights, tokenizer = load_model(model, dtype=dtype, device=device)
    set_threads(weights, threads)
    return Actor(TransformersPolicy(weights, tokenizer), source, read_card(source.location))


def _evaluate(a: argparse.Namespace, console: Console) -> int:
    if a.env not in ENVIRONMENTS:
        raise EvaluateError(f"--env {a.env}: can be measured now: {', '.join(ENVIRONMENTS)}")
    try:
        settings = environment_settings(a.env, tools=not a.no_tools, revise=a.revise)
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    if a.samples < 1 or a.slots < 1:
        raise EvaluateError("--samples and --slots must be at least 1")
    a.tasks = ",".join(a.tasks) if a.tasks else _default_tasks(a.env)
    tasks, split = _tasks(a)
    if why := unfit_task(a.env, tasks):
        raise EvaluateError(why)
    arms = _arms(a, _reply_cap(a, tasks))
    coverage = self_test(tasks)
    if coverage is not None and coverage.hopeless:
        raise EvaluateError(f"--tasks {a.tasks}: the verifiers cannot be trusted here: {coverage.text()}")
    with open_sandbox(a.sandbox) as sandbox:
        backend = str(sandbox.backend)
    folder = Path(a.output_dir) if a.output_dir else _default_folder(a.model)
    record = EvaluationRecord(folder)
    actor = open_actor(a.model, dtype=a.dtype, device=a.device, threads=a.torch_threads)
    style = actor.card.prompt_style if a.prompt_style == "auto" else a.prompt_style
    workers = a.sandbox_workers or os.cpu_count() or 1
    make = partial(
        ENVIRONMENTS[a.env],
        tasks=tasks[:1],
        max_turns=a.max_turns or None,
        reward=a.reward,
        prompt_style=style,
        **settings,
    )
    try:
        prompt_hash = make().prompt_hash
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    record.begin(vars(a), tasks, model=actor.source, sandbox=backend, prompt_style=style, prompt_hash=prompt_hash)
    console.print(
        f"{a.model}: {len(tasks)} tasks x {a.samples} attempts, sandbox {backend}, prompt style {style}", markup=False
    )
    if coverage is not None:
        console.print(coverage.text(), markup=False)
    if why := actor.card.mismatch(a.env, prompt_hash):
        console.print(f"warning: {why}", markup=False)
    reset_timings()  # the self-test is no part of what is measured
    measured: dict[str, Measurement] = {}
    with SandboxPool(backend, min(a.slots, len(tasks) * a.samples)) as sandboxes:
        make_env = partial(make, sandbox=sandboxes)
        for name, sampling in arms.items():
            start = time.perf_counter()
            with _bar(console, name, len(tasks) * a.samples) as advance:
                result = play(
                    actor, tasks, sampling, make_env,
                    samples=a.samples, seed=a.seed, slots=a.slots, workers=workers, on_episode=advance,
                )  # fmt: skip
            measured[name] = measure(result.trajectories, sampling.label())
            record.add(name, measured[name], result)
            _show(console, name, measured[name], a.samples, tasks)
            if split is not None:
                console.print(f"\nby side of {a.split}\n{side_rates(split, measured[name])}", markup=False)
            if past := wrote_on(result.trajectories):
                console.print(f"wrote on behind a stop sequence: {past[0]} of {past[1]} episodes", markup=False)
            console.print(_speed(result, time.perf_counter() - start), soft_wrap=True)
    record.finish()
    for kind in timing_table():
        console.print(f"check {kind}", markup=False, soft_wrap=True)
    console.print(f"stored in {folder}", markup=False, soft_wrap=True)
    return 0 if all(m.graded for m in measured.values()) else 1


def _default_tasks(env: str) -> str:
    if env == "Mixed-v0":
        return MIXED_TASKS
    return getattr(ENVIRONMENTS[env], "default_tasks", None) or DEFAULT_TASKS


def _tasks(a: argparse.Namespace) -> tuple[list[Task], Split | None]:
    """What to play, and the split it comes from, if one was named."""
    if not a.split:
        return _first(load_tasks(a.tasks), a.limit, a.env), None
    if a.limit:
        raise EvaluateError("--limit would cut a side of --split short: leave one of them out")
    split = apply_lock(load_tasks(a.tasks), Path(a.split).expanduser(), allow_outcome=True)
    return [task for side in split.sides.values() for task in side], split


def _first(tasks: list[Task], limit: int, env: str) -> list[Task]:
    """The first `limit` tasks (0: all); in a mixed environment those of every set in turn."""
    if not limit or env != "Mixed-v0":
        return tasks[: limit or None]
    sets: dict[type, list[Task]] = {}
    for task in tasks:
        sets.setdefault(kind_of_env(task), []).append(task)
    in_turn = (task for together in zip_longest(*sets.values()) for task in together if task is not None)
    return list(islice(in_turn, limit))


def _show(console: Console, name: str, m: Measurement, samples: int, tasks: Sequence[Task]) -> None:
    console.print()
    console.print(measurement_table(name, {m.sampling: m}))
    if samples > 1:
        ks = sorted({k for k in (1, 2, 4, 8, 16, 32, 64, samples) if k <= samples})
        cells = [f"pass@{k} {percent(mean_pass_at_k(m.outcomes, k))}" for k in ks]
        console.print(
            f"{'  '.join(cells)}  (unbiased, mean over tasks; a pass is every assertion; "
            f"interval on {m.effective_n:.0f} independent episodes)"
        )
    note = " (attempts taken as independent)" if samples > 1 else ""
    tables = [("by family", "family", m.families), ("by assertion kind", "kind", m.kinds)]
    if tags := tag_counts(tasks, m.outcomes):
        tables.append(("by tag", "tag", tags))
    for title, names, counts in tables:
        console.print()
        console.print(count_table(title + note, names, {"passed [95 % interval]": counts}))
    for message, count in m.errors.items():
        console.print(f"infrastructure, {count} times: {message}", markup=False)


def _speed(result: RolloutResult, seconds: float) -> str:
    timing = result.timing
    parts = (
        ("model", timing.model_seconds),
        ("sandbox", timing.sandbox_seconds),
        ("overhead", timing.overhead_seconds),
    )
    per_turn = ", ".join(f"{name} {1000 * spent / max(1, timing.turns):.1f} ms" for name, spent in parts)
    return f"{seconds:.1f} s; per turn: {per_turn}\n"


def _bar(console: Console, name: str, total: int) -> Any:
    """A context manager whose value is called with each finished episode; silent when this is no terminal."""
    if not console.is_terminal:
        return nullcontext(lambda _: None)
    progress = Progress(
        TextColumn(name), BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(),
        console=console, transient=True,
    )  # fmt: skip
    return _Advancing(progress, progress.add_task(name, total=total))


class _Advancing:
    def __init__(self, progress: Progress, task: Any) -> None:
        self.progress, self.task = progress, task

    def __enter__(self) -> Callable[[Any], None]:
        self.progress.start()
        return lambda _: self.progress.advance(self.task)

    def __exit__(self, *exc: object) -> None:
        self.progress.stop()


def _arms(a: argparse.Namespace, cap: int) -> dict[str, Sampling]:
    """Decode settings by name: `sampled` (one temperature) or `T=0.7`, and `greedy`."""
    temperatures = a.temperature if a.temperature is not None else ([] if a.greedy else [1.0])
    if any(t < 0 for t in temperatures):
        raise EvaluateError("--temperature must not be negative (0 is greedy)")
    arms = {}
    drawn = [t for t in dict.fromkeys(temperatures) if t > 0]
    for t in drawn:
        arms["sampled" if len(drawn) == 1 else f"T={t:g}"] = Sampling(t, cap)
    if a.greedy or 0 in temperatures:
        if a.samples > 1:
            raise EvaluateError("--samples above 1 with greedy decoding plays the same episode again: leave one out")
        arms["greedy"] = Sampling(0.0, cap)
    return arms


def _default_folder(model: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(model).name).strip("-.") or "model"
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    return Path("runs") / f"eval-{name}-{stamp}"


def _reply_cap(a: argparse.Namespace, tasks: Sequence[Task]) -> int:
    """The cap that was asked for, or that the model was trained with: other caps give other figures.

    Where neither says, questions take the largest budget of the tasks (each task's own caps it further), and the shell
    the usual cap.
    """
    if a.max_tokens is not None:
        return int(a.max_tokens)
    default = DEFAULT_CAP if a.env == "ClawGym-v0" else max(task.budget.turn_tokens for task in tasks)
    for folder in (Path(a.model), Path(a.model).parent):
        config = folder / CONFIG
        if config.is_file() and (folder / TASKS).is_file():
            settings = yaml.safe_load(config.read_text(encoding="utf-8"))
            return int(settings.get("max_turn_tokens") or default)
    return default


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m trainers.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--model",
        default="quickstart",
        help="quickstart | smollm2 | a folder (model, adapter, run) | hub id | oracle | noop",
    )
    add(
        "--tasks",
        action="append",
        help="a YAML file, a folder, library, generated:<family>?n=..&seed=.., gsm8k:PATH and the like; several with "
        f"commas between (default {DEFAULT_TASKS}, or the sample of the environment)",
    )
    add("--split", metavar="FILE", help="lock file of a split of --tasks: play every side, and compare them")
    add("--samples", type=int, default=1, metavar="K", help="attempts per task; above 1 also pass@k")
    add("--temperature", type=float, nargs="+", metavar="T", help="one arm per temperature; 0 is greedy (default 1.0)")
    add("--greedy", action="store_true", help="greedy decoding: alone, or beside --temperature")
    add("--limit", type=int, default=0, metavar="N", help="the first N tasks only (Mixed-v0: of every set in turn)")
    add(
        "--max_tokens",
        type=int,
        help="cap on one reply; default: the run's if --model is one, else 512 (questions: the set's)",
    )
    add("--output_dir", help="where episodes and figures go (default runs/eval-<model>-<time>)")
    add("--compare", nargs=2, metavar=("A", "B"), help="two evaluation or run folders: paired p-value; plays nothing")
    add("--env", default="ClawGym-v0", help=f"{' | '.join(ENVIRONMENTS)} (%(default)s)")
    add("--no_tools", action="store_true", help="questions: the agent only answers, and runs no commands")
    add("--revise", type=int, default=0, metavar="N", help="IFEval: times an answer may be revised")
    add("--sandbox", default="auto", help="auto | bubblewrap | landlock | local (unsafe)")
    add("--max_turns", type=int, default=0, help="turns per episode; 0 takes each task's own budget")
    add("--reward", default="shaped", help="shaped | binary | delta")
    add("--prompt_style", default="auto", help="auto (what the policy was made for) | standard | compact | base")
    add("--seed", type=int, default=0, help="of the samples; equal seeds, equal episodes")
    add("--slots", type=int, default=32, help="episodes in flight at a time")
    add("--sandbox_workers", type=int, default=0, help="threads that step environments; 0 = number of cores")
    add("--dtype", default="float32", help="float32 | bfloat16 | float16 | auto")
    add("--device", default="auto", help="auto (a GPU if there is one) | cpu | cuda")
    add("--torch_threads", type=int, default=0, help="0 = one for a small policy, else all cores")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
