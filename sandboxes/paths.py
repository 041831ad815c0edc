"""How the folders of a sandbox are named, where a backend cannot mount them under the names that tasks use."""

from __future__ import annotations

import os
import re


class PathAlias:
    """Rewrites shown paths to real ones on the way in, and real ones to shown ones on the way out.

    Commands and link targets are rewritten on the way in; output, link targets and contents of files on the way out. A
    path that a command puts together at run time is not seen, and a byte count inside the sandbox counts the real path.

    Args:
        shown: Path of the workspace as a task names it, such as `/workspace`.
        real: Where it is.
        others: More (shown, real) pairs, such as the folder for temporary files.
    """

    def __init__(self, shown: str, real: str, others: tuple[tuple[str, str], ...] = ()) -> None:
        self.shown, self.real = shown, real
        pairs = [(os.fsencode(a), os.fsencode(b)) for a, b in ((shown, real), *others) if a != b]
        self._to_real = dict(pairs)
        self._to_shown = [(b, a) for a, b in sorted(pairs, key=lambda pair: -len(pair[1]))]
        names = b"|".join(re.escape(a) for a, _ in sorted(pairs, key=lambda pair: -len(pair[0])))
        self._in = re.compile(rb"(?<![\w.})/-])(?:" + names + rb")(?![\w.-])") if pairs else None

    def inward(self, data: bytes) -> bytes:
        """Replace shown paths by real ones, where they stand as whole paths."""
        return data if self._in is None else self._in.sub(lambda match: self._to_real[match[0]], data)

    def outward(self, data: bytes) -> bytes:
        """Replace real paths by shown ones."""
        for real, shown in self._to_shown:
            data = data.replace(real, shown)
        return data
