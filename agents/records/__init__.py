"""Trajectories of any format this package knows, told apart by the keys of the first record.

| format | file |
|---|---|
| `turngym` | our own, token for token |
| `fieldnotes` | `trajectories.jsonl`, one episode a line |
| `bundle` | `trajectory_bundle.jsonl`, one group of episodes a line |
| `retrain` | `emergence/generations.jsonl`, one reply a line |

A format is a row of `FORMATS`. Ours is `agents.trajectory`; the others are read by modules of this folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.records import foreign as fieldnotes
from agents.records import foreign as retrain
from agents.trajectory import RecordError, Trajectory, read_records

Read = Callable[[dict[str, Any]], Iterable[Trajectory]]
"""The episodes of one record."""


@dataclass(frozen=True, slots=True)
class Format:
    """How files of a format are known, read and written.

    Attributes:
        keys: Every record has them.
        reader: What reads the records of one file, in order.
        write: Episodes as records; `None` where the format is only read.
    """

    keys: tuple[str, ...]
    reader: Callable[[], Read]
    write: Callable[[Iterable[Trajectory]], Iterable[dict[str, Any]]] | None = None


FORMATS = {
    "turngym": Format(
        ("prompt_ids", "turns", "task_hash"),
        lambda: lambda record: [Trajectory.from_json(record)],
        lambda episodes: (episode.to_json() for episode in episodes),
    ),
    "bundle": Format(("rollouts", "task_id"), lambda: fieldnotes.from_bundle),
    "fieldnotes": Format(
        ("task_id", "turns", "stopped"), lambda: lambda record: [fieldnotes.from_record(record)], fieldnotes.to_records
    ),
    "retrain": Format(("prompt", "completion", "reward"), lambda: retrain.Reader().read),
}
"""The formats by name; a record is of the first whose keys it has."""


def format_of(record: dict[str, Any]) -> str:
    """The format of a record.

    Raises:
        RecordError: It has the keys of none.
    """
    for name, row in FORMATS.items():
        if all(key in record for key in row.keys):
            return name
    wanted = "; ".join(f"{name}: {', '.join(row.keys)}" for name, row in FORMATS.items())
    raise RecordError(f"is no record of a known format: its keys are {', '.join(record) or 'none'} (needed: {wanted})")


def read_trajectories(path: str | Path, *, allow_cut: bool = False) -> Iterator[Trajectory]:
    """Trajectories of a file in any known format, one at a time.

    Args:
        path: The file; the first record decides about its format.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.

    Raises:
        RecordError: A line is no record of the file's format; the message names file, line and key.
        OSError: The file cannot be read.
    """
    read: Read | None = None
    kind = ""
    for number, record in read_records(path, allow_cut=allow_cut):
        try:
            if read is None:
                name = format_of(record)
                read, kind = FORMATS[name].reader(), f"no record of the format {name}: "
            yield from read(record)
        except RecordError as error:
            raise RecordError(f"{path}:{number}: not a trajectory ({kind}{error})") from error
