"""`python -m tasks`: list, show, prove, grade, write, import, export, count, split and synthesise tasks."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sandboxes.guard import leave_with, started
from tasks.cli import parser
from tasks.model import TaskError, counted


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit code: 0 all well, 1 `check` found a broken task or file, `grade` a fail or `export` a
        task that it left out, 2 a refusal: files that cannot be read as tasks, a command that makes no sense, a sandbox
        that is missing; 3 `grade` came to no verdict.
    """
    started()
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except TaskError as error:
        print(f"tasks: {error}", file=sys.stderr)
        print(f"{counted(len(error.problems), 'problem')}, nothing was done", file=sys.stderr)
        return 2


if __name__ == "__main__":
    leave_with(run)
