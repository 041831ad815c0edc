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
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Refuses arguments as the commands refuse everything else; its subcommands' parsers do, too."""

    def error(self, message: str) -> NoReturn:
        """Show the usage and the complaint; ends the program with exit code 2."""
        self.print_usage(sys.stderr)
        command, _, _ = self.prog.removeprefix("python -m ").partition(" ")
        self.exit(2, f"{command}: {message} (--help lists the arguments)\n")


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
