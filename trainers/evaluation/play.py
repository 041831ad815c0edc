"""An evaluation, played: the policy opened, each decode setting measured and written down."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.chat_tools import protocol_of, template_of
from agents.escalate import Continued, stuck_turns
from agents.policies.openai import OpenAIPolicy
from agents.policies.opening import Actor, PolicyKind, PolicyName, open_policy
from agents.policies.scripted import ByteTokenizer
from agents.policy import Policy, PolicyError, Sampling, abilities
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutResult, RolloutState
from agents.rollout.engine import UNCOUNTED, UNCUT
from agents.rollout.progress import RolloutProgress, Timing
from agents.trajectory import Trajectory, attempt_of
from agents.users import ModelUser
from envs.conversation import ConversationEnv
from envs.protocol import DEFAULT_PROTOCOL
from envs.registry import environment
from sandboxes import SandboxPool
from tasks.assertions.grade import reset_timings, timing_table
from tasks.model import counted
from trainers.answers import answers_of
from trainers.evaluation.arguments import JUDGING
from trainers.evaluation.check import Checked, EvaluateError, check
from trainers.evaluation.escalation import SUFFIX, Escalation, costs, merged, unlike
from trainers.evaluation.folder import EvaluationRecord
from trainers.evaluation.resume import jobs_of, left_to_play, together
from trainers.evaluation.shown import introduce, show, show_answers, show_episodes, speed, usage_line
from trainers.evaluation.tokens import count
from trainers.measure import Measurement, measure, side_rates, wrote_on
from trainers.rollouts.manner import AUTO, SPOKEN, differences, insist
from trainers.run.folder import refuse_unwritable
from trainers.run.machine import AHEAD, set_threads


def evaluate(a: argparse.Namespace, console: Console) -> int:
    """Measure what the arguments say; returns the exit code.

    Raises:
        EvaluateError: An argument cannot work.
        TaskError, ModelError, SandboxUnavailable, RunFolderError: What they name cannot be used.
        PolicyError: The engine failed.
    """
    checked = check(a)
    folder = Path(a.output_dir) if a.output_dir else _default_folder(checked.named)
    refuse_unwritable(folder)
    record = EvaluationRecord(folder, resume=a.resume)
    actor = _open_actor(a, checked)
    user = None if checked.user is None else open_policy(checked.user)
    second = None if checked.second is None else _open_second(a, checked.second)
    if a.max_episode_tokens and not abilities(actor.policy).own_ids:
        raise EvaluateError(f"--max_episode_tokens {a.max_episode_tokens}: {UNCOUNTED}")
    if any(arm.truncated for arm in checked.arms.values()) and not abilities(actor.policy).truncates:
        raise EvaluateError(f"--top_p, --top_k: {UNCUT}")
    make = _make_env(a, checked, user)
    try:
        made = make()
        prompt_hash = made.prompt_hash
        if (spoken := protocol_of(made)).tools:
            template_of(actor.policy.tokenizer, actor.policy.eos_ids, spoken)  # refuses one that carries no calls
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    other = list(differences(actor.card, a.env, make))
    if other and all(getattr(a, name) == AUTO for name in SPOKEN):
        raise EvaluateError(insist(actor.card, other))
    images = record.begin(
        vars(a),
        checked.tasks,
        in_process=checked.in_process,
        left_out=checked.judges.left_out(),
        model=actor.source,
        sandbox=checked.backend,
        prompt_style=checked.manner.prompt_style,
        prompt_hash=prompt_hash,
        images=checked.images,
        **({} if checked.manner.protocol == DEFAULT_PROTOCOL else {"protocol": checked.manner.protocol}),
    )
    introduce(a, checked, actor, other, console)
    for line in images:
        console.print(f"warning: {line}", markup=False, soft_wrap=True)
    for why in () if second is None else differences(second.card, a.env, make):
        console.print(f"warning: of {a.escalate}, which takes over what is stuck, {why}", markup=False, soft_wrap=True)
    reset_timings()  # the self-test is no part of what is measured
    boxes = min(a.slots + AHEAD, len(checked.tasks) * a.samples)
    with (
        closing(record),
        closing(actor),
        closing(user) if user else nullcontext(),
        closing(second) if second else nullcontext(),
        SandboxPool(checked.backend, boxes) as sandboxes,
    ):
        make_env = partial(make, sandbox=sandboxes)
        measured = []
        for name in checked.arms:
            of_arm, episodes = _measure_arm(name, a, checked, actor, make_env, record, console)
            measured.append(of_arm)
            if second is not None:
                _escalate_arm(name, a, checked, (actor, second), (of_arm, episodes), make_env, record, console)
    if user is not None and isinstance(user.policy, OpenAIPolicy):
        console.print(f"the user, {usage_line(user.policy.usage)}", markup=False)
    for kind in timing_table():
        console.print(f"check {kind}", markup=False, soft_wrap=True)
    console.print(f"stored in {folder}", markup=False, soft_wrap=True)
    if a.open:
        show_episodes(folder, console)
    return 0 if all(m.graded or m.in_process for m in measured) else 1


def _default_folder(named: PolicyName) -> Path:
    return Path("runs") / f"eval-{named.short}-{datetime.now().strftime('%Y%m%d-%H%M%S')}"


def _open_actor(a: argparse.Namespace, checked: Checked) -> Actor:
    """The policy, loaded."""
    actor = open_policy(
        checked.named, dtype=a.dtype, device=a.device, sample_dtype=a.sample_dtype, tokenizer=a.tokenizer,
        eos_ids=a.eos_ids, concurrency=a.concurrency, timeout=a.timeout, retries=a.retries, extra=checked.body,
    )  # fmt: skip
    if actor.weights is not None:
        set_threads(actor.weights, a.torch_threads)
    return actor


def _open_second(a: argparse.Namespace, named: PolicyName) -> Actor:
    """The policy that takes over what is stuck."""
    second = open_policy(
        named, dtype=a.dtype, device=a.device, sample_dtype=a.sample_dtype, concurrency=a.concurrency,
        timeout=a.timeout, retries=a.retries,
    )  # fmt: skip
    if a.max_episode_tokens and not abilities(second.policy).own_ids:
        raise EvaluateError(f"--max_episode_tokens {a.max_episode_tokens} with --escalate {a.escalate}: {UNCOUNTED}")
    return second


def _make_env(a: argparse.Namespace, checked: Checked, user: Actor | None) -> Callable[..., ConversationEnv]:
    """Opens one environment; takes the sandbox."""
    answers: dict[str, Any] = {} if user is None else {"user": ModelUser(user.policy, a.user)}
    return partial(
        environment(a.env),
        tasks=checked.tasks[:1],
        max_turns=checked.manner.max_turns or None,
        reward=a.reward,
        prompt_style=checked.manner.prompt_style,
        **{name: getattr(a, name) for name in JUDGING},
        **checked.settings,
        **answers,
    )


def _measure_arm(
    name: str,
    a: argparse.Namespace,
    checked: Checked,
    actor: Actor,
    make_env: Callable[[], ConversationEnv],
    record: EvaluationRecord,
    console: Console,
) -> tuple[Measurement, list[Trajectory]]:
    """Play one decode setting, write it down, show it."""
    start = time.perf_counter()
    jobs = jobs_of(checked.tasks, a.samples, a.seed)
    kept, past_timing = record.graded(name), record.timing(name)
    left = left_to_play(jobs, kept, record.path)
    if a.resume:
        there = f"{len(jobs) - len(left)} of {counted(len(jobs), 'episode')}"
        console.print(f"{name}: {there} have a grade already, {len(left)} to play", markup=False)
    try:
        with RolloutProgress(name, console=console) as progress, record.episodes(name, kept) as keep:
            result = play(
                actor.policy, left, checked.arms[name], make_env,
                slots=a.slots, workers=a.sandbox_workers or os.cpu_count() or 1,
                ahead=AHEAD, mode=a.rollout_mode, on_episode=keep, on_round=progress.show,
            )  # fmt: skip
    except (PolicyError, KeyboardInterrupt):
        print(f"trainers.evaluate: {name} is not measured; {record.kept(name)}", file=sys.stderr)
        raise
    finally:
        if isinstance(actor.policy, OpenAIPolicy):
            console.print(usage_line(actor.policy.usage), markup=False)
    result = together(jobs, kept, result, greedy=checked.arms[name].greedy, timing=None if left else past_timing)
    measured = measure(result.trajectories, result.label, checked.in_process)
    tokens = count(result.trajectories, own_ids=_own_ids(actor))
    answers = answers_of(checked.tasks, result.trajectories, a.samples)
    more = {
        "tokens": None if tokens is None else tokens.to_json(checked.price),
        "answers": None if answers is None else answers.to_json(),
    }
    record.add(name, measured, result, actor.policy, more)
    show(console, name, measured, a.samples, checked.tasks)
    if answers is not None:
        show_answers(console, answers, measured)
    if tokens is not None:
        for line in tokens.lines(measured.passed, checked.price):
            console.print(line, markup=False)
    elif checked.price is not None:
        console.print("cost: not known, for nobody counted the tokens", markup=False)
    if checked.split is not None:
        rates = side_rates(checked.split, measured, [*checked.in_process, *checked.judges.left_out()])
        console.print(f"\nby side of {a.split}\n{rates}", markup=False)
    if past := wrote_on(result.trajectories):
        console.print(f"wrote on behind a stop sequence: {past[0]} of {past[1]} episodes", markup=False)
    if result.duplicates is not None and (said := result.duplicates.message()):
        console.print(said, markup=False)
    console.print(speed(result, time.perf_counter() - start), soft_wrap=True)
    return measured, result.trajectories


def _own_ids(actor: Actor) -> bool:
    """Whether ids are the model's own tokens."""
    return abilities(actor.policy).own_ids and not isinstance(actor.policy.tokenizer, ByteTokenizer)


