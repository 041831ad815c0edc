"""The command line of `python -m tasks`, and what its commands but `check`, `grade` and `show` do."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from sandboxes.guard import Parser, add_command, positive
from sandboxes.sandbox import NAMES
from tasks.assertions.base import leaves
from tasks.comparable import SHOWN, THRESHOLD, near_twins
from tasks.judged_in import check_network, is_shared, network_reason
from tasks.judges import JudgeUse
from tasks.model import Problem, TaskError, collected, counted, nearest, table, unknown_key
from tasks.sources import is_spec, load_generated, load_shipped, load_tasks
from tasks.sources.fieldnotes import SUFFIX as RECORDS
from tasks.sources.fieldnotes import write
from tasks.splits import Split, split_tasks, take_confirm, write_lock
from tasks.synthesis import command as synthesis
from tasks.task import HAND_WRITTEN, ID_PATTERN, Difficulty, Task
from tasks.yaml import dump_task, parse_task

# -- What `python -m tasks list`, `show` and `new` do -----------------------------------------------------------------

TEMPLATE = Path(__file__).resolve().parent / "templates" / "task.yaml"


@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks to list; what is None or empty does not count.

    Attributes:
        families: Names of families; `hand-written` stands for none.
        tags: Tags that a task must all have.
        difficulties: Difficulties.
        kinds: Kinds of assertion, one of which a task must use.
        words: Texts that must stand in the id or the request, whatever their case.
        proven: True for tasks with an oracle, False for those without.
    """

    families: Sequence[str] = ()
    tags: Sequence[str] = ()
    difficulties: Sequence[str] = ()
    kinds: Sequence[str] = ()
    words: Sequence[str] = ()
    proven: bool | None = None

    def takes(self, task: Task) -> bool:
        """Whether a task is wanted."""
        kinds = {str(leaf.kind) for item in task.assertions for leaf in leaves(item)}
        text = f"{task.id} {task.intent}".lower()
        return (
            (not self.families or (task.family or HAND_WRITTEN) in self.families)
            and all(tag in task.tags for tag in self.tags)
            and (not self.difficulties or task.difficulty in self.difficulties)
            and (not self.kinds or any(kind in kinds for kind in self.kinds))
            and all(word.lower() in text for word in self.words)
            and (self.proven is None or self.proven == (task.oracle is not None))
        )


def list_tasks(spec: str, wanted: Filter = Filter()) -> int:
    """Print one line per task that is wanted."""
    everything = load_tasks(spec)
    tasks = [task for task in everything if wanted.takes(task)]
    rows = [("id", "kind", "assertions", "turns", "hash")]
    for task in tasks:
        kind = f"{task.family or HAND_WRITTEN}/{task.difficulty}"
        mark = "  in-process judge" if task.judge_use is JudgeUse.IN_PROCESS else ""
        mark += "  shared judge" if is_shared(task) else "  verifier needs a network" if network_reason(task) else ""
        shown = task.content_hash[:12] + mark
        rows.append((task.id, kind, str(len(task.assertions)), str(task.budget.max_turns), shown))
    print(table(rows))
    left_out = len(everything) - len(tasks)
    print(counted(len(tasks), "task") + (f" of {len(everything)}" if left_out else ""))
    return 0


def show(spec: str, task_id: str | None, *, as_yaml: bool) -> int:
    """Print one task in full: with colours on a terminal, as plain text elsewhere."""
    tasks = _named(spec)
    chosen = tasks[0] if task_id is None else _with_id(tasks, task_id)
    if task_id is None and len(tasks) > 1:
        print(f"the first of {len(tasks)} tasks (--id ID shows another)", file=sys.stderr)
    if as_yaml:
        print(dump_task(chosen), end="")
        return 0
    from tasks.show import describe, render  # only here: the other commands need not pay for rich

    if sys.stdout.isatty():
        render(chosen)
    else:
        print(describe(chosen), end="")
    return 0


def _named(spec: str) -> list[Task]:
    """Load by spec, or by the bare id of a library task."""
    if is_spec(spec) or Path(spec).expanduser().exists():
        return load_tasks(spec)
    shipped = load_shipped()
    found = [task for task in shipped if task.id == spec]
    if not found:
        message = unknown_key(spec, [task.id for task in shipped], "task")
        raise TaskError(f"{message}. A source works too: generated:FAMILY, a YAML file or a folder")
    return found


def _with_id(tasks: Sequence[Task], task_id: str) -> Task:
    found = next((task for task in tasks if task.id == task_id), None)
    if found is None:
        ids = [task.id for task in tasks]
        guess = nearest(task_id, ids)
        raise TaskError(unknown_key(task_id, dict.fromkeys([*([guess] if guess else []), *ids[:20]]), "task"))
    return found


