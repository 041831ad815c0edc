"""`python -m agents show FILE [--episode N]`: look at stored trajectories."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from agents.show import show, show_list
from agents.trajectory import Trajectory, read_jsonl


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m agents", description="Look at stored trajectories.")
    commands = parser.add_subparsers(dest="command", required=True)
    page = commands.add_parser("show", help="print the episodes of a trajectory file, or one of them turn by turn")
    page.add_argument("file", help="a JSONL file of a run, such as runs/NAME/trajectories/step_000012.jsonl")
    page.add_argument("--episode", type=int, metavar="N", help="the episode's number in the file, from 0")
    page.add_argument("--task", metavar="ID", help="only episodes of this task")
    args = parser.parse_args(argv)
    try:
        episodes = list(read_jsonl(args.file))
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return _show(args, episodes)


def _show(args: argparse.Namespace, episodes: list[Trajectory]) -> int:
    console = Console()
    if args.task is not None:
        known = sorted({episode.task_id for episode in episodes})
        episodes = [episode for episode in episodes if episode.task_id == args.task]
        if not episodes:
            print(f"error: no episode of task '{args.task}' in {args.file}; it has {', '.join(known)}", file=sys.stderr)
            return 2
    if args.episode is None:
        if len(episodes) == 1:
            show(episodes[0], console)
        else:
            show_list(episodes, console)
        return 0
    if not 0 <= args.episode < len(episodes):
        last = len(episodes) - 1
        print(f"error: there is no episode {args.episode}: the numbers are 0 to {last}", file=sys.stderr)
        return 2
    show(episodes[args.episode], console)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        # The reader of a pipe (`| head`) left: that is no error of ours.
        sys.stderr.close()
        sys.exit(0)
