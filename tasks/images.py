"""Which image a task is played in, and by which id: the content hash knows its name or recipe alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxes.docker.dockerfile import tag_of
from sandboxes.sandbox import REMOTE, Backend
from tasks.model import Problem, TaskError

if TYPE_CHECKING:
    from tasks.task import Task

IMAGES = "images"
"""Key of a record under which ids of images stand by name."""
_ID = len("sha256:") + 12
"""Letters of an id that people are shown."""


def image_of(task: Task) -> str | None:
    """The image that a task asks for, by its name or as what its Dockerfile becomes; `None` for the sandbox's own."""
    return task.image if task.dockerfile is None else tag_of(task.dockerfile.text)


def image_ids(tasks: Sequence[Task], sandbox: str) -> dict[str, list[str]]:
    """Ids of the images in which a sandbox of this name plays tasks, by the names of the images.

    There are several where engines have different ones, none where no engine has the image. For a sandbox on the nodes
    of a cluster the engines of all its nodes are asked. Of a sandbox without images nothing is known: `{}`.

    Raises:
        SandboxUnavailable: No engine answers, here or on a node, or one fails.
    """
    if sandbox.removeprefix(REMOTE) != Backend.DOCKER or not tasks:
        return {}
    from sandboxes.docker import dockerfile  # with the next ones: few ask for them
    from sandboxes.docker.launcher import default_image
    from sandboxes.nodes import on_each_node

    names = tuple(dict.fromkeys(image_of(task) or default_image() for task in tasks))
    ask = partial(dockerfile.image_ids, names)
    answers = on_each_node(ask) if sandbox.startswith(REMOTE) else [ask()]
    return {name: sorted({one for ids in answers for one in ids[name]}) for name in names}


def refuse_missing_images(tasks: Sequence[Task], sandbox: str) -> dict[str, list[str]]:
    """Refuse tasks of which no engine has the image, each by its id: all their episodes would end as failures.

    Returns:
        What `image_ids` does, for the record: engines are asked once.

    Raises:
        TaskError: The problems of all.
        SandboxUnavailable: As in `image_ids`.
    """
    ids = image_ids(tasks, sandbox)
    missing = [task for task in tasks if ids.get(image_of(task) or "") == []]
    if missing:
        raise TaskError(*(Problem(no_image(task), task.id, key=image_key(task)) for task in missing))
    return ids


def image_key(task: Task) -> str:
    """The key of a task that says which image."""
    return "image" if task.dockerfile is None else "dockerfile"


def no_image(task: Task) -> str:
    """What to say of a task whose image no engine has."""
    if task.dockerfile is not None:
        return "it is not built on this engine; remedy: python -m tasks check --build, for who trusts the task"
    return f"the image {task.image!r} is not on this engine; remedy: build or load it there"


def image_lines(ids: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each image, for people."""
    return [f"image {name}: {_shown_ids(one)}" for name, one in ids.items() if one]


def recorded_images(path: Path) -> dict[str, list[str]]:
    """Ids of images by name in a file that records where episodes ran; `{}` where it is not there or names none.

    Raises:
        ValueError: It is damaged.
        OSError: It cannot be read.
    """
    if not path.exists():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    found = record.get(IMAGES, {}) if isinstance(record, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"it holds no names under {IMAGES!r}")
    return found


def other_images(before: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]) -> list[str]:
    """A line for each image that an earlier record and today know by different ids; what one does not know is no line.

    Args:
        before: Ids by name, as `image_ids` gave them for the record.
        now: As it gives them today.
    """
    return [
        f"the image {name} is {_shown_ids(ids)}, and was {_shown_ids(before[name])}: commands may act otherwise than "
        "then; load the image of then, or go on where that does not matter"
        for name, ids in now.items()
        if ids and before.get(name) and set(before[name]) != set(ids)
    ]


def _shown_ids(ids: Sequence[str]) -> str:
    return " and ".join(one[:_ID] for one in ids)
