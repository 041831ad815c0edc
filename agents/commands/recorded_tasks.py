"""The tasks of stored episodes: those that are named, or those that the folder of their run names in its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from agents.jsonl import RecordError
from tasks.problems import TaskError
from tasks.sources import load_tasks
from tasks.split_lock import SUFFIX
from tasks.task import Task

SETTINGS, MACHINE = "config.yaml", "environment.json"
"""Both lie in the folder of a run and of an evaluation; their episodes lie there too, or one or two folders below."""
DEFAULT = "library"


def recorded_tasks(file: str | Path, named: str | None) -> tuple[dict[str, Task], str]:
    """The tasks of the episodes in `file` by id, and where they come from, for people.

    Args:
        file: A file of episodes.
        named: What the user says; `None` takes what the run's folder says, and the library where there is none.

    Raises:
        RecordError: They cannot be loaded.
        OSError: A file cannot be read.
    """
    settings = None if named else _settings(Path(file))
    sources = [named or DEFAULT] if settings is None else settings[1]
    tasks: dict[str, Task] = {}
    try:
        for source in sources:
            for task in load_tasks(source):
                tasks.setdefault(task.id, task)  # of a pool and held-out tasks of one name, the run took the pool's
    except TaskError as error:
        if settings is None:
            raise RecordError(str(error)) from error
        raise RecordError(
            f"{settings[0]} names the tasks of these episodes, and they cannot be loaded: say with --tasks where they "
            f"are now\n{error}"
        ) from error
    where = ", ".join(map(str, sources))
    return tasks, where if settings is None else f"{where} (as {settings[0]} says)"


def _settings(file: Path) -> tuple[Path, list[Any]] | None:
    """The settings of the run or evaluation that wrote `file`, and the sources they name; `None` without."""
    for folder in file.resolve().parents[:3]:
        path = folder / SETTINGS
        if not path.is_file() or not (folder / MACHINE).is_file():
            continue
        try:
            settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise RecordError(f"{path}: cannot be read ({error}): say with --tasks where the tasks are") from error
        if isinstance(settings, dict) and settings.get("tasks"):
            held_out = settings.get("held_out") or "none"
            by_itself = held_out not in ("none", "split") and not str(held_out).endswith(SUFFIX)
            return path, [settings["tasks"], *([held_out] if by_itself else [])]
    return None
