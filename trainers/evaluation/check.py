"""Whether an evaluation can be made: its policy, tasks, decode settings and sandbox, before anything is loaded."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from agents.models.card import ModelCard, find_card
from agents.policies.opening import PolicyKind, PolicyName, card_of, read_name
from agents.policy import Sampling
from agents.users import read_user
from envs.clawgym import ClawGymEnv
from envs.mixed import kind_of_env
from envs.questions import examples
from envs.registry import environment, takes
from envs.sandboxed import ExposedJudge, refuse_exposed
from sandboxes import open_sandbox
from sandboxes.sandbox import NAMES
from tasks.endpoints.chat import Price, read_body, read_price
from tasks.images import refuse_missing_images
from tasks.judges import JudgeUse
from tasks.model import TaskError
from tasks.place import refuse_unplaceable
from tasks.sources import load_tasks
from tasks.sources.questions import Coverage, self_test
from tasks.splits import Split, apply_lock
from tasks.task import Task
from trainers.evaluation.arguments import DEFAULT_TASKS, build_parser, check_arguments, check_body
from trainers.rollouts.manner import Manner, manner_of
from trainers.run.machine import settings_of, unfit_task
from trainers.run.tasks import Judges, draw_shots

DEFAULT_CAP = 512


class EvaluateError(ValueError):
    """An argument that cannot work; one line for a person."""


@dataclass(frozen=True, slots=True)
class Checked:
    """An evaluation whose arguments fit together: no policy is loaded, and nothing is written yet.

    Attributes:
        named: The policy.
        price: Of tokens; `None` where nobody asked for the cost.
        body: More of each request, of a policy behind an endpoint.
        manner: How the policy is spoken to.
        settings: Arguments that only some environments take.
        user: The model that answers as the tasks' user; `None`: their own rules do.
        second: The model that takes over what is stuck; `None`: none does.
        tasks: What is played, of `split` where one was named.
        judges: What was left out.
        in_process: Ids of tasks that are played and not counted: what their judges say can be forged.
        arms: Decode settings by name.
        coverage: What the gold self-test found; `None` where no task is a question.
        backend: The sandbox that was opened and works.
        images: Ids of the images in which it plays the tasks, by name.
    """

    named: PolicyName
    price: Price | None
    body: dict[str, Any]
    manner: Manner
    settings: dict[str, Any]
    user: PolicyName | None
    second: PolicyName | None
    tasks: list[Task]
    judges: Judges
    split: Split | None
    in_process: frozenset[str]
    arms: dict[str, Sampling]
    coverage: Coverage | None
    backend: str
    images: Mapping[str, Sequence[str]]


def check(a: argparse.Namespace) -> Checked:
    """Everything that needs no policy; what `a` leaves open is put into it, as the record shall have it."""
    if a.env is not None:
        try:
            environment(a.env)
        except ValueError as error:
            raise EvaluateError(f"--env {a.env}: {error}") from error
    named = read_name(a.model)
    try:
        check_arguments(a, build_parser(), named)
        price = read_price(a.price)
        body = read_body(a.request_body)
        check_body(body, a)
        manner = settle(a, card_of(named))
        settings = settings_of(manner)
    except ValueError as error:
        raise EvaluateError(str(error)) from error
    if a.user is not None and not takes(environment(a.env), "user"):
        raise EvaluateError(f"--user: nobody answers in {a.env}; --env ClawGym-v1 has a user")
    user = None if a.user is None else read_user(a.user)
    second = None if a.escalate is None else read_name(a.escalate)
    if named.kind is PolicyKind.HUMAN:
        a.slots = 1
    if a.tasks and not all(a.tasks):
        raise EvaluateError("--tasks: is empty; name a source of tasks, or leave it out")
    a.tasks = ",".join(a.tasks) if a.tasks else environment(a.env).default_tasks or DEFAULT_TASKS
    judges = Judges(in_process=None, shared=a.allow_shared_judges, network=a.verifier_network)
    loaded, split = _tasks(a)
    if not (tasks := list(judges.keep(tuple(loaded)))):
        raise EvaluateError(f"--tasks {a.tasks}: no task to play{judges.reason()}")
    if why := unfit_task(a.env, tasks):
        raise EvaluateError(why)
    shown = {question for question, _ in manner.shots}
    if seen := [task.id for task in tasks if task.intent in shown]:
        raise EvaluateError(
            f"--shots: {seen[0]} is played, and stands solved before each question; --shots_from must name the "
            "training split"
        )
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
    backend, images = _check_machine(a, named, tasks)
    apart = _in_process(a, tasks)
    return Checked(
        named, price, body, manner, settings, user, second, tasks, judges, split, apart, arms, coverage, backend, images
    )


def _check_machine(
    a: argparse.Namespace, named: PolicyName, tasks: Sequence[Task]
) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Refuse a sandbox or a device that is none, is not here, or lets judges be forged.

    Returns:
        The sandbox's name, and the ids of its images.
    """
    if a.sandbox not in NAMES:
        raise EvaluateError(f"--sandbox {a.sandbox}: one of {', '.join(NAMES)}")
    if named.kind is PolicyKind.WEIGHTS:
        import torch  # slow, and only weights in this process need it

        try:
            torch.empty(0, device="cpu" if a.device == "auto" else a.device)
        except (RuntimeError, AssertionError) as error:
            why = str(error).splitlines()[0]
            raise EvaluateError(f"--device {a.device}: {why}; auto takes what is here") from error
    with open_sandbox(a.sandbox) as sandbox:
        try:
            refuse_unplaceable(tasks, sandbox.backend, a.verifier_network)
            images = refuse_missing_images(tasks, sandbox.name)
            refuse_exposed(tasks, sandbox, a.allow_exposed_judges)
        except (TaskError, ExposedJudge) as error:
            raise EvaluateError(f"--sandbox {a.sandbox}: {error}") from error
        return sandbox.name, images


