"""What the turns of a run's training episodes were credited with, in small files of their own.

A trainer writes episodes as soon as they are played, and knows their advantages only when the whole step is scored. So
`trajectories/step_000012.jsonl` gets an `advantages/step_000012.json`: one list of `[task, attempt, seed, advantages]`.
The first three say which episode it is, whatever the order of either file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from agents.trajectory import RecordError, Trajectory
from tasks.model import atomic_file

FOLDER = "advantages"


class EpisodeKey(NamedTuple):
    """Which episode of a step: no two have the same."""

    task: str
    attempt: int
    seed: int | None


Advantages = Mapping[EpisodeKey, Sequence[float | None]]
"""By episode: of each turn the mean advantage of its trained tokens; `None` for a turn without one."""


def key_of(episode: Trajectory) -> EpisodeKey:
    """The key of an episode."""
    return EpisodeKey(episode.task_id, episode.attempt, episode.seed)


def advantages_file(run: Path, episodes: Path) -> Path:
    """The file that goes with a file of a run's episodes."""
    return run / FOLDER / f"{episodes.stem}.json"


def write_advantages(path: Path, advantages: Advantages) -> None:
    """Write the file, whole or not at all; numbers keep four digits."""
    rows = [[*key, [None if v is None else float(f"{v:.4g}") for v in values]] for key, values in advantages.items()]
    with atomic_file(path, sync=False) as file:
        json.dump(rows, file)


def read_advantages(path: Path) -> dict[EpisodeKey, list[float | None]]:
    """The advantages in a file; none where there is no such file.

    Raises:
        RecordError: It holds something else.
    """
    if not path.exists():
        return {}
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
        found = {EpisodeKey(*row[:3]): row[3] for row in rows}
        if not all(isinstance(value, int | float | None) for values in found.values() for value in values):
            raise ValueError("an advantage is no number")
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise RecordError(f"{path}: not a list of [task, attempt, seed, advantages] ({error})") from error
    return found


def put_in(episode: Trajectory, advantages: Advantages) -> None:
    """Note each turn's advantage with it, where the episode has some."""
    values = advantages.get(key_of(episode), ())
    if len(values) == len(episode.turns):
        for turn, value in zip(episode.turns, values, strict=True):
            if value is not None:
                turn.notes["advantage"] = value
