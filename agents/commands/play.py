"""`python -m agents play`: a person is the policy of one episode, which is stored like any other."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from agents.jsonl import RecordError
from agents.policies.human import HumanPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import write_jsonl
from envs.mixed import MixedEnv
from tasks.atomic_file import LONE_SURROGATES
from tasks.sources import load_tasks
from tasks.task import TaskError


def play(args: argparse.Namespace) -> int:
    """Play one episode in the terminal.

    Returns:
        0 if the task was passed, 1 if not, 3 if the machinery failed, 130 after Ctrl-C (nothing is stored).

    Raises:
        RecordError: There is no such task.
        OSError: The file to write to cannot be opened; nothing was played.
    """
    try:
        tasks = load_tasks(args.tasks)
        env = MixedEnv(tasks, args.task, sandbox=args.sandbox)
    except (TaskError, ValueError) as error:
        raise RecordError(str(error)) from error
    task = next(one for one in tasks if args.task in (None, one.id))
    job = Job(task, 0, args.seed)
    with _appending(args.out) if args.out else contextlib.nullcontext() as file:
        try:
            with RolloutEngine(HumanPolicy(), lambda: env, slots=1, workers=1) as engine:
                (episode,) = engine.run([job], Sampling(max_tokens=task.budget.turn_tokens)).trajectories
        except KeyboardInterrupt:
            print("\nleft without a grade", file=sys.stderr)
            return 130
        if file is not None:
            write_jsonl([episode], file)
    print(f"stopped: {episode.stop_reason}")
    for record in episode.assertions:
        print(f"  {record['verdict']:5} {record['name']}")
    if episode.passed is None:
        print(f"agents: {episode.error}", file=sys.stderr)
        return 3
    print(f"{'passed' if episode.passed else 'not passed'}: rate {episode.rate:.3f} after {len(episode.turns)} turns")
    return 0 if episode.passed else 1


@contextlib.contextmanager
def _appending(path: str) -> Iterator[TextIO]:
    """The file, open before anything is played; one that is new and stays empty is removed."""
    new = not Path(path).exists()
    with open(path, "a", encoding="utf-8", errors=LONE_SURROGATES) as file:
        try:
            yield file
        finally:
            if new and file.tell() == 0:
                Path(path).unlink(missing_ok=True)
