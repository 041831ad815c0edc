"""What the commands of `python -m tasks` do: `list`, `show`, `new`, `stats`, `split`, `import` and `generate`."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tasks.assertions.base import leaves
from tasks.comparable import SHOWN, THRESHOLD, near_twins
from tasks.judged_in import is_shared, network_reason
from tasks.judges import JudgeUse
from tasks.model import Problem, TaskError, collected, counted, nearest, table, unknown_key
from tasks.sources import is_spec, load_generated, load_shipped, load_tasks
from tasks.sources.fieldnotes import SUFFIX as RECORDS
from tasks.sources.fieldnotes import write
from tasks.splits import Split, split_tasks, take_confirm, write_lock
from tasks.task import HAND_WRITTEN, ID_PATTERN, Task
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
    tasks = named(spec)
    chosen = tasks[0] if task_id is None else with_id(tasks, task_id)
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


def named(spec: str) -> list[Task]:
    """Load by spec, or by the bare id of a library task.

    Raises:
        TaskError: There is no such source and no such task, or the source cannot be loaded.
    """
    if is_spec(spec) or Path(spec).expanduser().exists():
        return load_tasks(spec)
    shipped = load_shipped()
    found = [task for task in shipped if task.id == spec]
    if not found:
        message = unknown_key(spec, [task.id for task in shipped], "task")
        raise TaskError(f"{message}. A source works too: generated:FAMILY, a YAML file or a folder")
    return found


def with_id(tasks: Sequence[Task], task_id: str) -> Task:
    """The task of an id.

    Raises:
        TaskError: There is none; the nearest id comes first among those that it names.
    """
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
