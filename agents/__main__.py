"""`python -m agents`: look at stored trajectories, play them again, convert them, or act oneself."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from agents.commands import UsageError, chosen, clean, run_of, show
from agents.exports.convert import TARGETS, convert
from agents.trajectory import RecordError
from agents.view.collect import intents_of
from sandboxes.guard import Parser, add_command, leave_with, started
from sandboxes.sandbox import NAMES
from tasks.cli import SPEC

SANDBOX = ", ".join(NAMES)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit status: 0; 2 for an error, whose message goes to stderr. `replay` and `rescore`: see
        `agents.commands`. `play`: 0 if the task was passed, 1 if not.
    """
    started()
    args = _parser().parse_args(argv)
    logging.basicConfig(format="%(levelname)s: %(message)s", level=logging.WARNING)
    try:
        return int(args.run(args))
    except (OSError, RecordError, UsageError) as error:
        print(f"agents: {clean(str(error))}", file=sys.stderr)
        return 2


def _again(args: argparse.Namespace) -> int:
    from agents.commands import again  # late, like `play`: what they import takes longer than showing a page

    return again(args, chosen(args))


def _intents(file: str) -> dict[str, str]:
    return intents_of(run_of(Path(file).resolve()))


def _view(args: argparse.Namespace) -> int:
    from agents.view.command import view

    return view(args)


def _play(args: argparse.Namespace) -> int:
    from agents.commands import play

    return play(args)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m agents", description="Look at stored trajectories, play them again, convert them, or act."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    page = add_command(
        commands,
        "show",
        "print the episodes of a trajectory file, or one of them turn by turn",
        lambda args: show(chosen(args), partial(_intents, args.file)),
        description="Print the episodes of a trajectory file, or one of them turn by turn.",
        example="python -m agents show FILE --episode 0",
    )
    _reads(page)
    _views(commands)
    other = add_command(
        commands,
        "convert",
        "write a trajectory file in another format",
        convert,
        description="Write a trajectory file in another format. Never overwrites; says what was left out.",
        example="python -m agents convert FILE logs --to inspect",
    )
    other.add_argument("file", help="a file of any format that `show` reads")
    folders = ", ".join(name for name, target in TARGETS.items() if target.file_name)
    other.add_argument("out", help=f"the new file; a new folder for {folders}")
    other.add_argument("--to", choices=sorted(TARGETS), required=True)
    _stands_beside(other, wanted="ask for", told="the first prompt")
    replayed = add_command(
        commands,
        "replay",
        "play stored episodes again in fresh sandboxes and compare turns and grades",
        _again,
        description="Exit status: 0 all the same, 1 something differs, 2 an episode cannot be played again.",
        example="python -m agents replay FILE --sandbox bubblewrap",
    )
    graded = add_command(
        commands,
        "rescore",
        "play stored episodes again and compare grades alone; the task's assertions may have changed",
        _again,
        description="Exit status: 0 the same grades, 1 another grade, 2 an episode cannot be played again.",
        example="python -m agents rescore FILE --tasks my_tasks --out rescored.jsonl",
    )
    for command in (replayed, graded):
        _reads(command)
        command.add_argument(
            "--tasks", metavar="SPEC", help="where the tasks are (default: as the run's folder says, else library)"
        )
        command.add_argument("--sandbox", metavar="NAME", default="auto", help=SANDBOX)
        command.add_argument(
            "--prompt-style", metavar="NAME", help="for records that do not say it: standard or compact"
        )
        command.add_argument("--max-turns", metavar="N", type=int, help="for records that do not say it")
        command.add_argument("--out", metavar="FILE", help="write the episodes as they are now, with their new grades")
    replayed.add_argument(
        "--model", metavar="NAME", help="compare ids, too, with this model's tokenizer (`bytes`: of scripted policies)"
    )
    player = add_command(
        commands,
        "play",
        "be the policy: type replies to an episode, and store it",
        _play,
        description="Be the policy: type replies to an episode, and store it. Exit status: 0 passed, 1 not passed.",
        example="python -m agents play --task merge-contacts --out played.jsonl",
    )
    player.add_argument("--tasks", metavar="SPEC", default="library", help=f"where the tasks are: {SPEC}")
    player.add_argument("--task", metavar="ID", help="the task; left out, the first")
    player.add_argument("--sandbox", metavar="NAME", default="auto", help=SANDBOX)
    player.add_argument("--seed", metavar="N", type=int, default=0, help="the episode's seed")
    player.add_argument("--out", metavar="FILE", help="append the trajectory to this file")
    return parser


def _views(commands: Any) -> None:
    page = add_command(
        commands,
        "view",
        "write a page with all episodes of runs, evaluations or files, to search and to compare in a browser",
        _view,
        description="Write one page with all episodes. It needs no network and no other file; an old one is replaced.",
        example="python -m agents view runs/mine --open",
    )
    page.add_argument("sources", nargs="+", metavar="RUN|FILE", help="folders of runs or evaluations, or files")
    page.add_argument("--out", metavar="FILE", help="the page (default: episodes.html in the folder)")
    page.add_argument("--open", action="store_true", help="show it in the browser")
    page.add_argument("--serve", action="store_true", help="write no page: serve it here, and follow what runs write")
    page.add_argument("--port", metavar="N", type=int, default=0, help="for --serve (default: a free one)")
    _stands_beside(page, wanted="wanted", told="each token")


def _reads(command: argparse.ArgumentParser) -> None:
    command.add_argument("file", help="a JSONL file of a run, or of the formats fieldnotes and retrain")
    command.add_argument("--episode", type=int, metavar="N", help="the episode's number in the file, from 0")
    command.add_argument("--task", metavar="ID", help="only episodes of this task")
    _allows_cut(command)


def _stands_beside(command: argparse.ArgumentParser, *, wanted: str, told: str) -> None:
    """Where to find what records do not hold: tasks, a tokenizer."""
    command.add_argument(
        "--tasks",
        metavar="SPEC",
        help=f"where the tasks are, for what they {wanted} (default: as the run says; none: nowhere)",
    )
    command.add_argument("--model", metavar="NAME", help=f"whose tokenizer tells what {told} says")
    _allows_cut(command)


def _allows_cut(command: argparse.ArgumentParser) -> None:
    command.add_argument("--allow-cut", action="store_true", help="leave out a last line that was cut by a crash")


if __name__ == "__main__":
    leave_with(main)
