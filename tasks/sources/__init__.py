"""Where tasks come from: the shipped library, procedural families, a YAML file or a folder of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tasks.model import nearest
from tasks.problems import Problem, TaskError, collected
from tasks.sources import generated, library, yaml
from tasks.task import Task

Spec = str | Path | Sequence[str | Path]
"""What `load_tasks` takes."""


def load_tasks(spec: Spec) -> list[Task]:
    """Load the tasks that `spec` names, in a fixed order.

    Args:
        spec: One of the following, or a list of them:

            * ``library``: all tasks that ship; ``library:ID``: one of them.
            * ``generated:FAMILY?n=100&seed=0``: `n` tasks of a procedural family (or of ``quickstart``, the mix).
            * A YAML file, or a folder: every ``*.yaml`` and ``*.yml`` in it and below.

    Returns:
        At least one task; no two share an id. A task that two specs name is listed once.

    Raises:
        TaskError: no such source, or broken files; every problem of every file is listed.
    """
    parts = [spec] if isinstance(spec, str | Path) else list(spec)
    if not parts:
        raise TaskError("no tasks named: give library, generated:FAMILY, a YAML file or a folder")
    tasks: dict[str, Task] = {}
    errors: list[TaskError] = []
    for part in parts:
        try:
            loaded = _load(part)
        except TaskError as error:
            errors.append(error)
            continue
        for task in loaded:
            other = tasks.setdefault(task.id, task)
            if other.content_hash != task.content_hash:
                errors.append(
                    TaskError(Problem(f"the id '{task.id}' names two different tasks: rename one", str(part)))
                )
    if errors:
        raise collected(errors)
    return list(tasks.values())


def _load(spec: str | Path) -> list[Task]:
    if isinstance(spec, str):
        scheme, colon, rest = spec.partition(":")
        if scheme == library.SCHEME:
            return library.load(rest if colon else None)
        if scheme == generated.SCHEME:
            return generated.load(rest)
    path = Path(spec).expanduser()
    if not path.exists():
        guess = nearest(str(spec).partition(":")[0], (library.SCHEME, generated.SCHEME))
        hint = f"did you mean '{guess}'? " if guess else ""
        raise TaskError(
            f"no tasks at '{spec}': {hint}there is no such file or folder, and it is neither library, library:ID nor "
            "generated:FAMILY?n=100&seed=0"
        )
    return yaml.load(path)
