"""Trajectories of any format this package knows, told apart by the keys of the first record.

| format | file |
|---|---|
| `turngym` | our own, token for token |
| `fieldnotes` | `trajectories.jsonl`, one episode a line |
| `bundle` | `trajectory_bundle.jsonl`, one group of episodes a line |
| `retrain` | `emergence/generations.jsonl`, one reply a line |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

from agents.jsonl import RecordError, read_records
from agents.records import fieldnotes, retrain
from agents.trajectory import Trajectory


class Format(StrEnum):
    """What a file of trajectories is written in."""

    TURNGYM = "turngym"
    """`agents.trajectory.write_jsonl`."""
    FIELDNOTES = "fieldnotes"
    """Field-notes `trajectories.jsonl`."""
    BUNDLE = "bundle"
    """Field-notes `trajectory_bundle.jsonl`."""
    RETRAIN = "retrain"
    """Retrain `emergence/generations.jsonl`, and its textpolicy variant."""


_MARKS = {
    Format.TURNGYM: ("prompt_ids", "turns", "task_hash"),
    Format.BUNDLE: ("rollouts", "task_id"),
    Format.FIELDNOTES: ("task_id", "turns", "stopped"),
    Format.RETRAIN: ("prompt", "completion", "reward"),
}
"""Keys that a record of the format has."""


def format_of(record: dict[str, Any]) -> Format:
    """The format of a record.

    Raises:
        RecordError: It has the keys of none.
    """
    for name, keys in _MARKS.items():
        if all(key in record for key in keys):
            return name
    wanted = "; ".join(f"{name}: {', '.join(keys)}" for name, keys in _MARKS.items())
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
    read: Callable[[dict[str, Any]], Iterable[Trajectory]] | None = None
    name: Format | None = None
    for number, record in read_records(path, allow_cut=allow_cut):
        try:
            if read is None:
                name = format_of(record)
                read = _reader(name)
            yield from read(record)
        except RecordError as error:
            kind = "" if name is None else f"no record of the format {name}: "
            raise RecordError(f"{path}:{number}: not a trajectory ({kind}{error})") from error


def _reader(name: Format) -> Callable[[dict[str, Any]], Iterable[Trajectory]]:
    match name:
        case Format.TURNGYM:
            return lambda record: [Trajectory.from_json(record)]
        case Format.FIELDNOTES:
            return lambda record: [fieldnotes.from_record(record)]
        case Format.BUNDLE:
            return fieldnotes.from_bundle
        case Format.RETRAIN:
            return retrain.Reader().read
