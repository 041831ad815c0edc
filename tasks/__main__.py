"""`python -m tasks`: list, show, check and write tasks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from sandboxes.sandbox import Backend
from tasks import cli
from tasks.problems import TaskError, counted


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    spec = "library, library:ID, generated:FAMILY?n=100&seed=0, a YAML file or a folder"
    main = argparse.ArgumentParser(prog="python -m tasks", description="List, show, prove and write tasks.")
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    listing = commands.add_parser("list", help="one line per task", description=f"List tasks. SPEC: {spec}.")
    listing.add_argument("spec", nargs="?", default="library", metavar="SPEC", help="default: library")

    show = commands.add_parser(
        "show",
        help="one task in full",
        description=f"Show one task: request, workspace, assertions, oracle. SPEC: {spec}.",
    )
    show.add_argument("spec", metavar="ID_OR_SPEC", help="id of a library task, or a source")
    show.add_argument("--id", help="which task of the source (default: the first)")
    show.add_argument("--yaml", action="store_true", help="print it as a task file")

    check = commands.add_parser(
        "check",
        help="prove tasks",
        description="Prove tasks in a sandbox: the oracle scores 1, doing nothing does not pass, both twice the same. "
        f"SPEC: {spec}. Exit code 1 if a task or a file is broken.",
    )
    check.add_argument("spec", nargs="*", metavar="SPEC", help="default: library")
    check.add_argument("--all", action="store_true", help="the library and a sample of every procedural family")
    check.add_argument(
        "--sample", type=_positive, default=20, metavar="N", help="tasks per family with --all (default 20)"
    )
    check.add_argument("--seed", type=int, default=0, help="seed of that sample (default 0)")
    backends = ["auto", *(backend.value for backend in Backend)]
    check.add_argument("--sandbox", default="auto", choices=backends, help="where commands run (default: auto)")
    check.add_argument(
        "--jobs", type=_positive, metavar="N", help="sandboxes at a time (default: one per core, at most 8)"
    )

    new = commands.add_parser("new", help="write a task file to start from")
    new.add_argument("name", metavar="NAME", help="id of the task and name of the file")
    new.add_argument("--dir", type=Path, default=Path("my_tasks"), help="folder (default: my_tasks)")
    return main


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit code: 0 all well, 1 a broken task or file, 2 a command that makes no sense or a sandbox that is missing.
    """
    options = parser().parse_args(arguments)
    try:
        match options.command:
            case "list":
                return cli.list_tasks(options.spec)
            case "show":
                return cli.show(options.spec, options.id, as_yaml=options.yaml)
            case "new":
                return cli.new(options.name, options.dir)
            case _:
                from tasks import checking  # only here: it starts threads and sandboxes

                return checking.check(
                    options.spec,
                    every=options.all,
                    sample=options.sample,
                    seed=options.seed,
                    backend=options.sandbox,
                    jobs=options.jobs,
                )
    except TaskError as error:
        print(error, file=sys.stderr)
        print(f"{counted(len(error.problems), 'problem')}, nothing was done", file=sys.stderr)
        return 1


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return number


if __name__ == "__main__":
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # `python -m tasks list | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
