"""An output folder that is taken: refused, moved out of the way, or locked against a second writer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from trainers.run.jsonl import RunFolderError

LOCK = ".lock"
MARKS = ("tasks.lock", "metrics.jsonl")
"""A folder with one of these is a run folder."""
FIRST_MADE = {"trajectories", "held_out", LOCK}
"""What a run folder has before it has anything else."""
OCCUPIED = "go on with --resume, start anew with --overwrite (the old run is kept), or choose another --output_dir"


def replace_run(path: Path) -> Path | None:
    """Move a run folder out of the way, whole; returns where to, `None` where nothing was.

    Raises:
        RunFolderError: What is there is no run folder, is written by another process, or cannot be moved.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    refuse_occupied(path, hint=OCCUPIED, runs_too=False)
    os.close(lock_folder(path))
    real = path.resolve()
    number = 1
    while (target := real.with_name(f"{real.name}.replaced-{number}")).exists():
        number += 1
    try:
        real.rename(target)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be moved to {target} ({error.strerror}): move it by hand") from error
    return target


def refuse_occupied(path: Path, *, hint: str, runs_too: bool = True) -> None:
    """Refuse a folder that holds something.

    Args:
        path: The folder, or where it would be.
        hint: What to do.
        runs_too: Also where it is a run folder; without it only where it is something else.

    Raises:
        RunFolderError: It is occupied, or it is a file.
    """
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file, not a folder: choose another --output_dir")
    content = sorted(p.name for p in path.iterdir()) if path.exists() else []
    if content and not runs_too:
        if any((path / name).is_file() for name in MARKS) or set(content) <= FIRST_MADE:
            return
        raise RunFolderError(
            f"{path} holds no run ({len(content)} entries, such as {content[0]}), and --overwrite replaces runs only: "
            "choose another --output_dir"
        )
    if content:
        raise RunFolderError(f"{path} is occupied ({len(content)} entries, such as {content[0]}): {hint}")


def lock_folder(path: Path) -> int:
    """A lock on a run folder, held until it is closed or the process ends, however that comes about.

    Raises:
        RunFolderError: Another process holds it.
    """
    handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the process, so that no child of it holds it on
    except OSError as error:
        os.close(handle)
        raise RunFolderError(
            f"{path}: another process writes this run; wait for it, end it, or choose another --output_dir"
        ) from error
    return handle
