"""What the command lines of all five packages share: how they refuse, and Ctrl-C while they start.

A refusal is `COMMAND: what is wrong and what to do` on standard error (`tasks: ...`, `trainers.grpo: ...`), with exit
code 2.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses arguments as the commands refuse everything else; its subcommands' parsers do, too."""

    def error(self, message: str) -> NoReturn:
        """Show the usage and the complaint; ends the program with exit code 2."""
        self.print_usage(sys.stderr)
        command, _, _ = self.prog.removeprefix("python -m ").partition(" ")
        self.exit(2, f"{command}: {message} (--help lists the arguments)\n")


def add_command(
    commands: Any, name: str, about: str, run: Callable[[argparse.Namespace], int], *, description: str, example: str
) -> argparse.ArgumentParser:
    """Add a command to what `add_subparsers` returned; `run` of what is parsed is its function.

    Args:
        commands: What `Parser.add_subparsers` returned.
        name: The command.
        about: One line of the list of commands.
        run: Takes what was parsed, returns the exit code.
        description: The head of its help.
        example: A whole command line, for the foot of its help.
    """
    command: argparse.ArgumentParser = commands.add_parser(
        name,
        help=about,
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.set_defaults(run=run)
    return command


def leave_with(main: Callable[[], int]) -> NoReturn:
    """Run a command line and end the process with its exit code.

    A reader that has seen enough (`| head`) is no error of ours. Ctrl-C is one line and exit code 130.
    """
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left in the buffer has nowhere to go
        code = 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)


def leave_when_interrupted() -> None:
    """From a package's `__init__`: until `started`, Ctrl-C ends `python -m PACKAGE...` with one line and exit code 130.

    Its imports take seconds. An exception among them would be shown as a traceback, or be caught by what is imported.
    """
    mine = sys.argv[:1] == ["-m"]  # so it reads while the package of the command is imported
    if (
        mine
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ):
        signal.signal(signal.SIGINT, _leave)


def started() -> None:
    """The command itself begins: Ctrl-C is an exception again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(*_: object) -> None:
    os.write(2, b"interrupted while it was starting\n")
    os._exit(130)
