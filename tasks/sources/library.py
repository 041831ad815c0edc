"""The hand-written tasks that ship with the package."""

from __future__ import annotations

from pathlib import Path

from tasks.model import unknown_key
from tasks.problems import TaskError
from tasks.sources.yaml import load_yaml
from tasks.task import Task

LIBRARY = "library"
FOLDER = Path(__file__).resolve().parent.parent / "library"
"""Where the files are; a plain folder in the wheel too."""


def load_library(task_id: str | None = None) -> list[Task]:
    """Load all shipped tasks, sorted by id, or the one with the given id.

    Raises:
        TaskError: no such id; the nearest one is named.
    """
    tasks = sorted(load_yaml(FOLDER), key=lambda task: task.id)
    if task_id is None:
        return tasks
    found = [task for task in tasks if task.id == task_id]
    if not found:
        raise TaskError(unknown_key(task_id, [task.id for task in tasks], "library task"))
    return found
