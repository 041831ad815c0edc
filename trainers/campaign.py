"""Runs of several conditions over several seeds, and what they allow to say: `python -m trainers.campaign`.

    python -m trainers.campaign plan quickstart_credit     # what would be run, and how long it takes
    python -m trainers.campaign run my_campaign.toml       # do it, or go on after any interruption
    python -m trainers.campaign run my_campaign.toml --ray auto    # the same, on all machines of a Ray cluster
    python -m trainers.campaign status my_campaign.toml    # where each run stands
    python -m trainers.campaign report my_campaign.toml    # the verdicts, once all runs have ended

Exit codes: 0 all runs are over, 1 a run failed (the others were done), 2 the file or the folder is not right,
130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial

from trainers.run.pipes import start

if __name__ == "__main__":  # before what follows, which takes seconds to import
    start("trainers.campaign")

from rich.console import Console
from rich.table import Table

from sandboxes.guard import Parser, add_command
from trainers.campaigns.cluster import RayCluster
from trainers.campaigns.page import write_page
from trainers.campaigns.plan import Manifest, load_campaign
from trainers.campaigns.results import make_report, state_of, status_table
from trainers.campaigns.run import devices, duration, seconds_left, work, workers_of
from trainers.errors import ConfigError, RunFolderError
from trainers.run.summary import Stopped, wide


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = _parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except (ConfigError, RunFolderError) as error:
        print(f"trainers.campaign: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("trainers.campaign: interrupted; the same command goes on", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m trainers.campaign", description="Conditions x seeds, as a folder of ordinary runs.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, about, run in (
        ("plan", "print the runs, and an estimate of their time; writes nothing", _plan),
        ("run", "do the runs that are not over; after any end the same command goes on", _run),
        ("status", "print where each run stands", _status),
        ("report", "print what the runs allow to say, and write report.html and report.json", _report),
    ):
        command = add_command(
            commands,
            name,
            about,
            run,
            description=f"{about[0].upper()}{about[1:]}.",
            example=f"python -m trainers.campaign {name} quickstart_credit",
        )
        command.add_argument("file", metavar="FILE", help="a campaign file (TOML), or the name of one that ships")
        if name == "run":
            command.add_argument(
                "--ray", metavar="ADDRESS", help="on the nodes of this Ray cluster: HOST:PORT, or auto for the one here"
            )
        if name == "report":
            command.add_argument("--early", action="store_true", help="while runs are missing; it counts as a look")
    return parser


def _plan(arguments: argparse.Namespace) -> int:
    campaign = load_campaign(arguments.file)
    manifest = Manifest.of(campaign)
    table = Table(show_edge=False, pad_edge=False)
    for column in ("condition", "seed", "state", "folder", "config_sha256"):
        table.add_column(column)
    for key in campaign.names():
        run = manifest.runs[key]
        state = state_of(campaign.folder, run)
        table.add_row(run.condition, str(run.seed), state, str(campaign.folder / run.folder), run.config_sha256[:12])
    console = wide(Console())
    console.print(table)
    workers = workers_of(campaign, devices(manifest.conditions))
    left = seconds_left(campaign, manifest, workers)
    if left is None:
        time = "no run is over yet, so nothing is known of their time"
    else:
        time = f"about {duration(left[0])} to go, from the mean of {left[1]} that are over"
    todo = sum(not manifest.runs[key].over for key in campaign.names())
    console.print(f"\n{todo} runs to do, {workers} at a time; {time}")
    return 0


def _run(arguments: argparse.Namespace) -> int:
    campaign = load_campaign(arguments.file)
    machines = partial(RayCluster, arguments.ray) if arguments.ray else None
    manifest = work(campaign, partial(print, flush=True), machines=machines)
    ends = [manifest.runs[key].ended for key in campaign.names()]
    if all(manifest.runs[key].over for key in campaign.names()):
        print(f"all {len(ends)} runs are over: `python -m trainers.campaign report {campaign.path}` compares them")
        return 0
    print(f"{ends.count(Stopped.FAILED)} of {len(ends)} runs failed: the same command tries them again")
    return 1


def _status(arguments: argparse.Namespace) -> int:
    wide(Console()).print(status_table(load_campaign(arguments.file)))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    campaign = load_campaign(arguments.file)
    report = make_report(campaign, early=arguments.early)
    print("\n".join(report.lines()))
    print(f"\nwith curves, a forest plot and all runs: {write_page(report)}")
    return 0
