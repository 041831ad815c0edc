"""The episodes of a file that a command is asked about."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from agents.records import read_trajectories
from agents.trajectory import Trajectory


class UsageError(ValueError):
    """What was asked for is not there."""


def chosen(args: argparse.Namespace) -> Iterator[tuple[int, Trajectory]]:
    """The episodes asked for, with their numbers in the file.

    Raises:
        UsageError: There is none such.
    """
    known: set[str] = set()
    last, found = -1, False
    for last, episode in enumerate(read_trajectories(args.file, allow_cut=args.allow_cut)):
        known.add(episode.task_id)
        if args.task in (None, episode.task_id) and args.episode in (None, last):
            found = True
            yield last, episode
            if args.episode is not None:
                return
    if found:
        return
    if last < 0:
        raise UsageError(f"{args.file} holds no episodes")
    if args.task is not None and args.task not in known:
        some = ", ".join(sorted(known)[:10])
        raise UsageError(f"no episode of task '{args.task}' in {args.file}; it has {some}")
    of_task = f" of task '{args.task}'" if args.task is not None else ""
    raise UsageError(f"there is no episode {args.episode}{of_task}: the numbers are 0 to {last}")
