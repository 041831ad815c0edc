"""What `python -m tasks import` and `generate` do: tasks of any source, written as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.problems import Problem, TaskError, collected, counted
from tasks.sources import load_tasks
from tasks.sources.fieldnotes import SUFFIX as RECORDS
from tasks.sources.fieldnotes import write
from tasks.sources.generated import load_generated
from tasks.task import Task
from tasks.yaml_io import dump_task, parse_task


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
