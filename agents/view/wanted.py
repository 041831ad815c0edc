"""What a task wanted: the files it began with, and what each of its checks asks for.

A record keeps of each check a finding of one line, and no contents of files. What should have been stands in the task,
so it is taken from there, where the task is at hand and still the same: its content hash must be the recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from agents.commands import recorded_tasks
from agents.trajectory import RecordError
from agents.view.pack import safe
from tasks.task import Task
from tasks.workspace import FileSpec

NONE = "none"
"""Names no tasks: the page then holds none, for readers who must not see them."""
SHOWN_BYTES = 20_000
"""A file of a workspace beyond this is named with its size alone."""
_NAMED = frozenset({"name", "path", "kind", "weight"})
"""What a record tells of an assertion itself."""


class Wanted:
    """Finds the tasks of episodes.

    Args:
        named: Where the tasks are; `None`: as the folder of their run says. `NONE`: nowhere.
    """

    def __init__(self, named: str | None = None) -> None:
        self._named = named
        self._loaded: dict[Path, dict[str, Task]] = {}
        self.notes: dict[Path, str] = {}
        """Folders whose tasks could not be loaded, and why."""

    def of(self, folder: Path, file: Path, seen: Iterable[tuple[str, str]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """What the tasks of some episodes wanted, each under its content hash; those that have changed are left out.

        Args:
            folder: Of the run: its tasks are loaded once.
            file: Of episodes, in it.
            seen: Id and content hash of each task.
        """
        known = {(task, digest) for task, digest in seen if digest}
        if not known or self._named == NONE or folder in self.notes:
            return
        if folder not in self._loaded:
            try:
                self._loaded[folder] = recorded_tasks(file, self._named)[0]
            except RecordError as error:
                self.notes[folder] = str(error)
                return
        for name, digest in sorted(known):
            task = self._loaded[folder].get(name)
            if task is not None and task.content_hash == digest:
                yield digest, wanted(task)


def wanted(task: Task) -> dict[str, Any]:
    """The intent of a task, its files at the start as text, and the settings of each check as text, by its name."""
    return {
        "intent": task.intent,
        "files": {path: _content(spec) for path, spec in task.workspace.files.items()},
        "checks": {
            one.name or one.default_name(): [
                [key, value if isinstance(value, str) else json.dumps(safe(value), ensure_ascii=False)]
                for key, value in one.model_dump(mode="json", exclude_defaults=True).items()
                if key not in _NAMED
            ]
            for one in task.assertions
        },
    }


def _content(spec: FileSpec) -> str:
    if spec.symlink is not None:
        return f"(a link to {spec.symlink})"
    if spec.size is not None:
        return f"({spec.size:,} zero bytes)"
    content = spec.entry().content or b""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return f"({len(content):,} bytes that are no text)"
    return text if len(content) <= SHOWN_BYTES else f"({len(content):,} bytes)"
