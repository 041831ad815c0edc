"""Every checkpoint of a run, measured on the same tasks: one row for each, compared with the run's start."""

from __future__ import annotations

import copy
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import yaml
from rich.console import Console

from agents.models.card import read_card
from trainers.checkpoint import Checkpoint
from trainers.evaluation.arms import read_arms
from trainers.evaluation.check import EvaluateError, settle
from trainers.evaluation.folder import OCCUPIED
from trainers.evaluation.play import evaluate
from trainers.evaluation.shown import show_episodes
from trainers.jsonl import plain, write_whole
from trainers.reporting.folder import read_mapping
from trainers.run.checkpoints import HEADER, measured_rows
from trainers.run.folder import refuse_occupied, refuse_unwritable
from trainers.run.record import CONFIG
from trainers.run.summary import MEASURED_NOTE, markdown_table, text_table

PAGE = "CHECKPOINTS.md"


def evaluate_checkpoints(a: Namespace, console: Console) -> int:
    """Measure the start of the run `a.model` and each of its checkpoints; returns the exit code.

    Each is an evaluation in a folder of its own, `step_<N>`; with `--resume` those that are there go on. The table is
    shown, and stored as CHECKPOINTS.md.

    Raises:
        EvaluateError: `a.model` is no run folder with a checkpoint.
        RunFolderError: The output folder is occupied, or cannot be written.
    """
    run = Path(a.model)
    checkpoints = Checkpoint.all_of(run)
    if not (run / CONFIG).is_file() or not checkpoints:
        raise EvaluateError(f"--all_checkpoints: --model {a.model} is no run folder with a checkpoint in it")
    folder = Path(a.output_dir or Path("runs") / f"eval-{run.name}-all-{datetime.now().strftime('%Y%m%d-%H%M%S')}")
    refuse_unwritable(folder)
    if not a.resume:
        refuse_occupied(folder, hint=OCCUPIED)
        write_whole(folder / CONFIG, yaml.safe_dump(plain(vars(a)), sort_keys=False, allow_unicode=True))
    measured = []
    for step, arguments in _each(a, run, checkpoints):
        place = folder / f"step_{step:06d}"
        arguments.output_dir, arguments.all_checkpoints, arguments.open = str(place), False, False
        arguments.resume = (place / CONFIG).is_file()
        console.print(f"\n[bold]step {step}[/]")
        if code := evaluate(arguments, console):
            return code
        measured.append((step, read_arms(place).settings))
    cells = (HEADER, *(row.cells() for row in measured_rows(measured)))
    console.print(text_table("every checkpoint", cells))
    console.print(f"{MEASURED_NOTE[0]}", soft_wrap=True)
    write_whole(folder / PAGE, "\n".join([f"# Every checkpoint of {run.name}", "", *markdown_table(cells)]) + "\n")
    console.print(f"stored in {folder / PAGE}", markup=False, soft_wrap=True)
    if a.open:
        show_episodes(folder, console)
    return 0


def _each(a: Namespace, run: Path, checkpoints: Sequence[Checkpoint]) -> Iterator[tuple[int, Namespace]]:
    """The step and the arguments of each evaluation; the start is spoken to as the checkpoints are."""
    start = copy.copy(a)
    start.model = str(read_mapping(run / CONFIG)["model_name_or_path"])
    card = read_card(checkpoints[0].folder)
    manner = settle(start, card)
    start.prompt_style, start.protocol = manner.prompt_style, manner.protocol
    if card.shots and a.shots is None and a.shots_from is None:
        start.shots_from = str(checkpoints[0].folder)
    yield 0, start
    for checkpoint in checkpoints:
        of_step = copy.copy(a)
        of_step.model = str(checkpoint.folder)
        yield checkpoint.step, of_step
