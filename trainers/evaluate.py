"""What an evaluation asks of a policy that runs elsewhere: its own arguments, its costs."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.models.card import ModelCard, ModelError
from agents.policies.openai import OpenAIPolicy, Usage
from agents.policies.opening import Actor, PolicyKind, PolicyName, card_of, open_policy, read_name
from agents.policy import Policy, PolicyError, Sampling, abilities
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutResult, RolloutState
from agents.rollout.engine import UNCOUNTED
from agents.rollout.progress import RolloutProgress
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from agents.users import ModelUser, read_user
from envs.clawgym import ClawGymEnv
from envs.conversation import ConversationEnv
from envs.mixed import kind_of_env
from envs.registry import environment, environment_ids, takes
from envs.sandboxed import ExposedJudge, refuse_exposed
from sandboxes import Backend, SandboxPool, SandboxUnavailable, open_sandbox
from sandboxes.guard import Parser
from tasks.assertions.grade import reset_timings, timing_table
from tasks.judges import JudgeUse
from tasks.model import TaskError, counted
from tasks.place import refuse_unplaceable
from tasks.sources import load_tasks
from tasks.sources.questions import Coverage, self_test
from tasks.splits import Split, apply_lock, parted_twins
from tasks.task import Task
from trainers.errors import RunFolderError
from trainers.measure import Measurement, measure, side_rates, tag_counts, wrote_on
from trainers.reporting.folder import EvaluationRecord, compare_arms, read_arms
from trainers.rollouts.manner import AUTO, DEFAULT_ENV, Manner, differences, insist, manner_of
from trainers.run.folder import disk_full, refuse_unwritable
from trainers.run.machine import AHEAD, environment_settings, set_threads, unfit_task
from trainers.run.pipes import start
from trainers.run.summary import count_table, measurement_table, percent, wide
from trainers.settings import EnvArguments
from trainers.settings.rollouts import RolloutFields
from trainers.stats import mean_pass_at_k

READS = {
    "concurrency": "concurrency",
    "timeout": "timeout",
    "retries": "retries",
    "request_body": "extra",
    "tokenizer": "tokenizer",
    "eos_ids": "eos_ids",
    "dtype": "dtype",
    "sample_dtype": "sample_dtype",
    "device": "device",
    "torch_threads": "device",
}
"""Arguments that only some policies look at, and what they are in `agents.policies.opening.PolicyWay.reads`."""
LEAST = {
    "samples": 1,
    "slots": 1,
    "max_tokens": 1,
    "concurrency": 1,
    "retries": 0,
    "limit": 0,
    "max_turns": 0,
    "max_episode_tokens": 0,
    "keep_observations": 0,
    "sandbox_workers": 0,
    "torch_threads": 0,
}
"""The smallest value of an argument, where it is given."""


def check_arguments(arguments: Namespace, parser: ArgumentParser, named: PolicyName) -> None:
    """Refuse arguments that do not go with the policy.

    Raises:
        ValueError: One would do nothing, is no value that it can have, or cannot work with a chat endpoint.
    """
    for name, read in READS.items():
        if read not in named.way.reads and getattr(arguments, name) != parser.get_default(name):
            raise ValueError(f"--{name} does nothing with --model {arguments.model}: leave it out")
    for name, least in LEAST.items():
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise ValueError(f"--{name} is {value}: at least {least}")
    if arguments.timeout is not None and not 0 < arguments.timeout < threading.TIMEOUT_MAX:
        raise ValueError(f"--timeout is {arguments.timeout:g}: a number of seconds above 0")
    if any(token < 0 for token in arguments.eos_ids or ()):
        raise ValueError("--eos_ids must not be negative")
    if not all(0 <= value < math.inf for value in arguments.temperature or ()):
        raise ValueError("--temperature must be a number and not negative (0 is greedy)")
    if named.kind is PolicyKind.OPENAI and arguments.prompt_style == "base":
        raise ValueError("--prompt_style base is one running text, and a chat endpoint takes messages: leave it out")


def read_body(text: str | None) -> dict[str, Any]:
    """`--request_body` as keys of a request; empty without one.

    Raises:
        ValueError: It is no JSON object.
    """
    try:
        body = json.loads(text or "{}")
    except ValueError as error:
        raise ValueError(f"--request_body is not JSON ({error})") from error
    if not isinstance(body, dict):
        raise ValueError('--request_body is no JSON object, as \'{"reasoning_effort": "low"}\' is')
    return body


def check_body(body: Mapping[str, Any], arguments: Namespace) -> None:
    """Refuse arguments that a key which is left out makes void.

    Raises:
        ValueError: There is one.
    """
    if "temperature" in body and body["temperature"] is None and (arguments.temperature or arguments.greedy):
        named = "--greedy" if arguments.greedy else "--temperature"
        raise ValueError(f"{named} does nothing where --request_body leaves the temperature out: leave one of them out")


def usage_line(usage: Usage) -> str:
    """What an evaluation has cost so far."""
    missing = f" ({usage.without_usage} of the replies came without counts)" if usage.without_usage else ""
    return (
        f"used so far, as the server counts: {usage.replies} replies, {usage.prompt_tokens:,} prompt tokens, "
        f"{usage.completion_tokens:,} completion tokens{missing}"
    )


# -- Measure a policy on tasks: `python -m trainers.evaluate` ---------------------------------------------------------
#     python -m trainers.evaluate                                      # the quickstart policy, as shipped
#     python -m trainers.evaluate --model runs/quickstart --samples 4  # the checkpoint a run chose, pass@k
#     python -m trainers.evaluate --model oracle --tasks my_tasks/     # are my tasks solvable?
#     python -m trainers.evaluate --env GSM8K-v0 --tasks gsm8k:test.jsonl --model Qwen/Qwen2.5-1.5B-Instruct
#     python -m trainers.evaluate --model openai:gpt-4o-mini@https://api.openai.com/v1 --env GSM8K-v0
#     python -m trainers.evaluate --tasks my_tasks/ --split my.lock    # are both sides of a split equally hard?
#     python -m trainers.evaluate --compare runs/eval-a runs/eval-b    # paired p-value of two evaluations
#
# Every figure comes with its counts, interval and decode settings. Exit codes: 0 measured, 1 the engine failed or
# nothing could be graded, 2 an argument, a task or the machine is not right, 130 stopped by Ctrl-C.

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


DEFAULT_CAP = 512
DEFAULT_TASKS = "generated:quickstart?n=320&seed=1000"
AGENT_ERRORS = EnvArguments.__dataclass_fields__["agent_errors"]
EXPOSED = EnvArguments.__dataclass_fields__["allow_exposed_judges"]
"""The setting that training has, too."""


class EvaluateError(ValueError):
    """An argument that cannot work; one line for a person."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parser().parse_args(argv)
    console = wide(Console(highlight=False, emoji=False))  # `instruction:repeat:...` is a name, and no picture
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
        print(f"trainers.evaluate: the policy failed: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if not disk_full(error):
            raise
        print(f"trainers.evaluate: no space left on the disk: {error.filename or error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("trainers.evaluate: stopped", file=sys.stderr)
        return 130


def play(
    policy: Policy,
    tasks: Sequence[Task],
    sampling: Sampling,
    make_env: Callable[[], ConversationEnv],
    *,
    samples: int = 1,
    seed: int = 0,
    slots: int = 32,
    workers: int = 1,
    ahead: int = 0,
    mode: RolloutMode = RolloutMode.AUTO,
    on_episode: Callable[[Trajectory], None] | None = None,
    on_round: Callable[[RolloutState], None] | None = None,
) -> RolloutResult:
    """Play every task `samples` times; each attempt has a seed of its own, derived from `seed`.

    Raises:
        PolicyError: The engine failed.
    """
    jobs = [Job(task, k, derive_seed(seed, "evaluate", task.id, k)) for task in tasks for k in range(samples)]
    slots = min(slots, len(jobs))
    with RolloutEngine(policy, make_env, slots=slots, workers=workers, ahead=ahead, mode=mode) as engine:
        return engine.run(jobs, sampling, on_episode=on_episode, on_round=on_round)


@dataclass(frozen=True, slots=True)
class Checked:
    """An evaluation whose arguments fit together: no policy is loaded, and nothing is written yet.

    Attributes:
        named: The policy.
        body: More of each request, of a policy behind an endpoint.
        manner: How the policy is spoken to.
        settings: Arguments that only some environments take.
        user: The model that answers as the tasks' user; `None`: their own rules do.
        tasks: What is played, of `split` where one was named.
        in_process: Ids of tasks that are played and not counted: what their judges say can be forged.
        arms: Decode settings by name.
        coverage: What the gold self-test found; `None` where no task is a question.
        backend: The sandbox that was opened and works.
    """

    named: PolicyName
    body: dict[str, Any]
    manner: Manner
    settings: dict[str, Any]
    user: PolicyName | None
    tasks: list[Task]
    split: Split | None
    in_process: frozenset[str]
    arms: dict[str, Sampling]
    coverage: Coverage | None
    backend: str


def _evaluate(a: argparse.Namespace, console: Console) -> int:
    checked = _check(a)
    folder = Path(a.output_dir) if a.output_dir else _default_folder(checked.named)
    refuse_unwritable(folder)
    record = EvaluationRecord(folder)
    actor = _open_actor(a, checked)
    user = None if checked.user is None else open_policy(checked.user)
    if a.max_episode_tokens and not abilities(actor.policy).own_ids:
        raise EvaluateError(f"--max_episode_tokens {a.max_episode_tokens}: {UNCOUNTED}")
    make = _make_env(a, checked, user)
    try:
        made = make()
        prompt_hash = made.prompt_hash
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    other = list(differences(actor.card, a.env, make))
    if other and not _asks_style(a):
        raise EvaluateError(insist(actor.card, other))
    record.begin(
        vars(a),
        checked.tasks,
        in_process=checked.in_process,
        model=actor.source,
        sandbox=checked.backend,
        prompt_style=checked.manner.prompt_style,
        prompt_hash=prompt_hash,
    )
    _introduce(a, checked, actor, other, console)
    reset_timings()  # the self-test is no part of what is measured
    boxes = min(a.slots + AHEAD, len(checked.tasks) * a.samples)
    with closing(actor), closing(user) if user else nullcontext(), SandboxPool(checked.backend, boxes) as sandboxes:
        make_env = partial(make, sandbox=sandboxes)
        measured = [_measure_arm(name, a, checked, actor, make_env, record, console) for name in checked.arms]
    if user is not None and isinstance(user.policy, OpenAIPolicy):
        console.print(f"the user, {usage_line(user.policy.usage)}", markup=False)
    for kind in timing_table():
        console.print(f"check {kind}", markup=False, soft_wrap=True)
    console.print(f"stored in {folder}", markup=False, soft_wrap=True)
    return 0 if all(m.graded or m.in_process for m in measured) else 1


def _check(a: argparse.Namespace) -> Checked:
    """Everything that needs no policy; what `a` leaves open is put into it, as the record shall have it."""
    if a.env is not None:
        try:
            environment(a.env)
        except ValueError as error:
            raise EvaluateError(f"--env {a.env}: {error}") from error
    named = read_name(a.model)
    try:
        check_arguments(a, _parser(), named)
        body = read_body(a.request_body)
        check_body(body, a)
        manner = _manner(a, named)
        settings = environment_settings(
            a.env, tools=manner.tools, revise=manner.revise, keep_observations=manner.keep_observations
        )
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    if a.user is not None and not takes(environment(a.env), "user"):
        raise EvaluateError(f"--user: nobody answers in {a.env}; --env ClawGym-v1 has a user")
    user = None if a.user is None else read_user(a.user)
    if named.kind is PolicyKind.HUMAN:
        a.slots = 1
    if a.tasks and not all(a.tasks):
        raise EvaluateError("--tasks: is empty; name a source of tasks, or leave it out")
    a.tasks = ",".join(a.tasks) if a.tasks else environment(a.env).default_tasks or DEFAULT_TASKS
    tasks, split = _tasks(a)
    if why := unfit_task(a.env, tasks):
        raise EvaluateError(why)
    if a.max_tokens is None:  # nobody says: questions take the largest budget, each task's own caps it further
        a.max_tokens = (
            DEFAULT_CAP
            if issubclass(environment(a.env), ClawGymEnv)
            else max(task.budget.turn_tokens for task in tasks)
        )
    arms = _arms(a, a.max_tokens, manner.max_episode_tokens)
    coverage = self_test(tasks)
    if coverage is not None and coverage.hopeless:
        raise EvaluateError(f"--tasks {a.tasks}: the verifiers cannot be trusted here: {coverage.text()}")
    backend = _check_machine(a, named, tasks)
    return Checked(named, body, manner, settings, user, tasks, split, _in_process(a, tasks), arms, coverage, backend)


def _check_machine(a: argparse.Namespace, named: PolicyName, tasks: Sequence[Task]) -> str:
    """Refuse a sandbox or a device that is none, is not here, or lets judges be forged; returns the sandbox's name."""
    if a.sandbox not in ("auto", *Backend):
        raise EvaluateError(f"--sandbox {a.sandbox}: one of {', '.join(('auto', *Backend))}")
    if named.kind is PolicyKind.WEIGHTS:
        import torch  # slow, and only weights in this process need it

        try:
            torch.empty(0, device="cpu" if a.device == "auto" else a.device)
        except (RuntimeError, AssertionError) as error:
            why = str(error).splitlines()[0]
            raise EvaluateError(f"--device {a.device}: {why}; auto takes what is here") from error
    with open_sandbox(a.sandbox) as sandbox:
        try:
            refuse_unplaceable(tasks, sandbox.backend)
            refuse_exposed(tasks, sandbox, a.allow_exposed_judges)
        except (TaskError, ExposedJudge) as error:
            raise EvaluateError(f"--sandbox {a.sandbox}: {error}") from error
        return str(sandbox.backend)


def _open_actor(a: argparse.Namespace, checked: Checked) -> Actor:
    """The policy, loaded."""
    actor = open_policy(
        checked.named, dtype=a.dtype, device=a.device, sample_dtype=a.sample_dtype, tokenizer=a.tokenizer,
        eos_ids=a.eos_ids, concurrency=a.concurrency, timeout=a.timeout, retries=a.retries, extra=checked.body,
    )  # fmt: skip
    if actor.weights is not None:
        set_threads(actor.weights, a.torch_threads)
    return actor


def _make_env(a: argparse.Namespace, checked: Checked, user: Actor | None) -> Callable[..., ConversationEnv]:
    """Opens one environment; takes the sandbox."""
    answers: dict[str, Any] = {} if user is None else {"user": ModelUser(user.policy, a.user)}
    return partial(
        environment(a.env),
        tasks=checked.tasks[:1],
        max_turns=checked.manner.max_turns or None,
        reward=a.reward,
        agent_errors=a.agent_errors,
        allow_exposed_judges=a.allow_exposed_judges,
        prompt_style=checked.manner.prompt_style,
        **checked.settings,
        **answers,
    )


def _asks_style(a: argparse.Namespace) -> bool:
    return bool(a.prompt_style != AUTO)


def _introduce(a: argparse.Namespace, checked: Checked, actor: Actor, other: Sequence[str], console: Console) -> None:
    """What is about to be played, and what a reader of its figures should know."""
    style, named = checked.manner.prompt_style, checked.named
    console.print(
        f"{a.model}: {len(checked.tasks)} tasks x {a.samples} attempts, sandbox {checked.backend}, "
        f"prompt style {style}",
        markup=False,
    )
    if checked.in_process:
        console.print(
            f"{counted(len(checked.in_process), 'task')} with a judge that runs the agent's code in its own process, "
            "where that code can write the verdict: played, and not counted (--allow_in_process_judges counts them)",
            markup=False,
        )
    if checked.split is not None:
        for problem in parted_twins(checked.split, Path(a.split)):
            console.print(f"warning: {problem}", markup=False, soft_wrap=True)
    if checked.coverage is not None:
        console.print(checked.coverage.text(), markup=False)
    if named.kind is PolicyKind.VLLM and actor.card == ModelCard() and not _asks_style(a):
        console.print(
            f"no model card is known for what {named.url} serves, so it gets the prompt style {style}; if it was "
            "trained with another, name that: --prompt_style",
            markup=False,
        )
    for why in (*checked.manner.asked, *other):
        console.print(f"warning: as asked, {why}", markup=False, soft_wrap=True)


def _measure_arm(
    name: str,
    a: argparse.Namespace,
    checked: Checked,
    actor: Actor,
    make_env: Callable[[], ConversationEnv],
    record: EvaluationRecord,
    console: Console,
) -> Measurement:
    """Play one decode setting, write it down, show it."""
    start = time.perf_counter()
    try:
        with RolloutProgress(name, console=console) as progress, record.episodes(name) as keep:
            result = play(
                actor.policy, checked.tasks, checked.arms[name], make_env,
                samples=a.samples, seed=a.seed, slots=a.slots, workers=a.sandbox_workers or os.cpu_count() or 1,
                ahead=AHEAD, mode=a.rollout_mode, on_episode=keep, on_round=progress.show,
            )  # fmt: skip
    except (PolicyError, KeyboardInterrupt):
        print(f"trainers.evaluate: {name} is not measured; {record.kept(name)}", file=sys.stderr)
        raise
    finally:
        if isinstance(actor.policy, OpenAIPolicy):
            console.print(usage_line(actor.policy.usage), markup=False)
    measured = measure(result.trajectories, result.label, checked.in_process)
    record.add(name, measured, result, actor.policy)
    _show(console, name, measured, a.samples, checked.tasks)
    if checked.split is not None:
        rates = side_rates(checked.split, measured, checked.in_process)
        console.print(f"\nby side of {a.split}\n{rates}", markup=False)
    if past := wrote_on(result.trajectories):
        console.print(f"wrote on behind a stop sequence: {past[0]} of {past[1]} episodes", markup=False)
    if result.duplicates is not None and (said := result.duplicates.message()):
        console.print(said, markup=False)
    console.print(_speed(result, time.perf_counter() - start), soft_wrap=True)
    return measured


def _tasks(a: argparse.Namespace) -> tuple[list[Task], Split | None]:
    """What to play, and the split it comes from, if one was named."""
    if not a.split:
        return _first(load_tasks(a.tasks), a.limit, a.env), None
    if a.limit:
        raise EvaluateError("--limit would cut a side of --split short: leave one of them out")
    split = apply_lock(load_tasks(a.tasks), Path(a.split).expanduser(), allow_outcome=True)
    return [task for side in split.sides.values() for task in side], split


def _in_process(a: argparse.Namespace, tasks: Sequence[Task]) -> frozenset[str]:
    """Ids of the tasks that are played and not counted: what their judges say can be forged."""
    if a.allow_in_process_judges:
        return frozenset()
    return frozenset(task.id for task in tasks if task.judge_use is JudgeUse.IN_PROCESS)


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
        console.print(f"excluded, {count} times: {message}", markup=False)
    for task, commands in m.losses.items():
        for command, count in commands.items():
            console.print(f"sandbox lost, {count} times: {task}: {command or '(while it was graded)'}", markup=False)


def _speed(result: RolloutResult, seconds: float) -> str:
    timing = result.timing
    parts = (
        ("model", timing.model_seconds),
        ("sandbox", timing.sandbox_seconds),
        ("overhead", timing.overhead_seconds),
    )
    per_turn = ", ".join(f"{name} {1000 * spent / max(1, timing.turns):.1f} ms" for name, spent in parts)
    return f"{seconds:.1f} s; per turn: {per_turn}\n"


def _arms(a: argparse.Namespace, cap: int, budget: int | None) -> dict[str, Sampling]:
    """Decode settings by name: `sampled` (one temperature) or `T=0.7`, and `greedy`."""
    temperatures = a.temperature if a.temperature is not None else ([] if a.greedy else [1.0])
    arms = {}
    drawn = [t for t in dict.fromkeys(temperatures) if t > 0]
    for t in drawn:
        arms["sampled" if len(drawn) == 1 else f"T={t:g}"] = Sampling(t, cap, budget)
    if a.greedy or 0 in temperatures:
        if a.samples > 1:
            raise EvaluateError("--samples above 1 with greedy decoding plays the same episode again: leave one out")
        arms["greedy"] = Sampling(0.0, cap, budget)
    return arms


def _default_folder(named: PolicyName) -> Path:
    return Path("runs") / f"eval-{named.short}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"


def _manner(a: argparse.Namespace, named: PolicyName) -> Manner:
    """How the policy is spoken to; what `a` leaves open is put into it, as the record shall have it.

    Raises:
        ValueError: The policy's card cannot be read.
    """
    manner = manner_of(
        card_of(named),
        env=a.env,
        prompt_style=a.prompt_style,
        tools=None if a.no_tools is None else not a.no_tools,
        revise=a.revise,
        max_turns=a.max_turns,
        max_turn_tokens=a.max_tokens,
        keep_observations=a.keep_observations,
        max_episode_tokens=a.max_episode_tokens,
    )
    a.env, a.no_tools, a.revise = manner.env, not manner.tools, manner.revise
    a.max_turns, a.max_tokens = manner.max_turns, manner.max_turn_tokens
    a.keep_observations, a.max_episode_tokens = manner.keep_observations or 0, manner.max_episode_tokens or 0
    return manner


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"true or false, not {text!r}")
    return text == "true"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m trainers.evaluate",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--model",
        default="quickstart",
        help="quickstart | smollm2 | a folder (model, adapter, run) | hub id | oracle | noop | human | "
        "openai:MODEL@URL | vllm:URL[,URL...][#NAME] | NAME[:REST] of your own",
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
    add(
        "--allow_in_process_judges",
        action="store_true",
        help="count tasks whose judge runs the agent's code in its own process, where that code can write the verdict",
    )
    add("--allow_exposed_judges", action="store_true", help=EXPOSED.metadata["help"])
    add("--limit", type=int, default=0, metavar="N", help="the first N tasks only (Mixed-v0: of every set in turn)")
    add(
        "--max_tokens",
        type=int,
        help="cap on one reply; default: what the policy was trained with, else 512 (questions: the set's)",
    )
    add("--output_dir", help="where episodes and figures go (default runs/eval-<model>-<time>)")
    add("--compare", nargs=2, metavar=("A", "B"), help="two evaluation or run folders: paired p-value; plays nothing")
    _environment_arguments(add)
    _policy_arguments(add)
    return parser


def _environment_arguments(add: Callable[..., Any]) -> None:
    """Where episodes are played, and how the policy is spoken to."""
    add("--env", help=f"{' | '.join(environment_ids())}; default: what the policy was trained in, else {DEFAULT_ENV}")
    add(
        "--no_tools",
        type=_switch,
        nargs="?",
        const=True,
        metavar="true|false",
        help="questions: the agent only answers, and runs no commands; default: as in training",
    )
    add("--revise", type=int, metavar="N", help="IFEval: times an answer may be revised; default: as in training")
    add("--sandbox", default="auto", help=EnvArguments.__dataclass_fields__["sandbox"].metadata["help"])
    add("--max_turns", type=int, help="turns per episode; 0 takes each task's own budget; default: as in training")
    add(
        "--max_episode_tokens",
        type=int,
        metavar="N",
        help="tokens of an episode (prompt, replies, whole observations); 0: no budget; default: as in training",
    )
    add("--reward", default="shaped", help="shaped | binary | delta | one of your own")
    add("--agent_errors", default=AGENT_ERRORS.default, help=AGENT_ERRORS.metadata["help"])
    add("--prompt_style", default=AUTO, help="auto (what the policy was made for) | standard | compact | base")
    add(
        "--keep_observations",
        type=int,
        metavar="N",
        help="a prompt shows the last N observations in full and each older one as a line; 0 shows all in full; "
        "default: as in training",
    )
    add("--seed", type=int, default=0, help="of the samples; equal seeds, equal episodes")
    add(
        "--user",
        metavar="openai:MODEL@URL",
        help="ClawGym-v1: a model that reads the agent's messages in the place of the tasks' patterns",
    )


def _policy_arguments(add: Callable[..., Any]) -> None:
    """How many episodes at a time, and what only some policies look at."""
    add("--slots", type=int, default=32, help="episodes in flight at a time (human: one)")
    add(
        "--sandbox_workers",
        type=int,
        default=0,
        help="threads that step environments in lockstep, and lay out tasks; 0 = number of cores",
    )
    add(
        "--rollout_mode",
        choices=[*RolloutMode],
        default=RolloutMode.AUTO,
        help=RolloutFields.__dataclass_fields__["rollout_mode"].metadata["help"],
    )
    add("--dtype", default="float32", help="float32 | bfloat16 | float16 | auto")
    add(
        "--sample_dtype",
        help="sample from a copy in this type, adapters merged; auto: the machine's fastest (default: no copy)",
    )
    add("--device", default="auto", help="auto (a GPU if there is one) | cpu | cuda")
    add("--torch_threads", type=int, default=0, help="0 = one for a small policy, else all cores")
    add("--concurrency", type=int, help="openai, vllm: requests under way at a time (default 8; vllm 64)")
    add("--timeout", type=float, metavar="S", help="openai, vllm: seconds to wait, per attempt (default 300; vllm 600)")
    add(
        "--retries",
        type=int,
        metavar="N",
        help="openai, vllm: attempts after the first, with waits that double up to a minute (default 10: four minutes)",
    )
    add(
        "--request_body",
        metavar="JSON",
        help='openai: more of each request, such as \'{"reasoning_effort": "low"}\'; null leaves a key out, such as '
        "'{\"seed\": null}' (vllm, too)",
    )
    add(
        "--eos_ids", type=int, nargs="+", metavar="ID", help="vllm: ids that end a turn; default: what its folder names"
    )
    add("--tokenizer", help="vllm: folder or hub id; default: what the server serves, if that is a folder here")


if __name__ == "__main__":
    start(main)
