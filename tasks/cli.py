"""What `python -m tasks list`, `show` and `new` do."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.model import unknown_key
from tasks.problems import TaskError, counted
from tasks.sources import generated, library, load_tasks
from tasks.task import ID_PATTERN, Task
from tasks.yaml_io import dump_task

TEMPLATE = Path(__file__).resolve().parent / "templates" / "task.yaml"
SHOWN_LINES = 40
"""Lines of one file that `show` prints."""


def table(rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart; the last column is not padded."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def list_tasks(spec: str) -> int:
    """Print one line per task."""
    tasks = load_tasks(spec)
    rows = [("id", "kind", "assertions", "turns", "hash")]
    for task in tasks:
        kind = f"{task.family or 'hand-written'}/{task.difficulty}"
        rows.append((task.id, kind, str(len(task.assertions)), str(task.budget.max_turns), task.content_hash[:12]))
    print(table(rows))
    print(counted(len(tasks), "task"))
    return 0


def show(spec: str, task_id: str | None, *, as_yaml: bool) -> int:
    """Print one task in full."""
    tasks = _named(spec)
    if task_id is not None:
        chosen = next((task for task in tasks if task.id == task_id), None)
        if chosen is None:
            raise TaskError(unknown_key(task_id, [task.id for task in tasks][:20], "task"))
    else:
        chosen = tasks[0]
        if len(tasks) > 1:
            print(f"the first of {len(tasks)} tasks (--id ID shows another)", file=sys.stderr)
    print(dump_task(chosen) if as_yaml else describe(chosen), end="")
    return 0


def _named(spec: str) -> list[Task]:
    """Load by spec, or by the bare id of a library task."""
    scheme = spec.partition(":")[0]
    if scheme in (library.SCHEME, generated.SCHEME) or Path(spec).expanduser().exists():
        return load_tasks(spec)
    shipped = library.load()
    found = [task for task in shipped if task.id == spec]
    if not found:
        message = unknown_key(spec, [task.id for task in shipped], "task")
        raise TaskError(f"{message}. A source works too: generated:FAMILY, a YAML file or a folder")
    return found


def describe(task: Task) -> str:
    """Write a task for people: what the agent is asked and finds, how it is judged, and how it can be done."""
    lines = [f"{task.id}  ({task.family or 'hand-written'}, {task.difficulty})  hash {task.content_hash[:12]}", ""]
    if task.persona is not None:
        context = f": {task.persona.context}" if task.persona.context else ""
        lines.append(f"Asked by a {task.persona.role}{context}")
    lines += ["Request", *_indent(task.intent), "", "Workspace"]
    entries = task.files()
    lines += [f"  {_listed(path, entry)}" for path, entry in entries.items()] or ["  (empty)"]
    for path, entry in entries.items():
        if entry.kind is EntryKind.FILE:
            lines += ["", f"  --- {path}", *_content(entry)]
    budget = task.budget
    lines += ["", f"Budget  {budget.max_turns} turns, {budget.command_seconds:g} s a command, "]
    lines[-1] += f"{budget.turn_tokens} tokens a turn"
    lines += ["", f"Judged by ({len(task.assertions)}, all must hold)"]
    for assertion in task.assertions:
        weight = f"  (weight {assertion.weight:g})" if assertion.weight != 1 else ""
        name = "" if assertion.name == assertion.default_name() else f"{assertion.name}: "
        lines.append(f"  {name}{assertion.kind}: {assertion.describe()}{weight}")
    lines += ["", "Oracle"]
    if task.oracle is None:
        lines.append("  none: the task cannot be proven")
    else:
        for number, command in enumerate(task.oracle.commands, start=1):
            first, *rest = command.rstrip("\n").split("\n")
            lines += [f"  {number}$ {first}", *(f"     {line}" for line in rest)]
    return "\n".join(lines) + "\n"


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


def _indent(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.split("\n")]


def _listed(path: str, entry: FileEntry) -> str:
    if entry.kind is EntryKind.DIR:
        return f"{path}/"
    if entry.kind is EntryKind.SYMLINK:
        return f"{path} -> {entry.target}"
    mode = "" if entry.mode == 0o644 else f", mode {entry.mode:04o}"
    return f"{path}  ({entry.size} bytes{mode})"


def _content(entry: FileEntry) -> list[str]:
    content = entry.content or b""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if any(ord(character) < 32 and character not in "\n\t\r" for character in text):
        return [f"  | (no text: {content[:16].hex(' ')}{' ...' if len(content) > 16 else ''})"]
    lines = text.removesuffix("\n").split("\n") if text else []
    shown = [f"  | {line}".replace("\r", "\\r").rstrip() for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        shown.append(f"  | ... {len(lines) - SHOWN_LINES} more lines")
    if text and not text.endswith("\n"):
        shown.append("  | (no newline at the end)")
    return shown or ["  | (empty)"]
