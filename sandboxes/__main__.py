"""`python -m sandboxes`: what works here, the image, a shell, orphans, conformance.

Exit codes: 0 as wanted, 1 it did not work, 2 refused (a mistake in the command line, or nothing here that could do it),
130 Ctrl-C; `shell` has that of its shell.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sandboxes.cli import Mistake, build, conformance, doctor, shell, sweep
from sandboxes.docker.image import ImageError
from sandboxes.guard import Parser, started
from sandboxes.sandbox import NAMES, SandboxError, SandboxUnavailable


def make_parser() -> argparse.ArgumentParser:
    """The command line; `run` of what it parses is the subcommand's function, which returns the exit code."""
    parser = Parser(prog="python -m sandboxes", description="Sandboxes: where commands run.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, about: str, example: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=about,
            description=about[0].upper() + about[1:] + ".",
            epilog=f"example: python -m sandboxes {example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )

    page = add("doctor", "which backends work on this machine, and what to do about the others", "doctor")
    page.add_argument("--json", action="store_true", help="print one JSON object")
    page.set_defaults(run=lambda a: doctor(as_json=a.json))

    page = add("build", "make the image of the docker backend", "build --offline --tag turngym-shell:test")
    page.add_argument("--tag", help="name of the image (default: TURNGYM_IMAGE, else turngym-shell:bookworm)")
    page.add_argument("--offline", action="store_true", help="without an image registry: debootstrap, then import")
    page.add_argument("--base", help="base image, Debian or Ubuntu (default: debian:SUITE-slim)")
    page.add_argument("--suite", default="bookworm", help="name of the Debian release (default: bookworm)")
    page.add_argument("--host", help="address of the engine (default: the one that the docker backend would use)")
    page.add_argument("--cache", type=Path, metavar="FOLDER", help="archives of the offline builder")
    page.add_argument("--mirror", help="address of a Debian mirror")
    page.add_argument("--network", help="network of the engine during the build, such as host")
    page.set_defaults(run=build)

    page = add(
        "shell",
        "bash in a sandbox: interactive in a terminal, else the lines of stdin one after the other",
        "shell bubblewrap --put ./data --save ./result",
    )
    page.add_argument("backend", nargs="?", default="auto", choices=NAMES, metavar="BACKEND", help=_or(NAMES))
    page.add_argument("--workdir", metavar="PATH", help="absolute path of the workspace inside (default: /workspace)")
    page.add_argument("--put", type=Path, metavar="FOLDER", help="begin with a copy of this folder in the workspace")
    page.add_argument("--save", type=Path, metavar="FOLDER", help="write the workspace into this new folder at the end")
    page.add_argument("--timeout", type=_seconds, metavar="SECONDS", help="of each line of stdin (default: 10)")
    page.set_defaults(run=shell)

    page = add("sweep", "remove what hosts left behind that were killed", "sweep --run nightly-12")
    page.add_argument("--run", dest="run_id", metavar="ID", help="all of this run, whether its hosts live or not")
    page.set_defaults(run=sweep)

    page = add("conformance", "try everything that a backend must hold", "conformance bubblewrap --only files")
    page.add_argument("backend", nargs="?", default="auto", choices=NAMES, metavar="BACKEND", help=_or(NAMES))
    page.add_argument("--only", nargs="+", metavar="NAME", help="these checks, or groups of checks")
    page.add_argument("--list", action="store_true", help="print the checks, and run none")
    page.add_argument("--json", action="store_true", help="print one JSON object")
    page.set_defaults(run=conformance)
    return parser


def _or(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]} (default: {words[0]})"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise ValueError(text)
    return seconds


_seconds.__name__ = "number of seconds above 0"  # argparse shows it


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    started()
    options = make_parser().parse_args(argv)
    try:
        return int(options.run(options))
    except (Mistake, SandboxUnavailable) as error:
        print(f"sandboxes: {error}", file=sys.stderr)
        return 2
    except (SandboxError, ImageError) as error:
        print(f"sandboxes: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader left (`| head`): no error of ours, and nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = 0
    sys.exit(code)