def _escalate_arm(
    name: str,
    a: argparse.Namespace,
    checked: Checked,
    actors: tuple[Actor, Actor],
    alone: tuple[Measurement, list[Trajectory]],
    make_env: Callable[[], ConversationEnv],
    record: EvaluationRecord,
    console: Console,
) -> None:
    """Let the second model go on where a decode setting's episodes got stuck, write it down, show both."""
    (first, second), (without, episodes), arm = actors, alone, f"{name}{SUFFIX}"
    assert checked.second is not None
    watched = stuck_turns(episodes, turns=a.escalate_turns, eta=a.escalate_eta)
    jobs = [job for job in jobs_of(checked.tasks, a.samples, a.seed) if (job.task.id, job.attempt) in watched.stuck]
    kept = [episode for episode in record.graded(arm) if attempt_of(episode) in watched.stuck]
    left = left_to_play(jobs, kept, record.path)
    try:
        with RolloutProgress(arm, console=console) as progress, record.episodes(arm, kept) as keep:
            result = play(
                Continued(second.policy, episodes, watched.stuck), left, checked.arms[name], make_env,
                slots=1 if checked.second.kind is PolicyKind.HUMAN else a.slots,
                workers=a.sandbox_workers or os.cpu_count() or 1,
                ahead=AHEAD, mode=a.rollout_mode, on_episode=keep, on_round=progress.show,
            )  # fmt: skip
    except (PolicyError, KeyboardInterrupt):
        print(f"trainers.evaluate: {arm} is not measured; {record.kept(arm)}", file=sys.stderr)
        raise
    taken = together(jobs, kept, result, greedy=checked.arms[name].greedy).trajectories
    every = merged(episodes, taken)
    measured = measure(every, f"{without.sampling}, stuck episodes to {a.escalate}", checked.in_process)
    tokens = costs(episodes, taken, watched.stuck, own_ids=(_own_ids(first), _own_ids(second)))
    found = Escalation(a.escalate, watched, len(episodes), without, measured, *tokens, unlike(episodes, taken))
    whole = RolloutResult(every, result.timing, result.retries)
    record.add(arm, measured, whole, first.policy, {"escalation": found.to_json()})
    console.print(found.table())
    for line in found.lines():
        console.print(line, markup=False, soft_wrap=True)


def play(
    policy: Policy,
    jobs: Sequence[Job],
    sampling: Sampling,
    make_env: Callable[[], ConversationEnv],
    *,
    slots: int = 32,
    workers: int = 1,
    ahead: int = 0,
    mode: RolloutMode = RolloutMode.AUTO,
    on_episode: Callable[[Trajectory], None] | None = None,
    on_round: Callable[[RolloutState], None] | None = None,
) -> RolloutResult:
    """Play every job; nothing is opened where there is none.

    Raises:
        PolicyError: The engine failed.
    """
    if not jobs:
        return RolloutResult([], Timing())
    slots = min(slots, len(jobs))
    with RolloutEngine(policy, make_env, slots=slots, workers=workers, ahead=ahead, mode=mode) as engine:
        return engine.run(jobs, sampling, on_episode=on_episode, on_round=on_round)