def new(name: str, folder: Path) -> int:
    """Write a commented task file that proves as it is; never overwrites."""
    if not re.fullmatch(ID_PATTERN, name):
        raise TaskError(f"'{name}' is no id: use lower case letters, digits, '.', '_' and '-'")
    path = folder / f"{name}.yaml"
    text = TEMPLATE.read_text(encoding="utf-8").format(name=name, path=path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise TaskError(f"{path} is there already and was left as it is: choose another name") from None
    except OSError as error:
        raise TaskError(f"{path} cannot be written: {error.strerror}") from error
    print(f"wrote {path}\nprove it:  python -m tasks check {path}")
    return 0


# -- What `python -m tasks stats` prints: how many tasks of which kind a source holds ---------------------------------

TOP = 12
"""Names of one count that the table shows; JSON has all."""


def count(tasks: Sequence[Task]) -> dict[str, Any]:
    """Return counts of the tasks, JSON-able."""
    kinds = Counter(str(leaf.kind) for task in tasks for item in task.assertions for leaf in leaves(item))
    turns = [len(task.oracle.commands) + 1 for task in tasks if task.oracle]
    sizes = [sum(entry.size or 0 for entry in task.files().values()) for task in tasks]
    return {
        "tasks": len(tasks),
        "with_oracle": len(turns),
        "with_alternatives": sum(bool(task.oracle and task.oracle.alternatives) for task in tasks),
        "different_problems": len({task.problem_hash for task in tasks}),
        "family": _ordered(task.family or HAND_WRITTEN for task in tasks),
        "difficulty": _ordered(task.difficulty.value for task in tasks),
        "persona": _ordered(task.persona.role if task.persona else "none" for task in tasks),
        "tags": _ordered(tag for task in tasks for tag in task.tags),
        "split": _ordered(task.split.value if task.split else "undecided" for task in tasks),
        "assertions": dict(kinds.most_common()),
        "oracle_turns": _spread(turns),
        "assertions_per_task": _spread([len(task.assertions) for task in tasks]),
        "workspace_bytes": _spread(sizes),
    }


def in_words(counts: dict[str, Any]) -> str:
    """Write counts for people."""
    lines = []
    for name, value in counts.items():
        label = name.replace("_", " ")
        if isinstance(value, dict) and set(value) == {"least", "median", "most"}:
            shown = f"{value['least']:g} to {value['most']:g}, median {value['median']:g}"
        elif isinstance(value, dict):
            shown = ", ".join(f"{key} {number}" for key, number in list(value.items())[:TOP])
            shown += f", and {len(value) - TOP} more" if len(value) > TOP else ""
        else:
            shown = "none" if value is None else str(value)
        lines.append(f"{label:<20}  {shown or 'none'}")
    return "\n".join(lines)


def stats(tasks: Sequence[Task], *, as_json: bool) -> int:
    """Print counts of the tasks."""
    counts = count(tasks)
    print(json.dumps(counts, indent=1, ensure_ascii=False) if as_json else in_words(counts))
    return 0


def _ordered(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _spread(numbers: Sequence[int]) -> dict[str, float] | None:
    return {"least": min(numbers), "median": median(numbers), "most": max(numbers)} if numbers else None


# -- What `python -m tasks split` does: choose what is held out, show it, and lock it in a file -----------------------


def split(
    spec: str, *, fraction: float, seed: int, unseen: int | Sequence[str], out: Path | None, confirm: float = 0.0
) -> int:
    """Split the tasks of a source and print how many of each family are on each side.

    Raises:
        TaskError: the split makes no sense, or `out` is there and locks another one.
    """
    if not 0 <= confirm < 1:
        raise TaskError(f"confirm is {confirm:g}: a share of the tasks, 0 or more and below 1")
    tasks = load_tasks(spec)
    made = split_tasks(tasks, held_out_fraction=fraction, seed=seed, unseen_families=unseen)
    made = take_confirm(made, round(confirm * len(tasks)), seed)
    print(summary(made))
    if twins := near_twins_across(made):
        print("\n".join(twins))
    if out is None:
        print("nothing was written: --out FILE locks this split")
        return 0
    more = {"confirm": confirm} if confirm else {}
    write_lock(made, out, {"tasks": spec, "fraction": fraction, "seed": seed, "unseen": unseen, **more})
    print(f"locked in {out}")
    return 0


def summary(split: Split) -> str:
    """Return the number of tasks on each side, by family, as a table, and the hash of the split."""
    sides = list(split.sides)
    counts = {side: Counter(task.family or HAND_WRITTEN for task in tasks) for side, tasks in split.sides.items()}
    families = sorted(set().union(*counts.values()))
    rows = [["family", *sides]]
    rows += [[family, *(str(counts[side][family]) for side in sides)] for family in families]
    rows.append(["all", *(str(counts[side].total()) for side in sides)])
    total = sum(counts[side].total() for side in sides)
    return f"{table(rows)}\n{counted(total, 'task')}, chosen by {split.choice}, hash {split.hash[:12]}"


def near_twins_across(split: Split) -> list[str]:
    """Return lines on near-twins that stand on different sides, for people: how many, and the most alike."""
    side_of = {task.id: side for side, tasks in split.sides.items() for task in tasks}
    everything = [task for tasks in split.sides.values() for task in tasks]
    pairs = [pair for pair in near_twins(everything) if side_of[pair.one.id] != side_of[pair.other.id]]
    if not pairs:
        return []
    head = f"note: {counted(len(pairs), 'pair')} of near-twins across sides (similarity {THRESHOLD:g} or more)"
    lines = [f"{head}: `split:` in their files can put them on one side"]
    for pair in pairs[:SHOWN]:
        one, other = (f"{task.id} ({side_of[task.id]})" for task in (pair.one, pair.other))
        lines.append(f"  {one} and {other}: {pair.similarity:.2f}")
    return lines + ([f"  and {len(pairs) - SHOWN} more"] if len(pairs) > SHOWN else [])


# -- What `python -m tasks import` and `generate` do: tasks of any source, written as files ---------------------------


def import_tasks(source: str, destination: Path) -> int:
    """Write the tasks of a source as one YAML file each, or as field-notes records where the name ends in .jsonl."""
    tasks = load_tasks(source)
    if destination.suffix.lower() == RECORDS:
        try:
            destination.parent.mkdir(parents=True, exist_ok=True)
            write(tasks, destination)
        except FileExistsError:
            raise _there(destination) from None
        except OSError as error:
            raise _unwritable(destination, error) from error
    else:
        write_folder(tasks, destination)
    proven = sum(task.oracle is not None for task in tasks)
    print(f"wrote {counted(len(tasks), 'task')} to {destination} ({proven} with an oracle)")
    print(f"prove them:  python -m tasks check {destination}")
    return 0


def generate(family: str | None, n: int, seed: int, folder: Path | None) -> int:
    """Write tasks of a procedural family; without a folder name what would be written, without a family name those."""
    if family is None:
        from tasks.families import NAMES

        print("\n".join(NAMES))
        return 0
    tasks = load_generated(f"{family}?n={n}&seed={seed}")
    if folder is None:
        print("\n".join(task.id for task in tasks))
        print(f"{counted(len(tasks), 'task')}, nothing was written: --out FOLDER writes them")
        return 0
    write_folder(tasks, folder)
    print(f"wrote {counted(len(tasks), 'task')} to {folder}\nprove them:  python -m tasks check {folder}")
    return 0


def write_folder(tasks: Sequence[Task], folder: Path) -> None:
    """Write each task to `<id>.yaml` in a folder. Nothing is overwritten, and nothing written if a file is there.

    Raises:
        TaskError: files that are there, tasks that do not come back as they were, or a folder that cannot be written.
    """
    paths = {folder / f"{task.id}.yaml": task for task in tasks}
    errors = [_there(path) for path in paths if path.exists()]
    if folder.exists() and not folder.is_dir():
        errors = [TaskError(Problem("is no folder; a file name must end in .jsonl", str(folder)))]
    if errors:
        raise collected(errors)
    texts = {path: _checked(task) for path, task in paths.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            with path.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _checked(task: Task) -> str:
    text = dump_task(task)
    if parse_task(text, task.id) != task:
        raise TaskError(Problem("does not come back from YAML as it was; this is a defect of the product", task.id))
    return text


def _there(path: Path) -> TaskError:
    return TaskError(Problem("is there already and was left as it is: choose another place", str(path)))


def _unwritable(path: Path, error: OSError) -> TaskError:
    return TaskError(Problem(f"cannot be written: {error.strerror or error}", str(path)))


# -- The command line of `python -m tasks`: every command, its options and an example ---------------------------------

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

    tasks = _named(options.task)
    if options.id is None and len(tasks) > 1:
        some = ", ".join(task.id for task in tasks[:5])
        raise TaskError(f"{options.task} holds {len(tasks)} tasks ({some}, ...): name one with --id")
    return grade_command(
        tasks[0] if options.id is None else _with_id(tasks, options.id),
        options.folder,
        reply=options.reply,
        backend=options.sandbox,
        as_json=options.json,
        network=options.verifier_network,
    )
