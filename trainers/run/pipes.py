"""Output whose reader may go away (`... | head`, a closed terminal): no traceback, and a run in progress goes on.

What a command makes is in its folder; what it prints is for whoever looks. Without this, the first line after the
reader left ended a training of hours, without a word. SIGPIPE itself stays ignored: sandboxes are pipes, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO


class Forgiving:
    """A text stream that writes into nothing once its reader is gone; else the stream that it is made of."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """As the stream's own."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._lose()
            return len(text)

    def flush(self) -> None:
        """As the stream's own."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._lose()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _lose(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())  # takes what is still buffered, at exit
        os.close(nowhere)


def start(main: Callable[[], int]) -> NoReturn:
    """Run a command as a program: leave with its exit code, whoever reads what it prints."""
    sys.stdout, sys.stderr = Forgiving(sys.stdout), Forgiving(sys.stderr)
    try:
        code = main()
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
