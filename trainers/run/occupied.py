"""An output folder that is taken: refused, moved out of the way, or locked against a second writer."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from tasks.atomic_file import SUFFIX
from trainers.errors import RunFolderError

LOCK = ".lock"
MARKS = ("tasks.lock", "metrics.jsonl")
"""A folder with one of these is a run folder."""
FIRST_MADE = {"trajectories", "held_out", LOCK}
"""What a run folder has before it has anything else."""
REPLACES = "--overwrite replaces runs only"
GOES_ON = "--resume goes on with runs only"
OCCUPIED = "go on with --resume, start anew with --overwrite (the old run is kept), or choose another --output_dir"


def refuse_no_run(path: Path, *, how: str) -> None:
    """Refuse a folder that holds something that is no run, before what looks like a run's is cut, moved or removed.

    Args:
        path: The folder, or where it would be.
        how: What was going to be done there, and to what.

    Raises:
        RunFolderError: It holds no run, or it is a file.
    """
    content = _content(path)
    foreign = [name for name in content if name not in FIRST_MADE and not _unfinished_lock(name)]
    if foreign and not any((path / name).is_file() for name in MARKS):
        raise RunFolderError(
            f"{path} holds no run ({len(content)} entries, such as {foreign[0]}), and {how}: choose another "
            "--output_dir"
        )


def replace_run(path: Path) -> Path | None:
    """Move a run folder out of the way, whole; returns where to, `None` where nothing was.

    Raises:
        RunFolderError: What is there is no run folder, is written by another process, or cannot be moved.
    """
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    refuse_no_run(path, how=REPLACES)
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


def refuse_occupied(path: Path, *, hint: str) -> None:
    """Refuse a folder that holds something.

    Args:
        path: The folder, or where it would be.
        hint: What to do.

    Raises:
        RunFolderError: It is occupied, or it is a file.
    """
    if content := _content(path):
        raise RunFolderError(f"{path} is occupied ({len(content)} entries, such as {content[0]}): {hint}")


def _unfinished_lock(name: str) -> bool:
    """What a process that was killed during its first write left."""
    return name.startswith(f"{MARKS[0]}.") and name.endswith(SUFFIX)


def _content(path: Path) -> list[str]:
    """Names of what is in a folder; none where there is no folder."""
    if path.exists() and not path.is_dir():
        raise RunFolderError(f"{path} is a file, not a folder: choose another --output_dir")
    try:
        return sorted(p.name for p in path.iterdir()) if path.exists() else []
    except OSError as error:
        raise RunFolderError(f"cannot read the run folder {path}: {error.strerror}") from error


def lock_folder(path: Path) -> int:
    """A lock on a run folder, held until it is closed or the process ends, however that comes about.

    Raises:
        RunFolderError: Another process holds it, or there can be none.
    """
    try:
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunFolderError(f"cannot write the run folder {path}: {error.strerror}") from error
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of the process, so that no child of it holds it on
    except OSError as error:
        os.close(handle)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise RunFolderError(
                f"{path}: its file system gives no lock ({error.strerror}), so a second writer would go unseen; choose "
                "an --output_dir on another one"
            ) from error
        raise RunFolderError(
            f"{path}: another process writes this run; wait for it, end it, or choose another --output_dir"
        ) from error
    return handle
