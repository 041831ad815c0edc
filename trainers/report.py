"""One self-contained page of one run, or of several laid over one another: `python -m trainers.report RUN_DIR [...]`.

The page needs no network and no other file. It can be made while a run is going, and of a run that was killed.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from sandboxes.guard import Parser
from trainers.errors import RunFolderError
from trainers.evaluation.several import several
from trainers.jsonl import write_whole
from trainers.reporting.folder import RunFolder, read_run
from trainers.reporting.page import comparison, default_output, headline, rendered, view_run
from trainers.reporting.run_charts import overlay
from trainers.run.pipes import start
from trainers.run.summary import MEASURED_NOTE


def render(runs: Sequence[RunFolder], folder: Path | None = None) -> str:
    """The page as text; `folder`: where it will stand (default: in the folder of each run).

    Raises:
        RunFolderError: A file of a run folder is damaged.
    """
    many = len(runs) > 1
    return rendered(
        "report.html.j2",
        title=f"TurnGym: {', '.join(run.name for run in runs)}",
        headline=headline(runs),
        runs=[view_run(run, folder) for run in runs],
        overlay=overlay(runs) if many else [],
        comparison=comparison(runs) if many else [],
        several=several(runs) if many else None,
        caption=" ".join(MEASURED_NOTE),
    )


def write_report(run_dirs: Sequence[str | Path], output: str | Path | None = None) -> Path:
    """Render run folders into one page.

    Args:
        run_dirs: One run folder, or several to compare.
        output: The page; default `report.html` in the run's folder, `comparison.html` here for several.

    Returns:
        Where the page is.

    Raises:
        RunFolderError: A folder is no run folder, a file in it is damaged, or the page cannot be written.
    """
    runs = [read_run(path) for path in run_dirs]
    if len({run.name for run in runs}) < len(runs):
        for run in runs:
            run.name = str(run.path)
    path = Path(output) if output is not None else default_output(runs)
    try:
        write_whole(path, render(runs, path.parent))
    except OSError as error:
        raise RunFolderError(f"cannot write {path}: {error.strerror}") from error
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = Parser(prog="python -m trainers.report", description=__doc__)
    parser.add_argument("run_dirs", nargs="+", metavar="RUN_DIR", help="a run folder; several are compared")
    parser.add_argument("-o", "--output", help="the page (default: report.html in the run folder)")
    arguments = parser.parse_args(argv)
    try:
        path = write_report(arguments.run_dirs, arguments.output)
    except RunFolderError as error:
        print(f"trainers.report: {error}", file=sys.stderr)
        return 2
    print(path)
    return 0


if __name__ == "__main__":
    start(main)
