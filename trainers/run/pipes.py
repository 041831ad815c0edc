"""Output whose reader may go away (`... | head`, a closed terminal): no traceback, and a run in progress goes on.

What a command makes is in its folder; what it prints is for whoever looks. Without this, the first line after the
reader left ended a training of hours, without a word. SIGPIPE itself stays ignored: sandboxes are pipes, too.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TextIO

from sandboxes.guard import missing_extra, started


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


def start(main: Callable[[], int] | str) -> NoReturn:
    """Run a command as a program: leave with its exit code, whoever reads what it prints.

    Args:
        main: The command, or the name of the module whose `main` it is. A module that takes seconds to import, or that
            needs the extra `train`, gives its name before its other imports: what stops those ends in one line, too.
    """
    sys.stdout, sys.stderr = Forgiving(sys.stdout), Forgiving(sys.stderr)
    try:
        command = importlib.import_module(main).main if isinstance(main, str) else main
        started()
        code = command()
    except ModuleNotFoundError as error:
        needed = missing_extra(error)
        if needed is None:
            raise
        print(f"{_command(main)}: {needed}", file=sys.stderr)
        code = 2
    except PermissionError as error:
        print(f"{_command(main)}: {error.filename}: {error.strerror}: check its permissions", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def _command(main: Callable[[], int] | str) -> str:
    """The module that was started, as it is typed after `python -m`."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return main if isinstance(main, str) else spec.name if spec is not None else Path(sys.argv[0]).name
