"""The command line of `python -m tasks`: every command, its options and an example."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sandboxes.guard import Parser, add_command, positive
from sandboxes.sandbox import NAMES
from tasks.commands import Filter, generate, import_tasks, list_tasks, named, new, show, split, stats, with_id
from tasks.judged_in import check_network
from tasks.model import TaskError
from tasks.sources import load_tasks
from tasks.synthesis import command as synthesis
from tasks.task import Difficulty

SPEC = (
    "library, library:ID, generated:FAMILY?n=100&seed=0, clawgym:PATH, harbor:PATH, fieldnotes:FILE, a YAML file or a "
    "folder"
)


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    main = Parser(
        prog="python -m tasks",
        description="List, show, prove, grade, write, import, export, count, split and synthesise tasks.",
        epilog="example:\n  python -m tasks new tidy-orders && python -m tasks check my_tasks",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _listing(commands)
    _show(commands)
    _check(commands)
    _grade(commands)
    _new(commands)
    _import(commands)
    _export(commands)
    _generate(commands)
    _stats(commands)
    _split(commands)
    synthesis.add(commands, SPEC)
    return main


def _listing(commands: Any) -> None:
    command = add_command(
        commands,
        "list",
        "one line per task",
        _run_list,
        description=f"List tasks, all or those that fit every filter.\nSPEC: {SPEC}.",
        example="python -m tasks list library --difficulty hard --tag csv",
    )
    command.add_argument("spec", nargs="?", default="library", metavar="SPEC", help="default: library")
    more: dict[str, Any] = {"action": "append", "default": []}
    command.add_argument("--family", **more, metavar="NAME", help="of this family (or hand-written); may be repeated")
    command.add_argument("--tag", **more, metavar="TAG", help="with this tag; repeated: with all of them")
    command.add_argument("--difficulty", **more, choices=[*Difficulty], help="of this difficulty; may be repeated")
    command.add_argument("--assertion", **more, metavar="KIND", help="with an assertion of this kind; may be repeated")
    command.add_argument("--grep", **more, metavar="TEXT", help="with this text in id or request; repeated: with all")
    command.add_argument(
        "--oracle", action=argparse.BooleanOptionalAction, default=None, help="only tasks with (without) an oracle"
    )


def _show(commands: Any) -> None:
    command = add_command(
        commands,
        "show",
        "one task in full",
        lambda o: show(o.spec, o.id, as_yaml=o.yaml),
        description=f"Show one task: request, workspace, assertions, oracle.\nSPEC: {SPEC}.",
        example="python -m tasks show merge-contacts",
    )
    command.add_argument("spec", metavar="ID_OR_SPEC", help="id of a library task, or a source")
    command.add_argument("--id", help="which task of the source (default: the first)")
    command.add_argument("--yaml", action="store_true", help="print it as a task file")


def _check(commands: Any) -> None:
    command = add_command(
        commands,
        "check",
        "prove tasks",
        _run_check,
        description="Prove tasks in a sandbox: the oracle scores 1, doing nothing does not pass, both twice the same;\n"
        "neither damaged results of the oracle nor cheap cheats pass.\n"
        f"SPEC: {SPEC}.\nExit code 1 if a task or a file is broken, 2 if no sandbox works here.",
        example="python -m tasks check my_tasks --jobs 2 --junit report.xml",
    )
    command.add_argument("spec", nargs="*", metavar="SPEC", help="default: library")
    command.add_argument("--all", action="store_true", help="the library and a sample of every procedural family")
    command.add_argument(
        "--sample", type=positive, default=20, metavar="N", help="tasks per family with --all (default 20)"
    )
    command.add_argument("--seed", type=int, default=0, help="seed of that sample (default 0)")
    _sandbox(command)
    command.add_argument(
        "--jobs", type=positive, metavar="N", help="sandboxes at a time (default: one per core, at most 8)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    command.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit file too")
    command.add_argument(
        "--build",
        action="store_true",
        help="build the images of tasks' Dockerfiles first, for tasks that are trusted",
    )


def _network(text: str) -> str:
    try:
        return check_network(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _sandbox(command: argparse.ArgumentParser) -> None:
    command.add_argument("--sandbox", default="auto", choices=NAMES, help="where commands run (default: auto)")
    command.add_argument(
        "--verifier-network",
        type=_network,
        metavar="NAME",
        help="docker: network of the engine, such as bridge, that verifiers have which need one",
    )


def _grade(commands: Any) -> None:
    command = add_command(
        commands,
        "grade",
        "judge a folder that was left as the end of a task",
        _run_grade,
        description="Judge a folder, as the workspace at the end of an episode. It is only read; a sandbox with a\n"
        "copy of it is opened only where an assertion runs commands.\n"
        f"TASK: id of a library task, or a source: {SPEC}.\n"
        "Exit code 0 passed, 1 not passed, 2 a wrong command or task or no sandbox, 3 no verdict: an error is no fail.",
        example="python -m tasks grade my_tasks/tidy-orders.yaml workspace --json",
    )
    command.add_argument("task", metavar="TASK", help="the task; a source of several needs --id")
    command.add_argument("folder", metavar="FOLDER", type=Path, help="what was left")
    command.add_argument("--id", help="which task of the source")
    command.add_argument("--reply", type=Path, metavar="FILE", help="the last answer, for assertions that judge it")
    _sandbox(command)
    command.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def _new(commands: Any) -> None:
    command = add_command(
        commands,
        "new",
        "write a task file to start from",
        lambda o: new(o.name, o.dir),
        description="Write a commented task file that proves as it is. Never overwrites.",
        example="python -m tasks new tidy-orders --dir my_tasks",
    )
    command.add_argument("name", metavar="NAME", help="id of the task and name of the file")
    command.add_argument("--dir", type=Path, default=Path("my_tasks"), help="folder (default: my_tasks)")


def _import(commands: Any) -> None:
    command = add_command(
        commands,
        "import",
        "write tasks of another source as files",
        lambda o: import_tasks(o.source, o.destination),
        description=f"Write tasks of any source as YAML files, or as field-notes JSONL. Never overwrites.\n"
        f"SRC: {SPEC}.",
        example="python -m tasks import fieldnotes:records.jsonl my_tasks",
    )
    command.add_argument("source", metavar="SRC", help="where the tasks are")
    command.add_argument("destination", metavar="DST", type=Path, help="a folder, or a file that ends in .jsonl")


def _export(commands: Any) -> None:
    command = add_command(
        commands,
        "export",
        "write tasks as folders of another harness",
        _run_export,
        description="Write a folder for each task that Harbor loads and runs: image, solution, and a verifier that is\n"
        "`tasks grade` from wheels in the folder. Never overwrites.\n"
        f"SPEC: {SPEC}.\n"
        "Exit code 0 all were written, 1 some were left out (each is named with the reason), 2 nothing was done.",
        example="python -m tasks export --to harbor harbor_tasks --wheel dist/turngym-0.6.0-py3-none-any.whl",
    )
    command.add_argument("destination", metavar="DEST", type=Path, help="folder for the task folders")
    command.add_argument("--to", required=True, choices=["harbor"], help="whose format")
    command.add_argument("--tasks", default="library", metavar="SPEC", help="default: library")
    command.add_argument(
        "--wheel",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a wheel that grading needs; may be repeated. What is missing is taken from the packages installed here",
    )
    command.add_argument(
        "--base-image", metavar="IMAGE", help="what the images start from (default: debian:bookworm-slim)"
    )


def _generate(commands: Any) -> None:
    command = add_command(
        commands,
        "generate",
        "write tasks of a procedural family",
        lambda o: generate(o.family, o.n, o.seed, o.out),
        description="Make tasks of a procedural family; the same arguments give the same bytes. "
        "Without FAMILY: name the families.",
        example="python -m tasks generate quickstart -n 50 --seed 1 --out my_tasks",
    )
    command.add_argument("family", nargs="?", metavar="FAMILY", help="a family, or quickstart for a mix")
    command.add_argument("-n", type=positive, default=10, metavar="N", help="how many (default 10)")
    command.add_argument("--seed", type=int, default=0, help="default 0")
    command.add_argument("--out", type=Path, metavar="FOLDER", help="where to write them; without it: only their ids")


def _stats(commands: Any) -> None:
    command = add_command(
        commands,
        "stats",
        "count tasks by family, difficulty, assertion and more",
        lambda o: stats(load_tasks(o.spec), as_json=o.json),
        description=f"Count the tasks of a source.\nSPEC: {SPEC}.",
        example="python -m tasks stats 'generated:quickstart?n=200' --json",
    )
    command.add_argument("spec", nargs="?", default="library", metavar="SPEC", help="default: library")
    command.add_argument("--json", action="store_true", help="print JSON, with every name")


def _split(commands: Any) -> None:
    command = add_command(
        commands,
        "split",
        "choose what is held out, and lock it in a file",
        _run_split,
        description="Split tasks into a pool to train on and held-out tasks to measure on, by a seeded draw:\n"
        "no id and no content is on both sides. With --out it is written to a lock file, which `--held_out FILE`\n"
        f"of the trainer and `--split FILE` of the evaluation take.\nSPEC: {SPEC}.",
        example="python -m tasks split 'generated:office?n=200' --unseen 5 --out office.lock",
    )
    command.add_argument("spec", metavar="SPEC")
    command.add_argument("--fraction", type=float, default=0.2, metavar="X", help="share to hold out (default 0.2)")
    command.add_argument("--seed", type=int, default=0, help="default 0")
    command.add_argument(
        "--unseen",
        type=_families,
        default=0,
        metavar="FAMILIES",
        help="whole families that are never trained on: how many to draw, or their names with commas",
    )
    command.add_argument(
        "--confirm",
        type=float,
        default=0.0,
        metavar="X",
        help="share of all tasks to take out of the pool and measure once, at the end of training (default 0)",
    )
    command.add_argument("--out", type=Path, metavar="FILE", help="lock file to write; one that differs is left alone")


def _families(text: str) -> int | list[str]:
    return int(text) if text.isdigit() else [name for name in text.split(",") if name]


def _run_list(options: argparse.Namespace) -> int:
    wanted = Filter(
        families=options.family,
        tags=options.tag,
        difficulties=options.difficulty,
        kinds=options.assertion,
        words=options.grep,
        proven=options.oracle,
    )
    return list_tasks(options.spec, wanted)


def _run_split(options: argparse.Namespace) -> int:
    return split(
        options.spec,
        fraction=options.fraction,
        seed=options.seed,
        unseen=options.unseen,
        confirm=options.confirm,
        out=options.out,
    )


def _run_check(options: argparse.Namespace) -> int:
    from tasks.check import check  # only here: it starts threads and sandboxes

    return check(
        options.spec,
        every=options.all,
        sample=options.sample,
        seed=options.seed,
        backend=options.sandbox,
        jobs=options.jobs,
        as_json=options.json,
        junit=options.junit,
        build=options.build,
        network=options.verifier_network,
    )


def _run_export(options: argparse.Namespace) -> int:
    from tasks.harbor.write import BASE_IMAGE, export  # only here: the other commands need nothing of docker

    image = options.base_image or BASE_IMAGE
    return export(load_tasks(options.tasks), options.destination, wheels=options.wheel, base_image=image)


def _run_grade(options: argparse.Namespace) -> int:
    from tasks.grading import grade_command  # only here: the other commands need no code of a sandbox's inside

    tasks = named(options.task)
    if options.id is None and len(tasks) > 1:
        some = ", ".join(task.id for task in tasks[:5])
        raise TaskError(f"{options.task} holds {len(tasks)} tasks ({some}, ...): name one with --id")
    return grade_command(
        tasks[0] if options.id is None else with_id(tasks, options.id),
        options.folder,
        reply=options.reply,
        backend=options.sandbox,
        as_json=options.json,
        network=options.verifier_network,
    )
