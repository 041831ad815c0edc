"""A disk that is full: told apart from other errors, and said in one line with how much is missing."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from trainers.run.checkpoints import Checkpoint

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
        if written and any(words in str(error) for words in _WORDS):
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
    checkpoint = Checkpoint.newest_whole(folder)
    on = f"goes on from step {checkpoint.step}" if checkpoint else "starts over: there is no checkpoint yet"
    return f"the disk of {folder} is full: {missing(folder, needed)}. Make room, then --resume {on}"
