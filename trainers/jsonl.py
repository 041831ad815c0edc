"""JSON lines that survive a crash: whole lines appended and flushed, a torn last line tolerated and cut on resume."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agents.trajectory import RecordError, read_records
from tasks.model import LONE_SURROGATES, atomic_file
from trainers.errors import RunFolderError


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: numpy and torch scalars as numbers, not-finite numbers as `None`, paths as text."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in (sorted(value) if isinstance(value, set | frozenset) else value)]
    if isinstance(value, str | bool | int) or value is None:
        return str(value) if isinstance(value, str) else value
    if hasattr(value, "item") and getattr(value, "size", None) != 0 and not isinstance(value, float):
        return plain(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return str(value)


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as one line and hand it to the operating system at once.

    Raises:
        OSError: It cannot be written whole; the file is then as it was.
    """
    line = (json.dumps(plain(record), ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8", LONE_SURROGATES)
    with open(path, "ab", buffering=0) as file:
        before, written = file.seek(0, os.SEEK_END), 0
        try:
            while written < len(line):
                written += file.write(line[written:])
        except OSError:
            file.truncate(before)  # or the next line would be joined to half of this one
            raise


def read_lines(path: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Records of a file, and a note when its last line was torn by a crash (it is left out).

    A missing file has no records.

    Raises:
        RunFolderError: A line that was written to its end is no JSON object.
    """
    if not path.exists():
        return [], None
    torn: list[str] = []
    try:
        records = [record for _, record in read_records(path, allow_cut=True, warn=torn.append)]
    except RecordError as error:
        raise RunFolderError(str(error)) from error
    return records, torn[0] if torn else None


def cut_lines(path: Path, keep: Callable[[dict[str, Any]], bool], superseded: Path) -> None:
    """Keep the records that `keep` accepts; append the others to `superseded`; drop a torn last line.

    The file is replaced in one step, so a crash leaves the old or the new one.
    """
    records, _ = read_lines(path)
    kept = [r for r in records if keep(r)]
    for record in (r for r in records if not keep(r)):
        superseded.parent.mkdir(parents=True, exist_ok=True)
        append_line(superseded, record)
    if path.exists():
        write_whole(path, "".join(json.dumps(r, ensure_ascii=False) + "\n" for r in kept))


def write_whole(path: Path, text: str) -> None:
    """Write a file so that readers see the old content or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        file.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write one JSON document, whole or not at all."""
    write_whole(path, json_text(value))


def json_text(value: Any) -> str:
    """One JSON document as `write_json` writes it."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
