"""An evaluation that goes on: its arguments, what is left to play, and both parts together as if one process played."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from agents.rollout import Job, RolloutResult
from agents.rollout.progress import Timing
from agents.seeds import derive_seed, find_duplicates
from agents.trajectory import Trajectory, attempt_of
from tasks.task import Task
from trainers.errors import RunFolderError
from trainers.evaluation.arguments import build_parser
from trainers.evaluation.check import EvaluateError
from trainers.evaluation.folder import settings_of

_OF_THIS_CALL = ("output_dir", "resume", "compare", "open", "tasks")
"""Arguments that an evaluation which goes on does not take over as they are."""


def parse(argv: Sequence[str] | None) -> Namespace:
    """The arguments; with `--resume` those of the evaluation in `--output_dir`, and over them what is given.

    Raises:
        EvaluateError: `--resume` without a folder.
        RunFolderError: There is no evaluation in it.
    """
    parser = build_parser()
    given = parser.parse_args(argv)
    if not given.resume:
        return given
    if not given.output_dir:
        raise EvaluateError("--resume goes on with the evaluation in --output_dir: name that folder")
    before = settings_of(Path(given.output_dir))
    known = {name: before[name] for name in vars(given) if name in before and name not in _OF_THIS_CALL}
    parser.set_defaults(**known)
    given = parser.parse_args(argv)
    if given.tasks is None:  # a record has them joined; that of all checkpoints as they were given
        given.tasks = [before["tasks"]] if isinstance(before["tasks"], str) else before["tasks"]
    return given


def jobs_of(tasks: Sequence[Task], samples: int, seed: int) -> list[Job]:
    """Every task `samples` times; each attempt has a seed of its own, derived from `seed`."""
    return [Job(task, k, derive_seed(seed, "evaluate", task.id, k)) for task in tasks for k in range(samples)]


def left_to_play(jobs: Sequence[Job], kept: Sequence[Trajectory], folder: Path) -> list[Job]:
    """Jobs that no episode is there of.

    Raises:
        RunFolderError: An episode is of no job: of another task, content or seed.
    """
    wanted = {(job.task.id, job.attempt): job for job in jobs}
    for episode in kept:
        job = wanted.pop(attempt_of(episode), None)
        if job is None or (episode.task_hash, episode.seed) != (job.task.content_hash, job.seed):
            raise RunFolderError(
                f"{folder}: attempt {episode.attempt} at task {episode.task_id} is none that this evaluation plays "
                "(another task, content or seed): the file of episodes was changed, so start anew in another folder"
            )
    return list(wanted.values())


def together(
    jobs: Sequence[Job],
    kept: Sequence[Trajectory],
    played: RolloutResult,
    *,
    greedy: bool,
    timing: Timing | None = None,
) -> RolloutResult:
    """What was there and what was played, in the order of the jobs, as if one process had played all.

    Args:
        jobs: All of them.
        kept: Of an earlier process.
        played: The others.
        greedy: Nothing was drawn, so attempts are equal by design.
        timing: Of all, where that is known; else the kept episodes' turns, tokens and the seconds of their turns count.
    """
    if not kept:
        return played
    found = {attempt_of(episode): episode for episode in (*kept, *played.trajectories)}
    every = [found[job.task.id, job.attempt] for job in jobs]
    turns = [turn for episode in kept for turn in episode.turns]
    model, sandbox = (sum(getattr(turn, f"{name}_seconds") for turn in turns) for name in ("model", "sandbox"))
    tokens = sum(len(turn.ids) + sum(len(one.ids) for one in turn.candidates) for turn in turns)
    now = played.timing
    timing = timing or Timing(
        wall_seconds=now.wall_seconds + model + sandbox,
        model_seconds=now.model_seconds + model,
        sandbox_seconds=now.sandbox_seconds + sandbox,
        turns=now.turns + len(turns),
        sampled_tokens=now.sampled_tokens + tokens,
    )
    return RolloutResult(every, timing, played.retries, None if greedy else find_duplicates(every))
