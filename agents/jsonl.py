"""Records of a JSONL file, one at a time, each with the line it stands on."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


class RecordError(ValueError):
    """A file holds something else than the records it should; the message names file, line and key."""


def read_records(
    path: str | Path, *, allow_cut: bool = False, warn: Callable[[str], object] = log.warning
) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects of a file with their line numbers (from 1); blank lines are passed over. Nothing is read ahead.

    Args:
        path: The file, UTF-8.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.
        warn: Takes the warning; default: the log.

    Raises:
        RecordError: A line is no JSON object.
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:  # a crash cuts between bytes, also in the middle of a character
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.decode())
            except (ValueError, RecursionError) as error:
                if line.endswith(b"\n"):
                    kind = "UTF-8 text" if isinstance(error, UnicodeDecodeError) else "JSON"
                    raise RecordError(f"{path}:{number}: is no {kind} ({error})") from error
                if not allow_cut:
                    raise RecordError(
                        f"{path}:{number}: the last line is cut: whoever wrote the file stopped in the middle of it. "
                        "The lines before it are whole: remove it, or leave it out with allow_cut=True (--allow-cut of "
                        "python -m agents)"
                    ) from error
                warn(f"{path}:{number}: left out the last line, which is cut: its writer stopped in the middle of it")
                return
            if not isinstance(record, dict):
                raise RecordError(f"{path}:{number}: must be a JSON object, is {type(record).__name__}")
            yield number, record


def check_lengths(place: str, lists: Mapping[str, Sized | None], count: int, what: str) -> None:
    """Every list that is there has an entry for each id of a reply.

    Args:
        place: Stands before the keys in the message.
        lists: By key.
        count: Of the ids.
        what: What the record calls them.

    Raises:
        RecordError: One has more or fewer.
    """
    for key, values in lists.items():
        if values is not None and len(values) != count:
            raise RecordError(f"{place}{key}: has {len(values)} entries for {count} {what}")
