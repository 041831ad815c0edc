"""What `python -m tasks list`, `show` and `new` do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks.assertions.base import leaves
from tasks.description import HAND_WRITTEN, describe
from tasks.judges import JudgeUse
from tasks.model import unknown_key
from tasks.problems import TaskError, counted
from tasks.sources import is_spec, load_tasks
from tasks.sources.library import load_library
from tasks.task import ID_PATTERN, Task
from tasks.yaml_io import dump_task

TEMPLATE = Path(__file__).resolve().parent / "templates" / "task.yaml"


def table(rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart; the last column is not padded."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


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
        shown = task.content_hash[:12] + mark
        rows.append((task.id, kind, str(len(task.assertions)), str(task.budget.max_turns), shown))
    print(table(rows))
    left_out = len(everything) - len(tasks)
    print(counted(len(tasks), "task") + (f" of {len(everything)}" if left_out else ""))
    return 0


def show(spec: str, task_id: str | None, *, as_yaml: bool) -> int:
    """Print one task in full: with colours on a terminal, as plain text elsewhere."""
    tasks = _named(spec)
    if task_id is not None:
        chosen = next((task for task in tasks if task.id == task_id), None)
        if chosen is None:
            raise TaskError(unknown_key(task_id, [task.id for task in tasks][:20], "task"))
    else:
        chosen = tasks[0]
        if len(tasks) > 1:
            print(f"the first of {len(tasks)} tasks (--id ID shows another)", file=sys.stderr)
    if as_yaml:
        print(dump_task(chosen), end="")
    elif sys.stdout.isatty():
        from tasks.rendering import render  # only here: the rest need not pay for rich

        render(chosen)
    else:
        print(describe(chosen), end="")
    return 0


def _named(spec: str) -> list[Task]:
    """Load by spec, or by the bare id of a library task."""
    if is_spec(spec) or Path(spec).expanduser().exists():
        return load_tasks(spec)
    shipped = load_library()
    found = [task for task in shipped if task.id == spec]
    if not found:
        message = unknown_key(spec, [task.id for task in shipped], "task")
        raise TaskError(f"{message}. A source works too: generated:FAMILY, a YAML file or a folder")
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
