"""Files that appear whole or not at all, whatever interrupts their writer."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

LONE_SURROGATES = "backslashreplace"
"""How to open a file for JSON (`errors=`): a lone surrogate has no UTF-8, but a form in JSON, and is read back."""
SUFFIX = ".tmp"
"""How the names of unfinished files end; one is left only where its writer was killed."""


@contextmanager
def atomic_file(path: Path, *, sync: bool = True) -> Iterator[TextIO]:
    """A file to write: readers see the old content or the new one, never a part; after an exception the old one.

    Args:
        path: Where it will stand; its folder must be there.
        sync: Wait until it is on the disk, so that it outlives the machine and not only the process.

    Raises:
        OSError: It cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}{SUFFIX}")
    try:
        with open(fresh, "x", encoding="utf-8", errors=LONE_SURROGATES, newline="\n") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
