"""Task files: one YAML file is one task, a folder is all of them in it and below."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tasks.problems import Problem, TaskError, collected
from tasks.task import Task
from tasks.yaml_io import load_task

SUFFIXES = (".yaml", ".yml")


def load_yaml(path: Path) -> list[Task]:
    """Load a file, or every task file in a folder and below, sorted by path.

    Raises:
        TaskError: nothing there, broken files (all problems of all files), or an id that two files share.
    """
    return load_files(task_files(path))


def task_files(path: Path) -> list[Path]:
    """Return the task files that `path` stands for, sorted; hidden files and folders are left out.

    Raises:
        TaskError: a folder without task files, one that may not be read, or a file of another kind.
    """
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES:
            raise TaskError(Problem("is no task file: its name must end in .yaml or .yml", str(path)))
        return [path]

    def refuse(error: OSError) -> None:  # `rglob` would pass over what it may not read, and its tasks would be missing
        raise unreadable(Path(error.filename or path), error) from error

    found = sorted(
        file
        for folder, _, names in os.walk(path, onerror=refuse)
        for file in (Path(folder, name) for name in names)
        if file.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not found:
        raise TaskError(
            Problem(f"holds no task files (*.yaml): `python -m tasks new NAME --dir {path}` writes one", str(path))
        )
    return found


def unreadable(path: Path, error: OSError) -> TaskError:
    """Word that a folder or a file may not be read."""
    return TaskError(Problem(f"cannot be read ({error.strerror}): check its permissions", str(path)))


def load_files(files: Iterable[Path]) -> list[Task]:
    """Load task files; one broken file does not hide the problems of the others.

    Raises:
        TaskError: every problem of every file.
    """
    tasks: dict[str, tuple[Task, Path]] = {}
    errors: list[TaskError] = []
    for file in files:
        try:
            task = load_task(file)
        except TaskError as error:
            errors.append(error)
            continue
        if task.id in tasks:
            first = tasks[task.id][1]
            message = f"the id '{task.id}' is taken by {first}: ids must be unique, rename one"
            errors.append(TaskError(Problem(message, str(file), key="id")))
            continue
        tasks[task.id] = (task, file)
    if errors:
        raise collected(errors)
    return [task for task, _ in tasks.values()]
