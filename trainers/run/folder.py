"""An output folder: free, writable, locked, full."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import struct
from pathlib import Path

from tasks.model import SUFFIX
from trainers.errors import RunFolderError

# -- An output folder that is taken: refused, moved out of the way, or locked against a second writer -----------------

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


_FLOCK = "hhqqi0q"
"""The kernel's `struct flock`: type, whence, start, length, process."""


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock on a run folder; it is looked at and not taken."""
    try:
        handle = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        return bool(struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, asked))[0] != fcntl.F_UNLCK)
    finally:
        os.close(handle)


# -- Whether an output folder can be made: known before a model loads, not after --------------------------------------


def refuse_unwritable(folder: Path) -> None:
    """Refuse a folder that cannot be made or written; nothing is made yet.

    Raises:
        RunFolderError: It cannot; the message names the folder that is in the way.
    """
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not there.is_dir():
        raise RunFolderError(f"{folder}: {there} is a file, not a folder: choose another --output_dir")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RunFolderError(f"{folder}: {there} cannot be written by you: choose another --output_dir")


# -- A disk that is full: told apart from other errors, and said in one line with how much is missing -----------------

_NUMBERS = (errno.ENOSPC, errno.EDQUOT)
_WORDS = ("No space left on device", "os error 28", "Disk quota exceeded", "inline_container", "PytorchStreamWriter")
"""What writers say that give no error number: safetensors and its tokenizers in Rust, torch in C++."""
_MEGA = 1e6


def disk_full(error: BaseException | None) -> bool:
    """Whether an error, or one behind it, comes of a disk that is full."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _NUMBERS:
            return True
        written = isinstance(error, OSError | RuntimeError) or type(error).__name__ == "SafetensorError"
        plain = type(error) is Exception  # what `tokenizers` raises
        if (written or plain) and any(words in str(error) for words in _WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def missing(folder: Path, needed: int) -> str:
    """How much space is missing in a folder for `needed` bytes, in words."""
    free = shutil.disk_usage(folder).free
    short = max(needed - free, 0)
    there = f"{needed / _MEGA:.1f} MB are needed and {free / _MEGA:.1f} MB are free"
    return f"about {short / _MEGA:.1f} MB are missing ({there})" if short else f"space was missing, now {there}"


def full_line(folder: Path, needed: int) -> str:
    """What to say of a run that ended because its disk is full.

    Args:
        folder: Of the run; what was half written is removed already.
        needed: Bytes that the next checkpoint and the weights of a new best take.
    """
    from trainers.checkpoint import Checkpoint  # takes a second, and nodes of a cluster only look at locks

    checkpoint = Checkpoint.newest_whole(folder)
    on = f"goes on from step {checkpoint.step}" if checkpoint else "starts over: there is no checkpoint yet"
    return f"the disk of {folder} is full: {missing(folder, needed)}. Make room, then --resume {on}"