def _tasks(a: argparse.Namespace) -> tuple[list[Task], Split | None]:
    """What to play, and the split it comes from, if one was named."""
    if not a.split:
        return _first(load_tasks(a.tasks), a.limit, a.env), None
    if a.limit:
        raise EvaluateError("--limit would cut a side of --split short: leave one of them out")
    split = apply_lock(load_tasks(a.tasks), Path(a.split).expanduser(), allow_outcome=True)
    return [task for side in split.sides.values() for task in side], split


def _shots(a: argparse.Namespace, card: ModelCard) -> tuple[tuple[str, str], ...] | None:
    """The examples that were asked for; `None` where nobody asked.

    Raises:
        EvaluateError: Nobody says where they come from, or there are not so many.
    """
    if a.shots is None and a.shots_from is None:
        return None
    if a.shots == 0:
        return ()
    folder = Path(a.shots_from or "").expanduser()
    cards = [find_card(path) for path in (folder, folder / "best")] if a.shots_from else [card]
    other = next((found for found in cards if found is not None and found.shots), None)
    if a.shots_from is None or other is not None:
        known = () if other is None else other.shots
        if len(known) < (a.shots or 1):
            raise EvaluateError(
                f"--shots {a.shots}: the policy in {a.shots_from or a.model} was shown {len(known)} examples in "
                "training; --shots_from SOURCE draws others from the training split"
            )
        return known[: a.shots]
    if a.shots is None:
        raise EvaluateError(f"--shots_from {a.shots_from}: --shots says how many examples to draw there")
    return examples(draw_shots(load_tasks(a.shots_from), a.shots, a.seed))


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


def _arms(a: argparse.Namespace, cap: int, budget: int | None) -> dict[str, Sampling]:
    """Decode settings by name: `sampled` (one temperature) or `T=0.7`, and `greedy`."""
    temperatures = a.temperature if a.temperature is not None else ([] if a.greedy else [1.0])
    arms = {}
    drawn = [t for t in dict.fromkeys(temperatures) if t > 0]
    for t in drawn:
        try:
            sampling = Sampling(t, cap, budget, a.top_p, a.top_k)
        except ValueError as error:
            raise EvaluateError(f"--{error}") from error
        arms["sampled" if len(drawn) == 1 else f"T={t:g}"] = sampling
    if not drawn and (a.top_p, a.top_k) != (1.0, 0):
        raise EvaluateError("--top_p and --top_k do nothing with greedy decoding alone: add --temperature")
    if a.greedy or 0 in temperatures:
        if a.samples > 1:
            raise EvaluateError("--samples above 1 with greedy decoding plays the same episode again: leave one out")
        arms["greedy"] = Sampling(0.0, cap, budget)
    return arms


def settle(a: argparse.Namespace, card: ModelCard) -> Manner:
    """How a policy with this card is spoken to; what `a` leaves open is put into it, as the record shall have it."""
    manner = manner_of(
        card,
        env=a.env,
        prompt_style=a.prompt_style,
        tools=None if a.no_tools is None else not a.no_tools,
        revise=a.revise,
        max_turns=a.max_turns,
        max_turn_tokens=a.max_tokens,
        keep_observations=a.keep_observations,
        max_episode_tokens=a.max_episode_tokens,
        protocol=a.protocol,
        shots=_shots(a, card),
    )
    a.env, a.no_tools, a.revise = manner.env, not manner.tools, manner.revise
    a.max_turns, a.max_tokens = manner.max_turns, manner.max_turn_tokens
    a.keep_observations, a.max_episode_tokens = manner.keep_observations or 0, manner.max_episode_tokens or 0
    return manner
