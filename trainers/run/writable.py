"""Whether an output folder can be made: known before a model loads, not after."""

from __future__ import annotations

import os
from pathlib import Path

from trainers.errors import RunFolderError


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
