"""What other installed packages add, through entry points: task sources and assertion kinds."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tasks.problems import TaskError

TASKS = "turngym.tasks"
"""Group of task sources. The name is the scheme of a spec; the object takes what follows `scheme:`, returns tasks."""

ASSERTIONS = "turngym.assertions"
"""Group of assertion kinds. The name is the kind; the object is a subclass of `BaseAssertion`."""


def plugins(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, none of them imported.

    Raises:
        TaskError: two packages offer the same name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise TaskError(
                f"two packages offer '{entry.name}' in the entry-point group {group}: {_origin(other)} and "
                f"{_origin(entry)}; uninstall one"
            )
    return found


def load_plugin(entry: EntryPoint) -> Any:
    """Import what an entry point names.

    Raises:
        TaskError: it cannot be imported; says which package offers it, and why it fails.
    """
    try:
        return entry.load()
    except Exception as error:  # whatever a foreign module does while it is imported, its name must be in the message
        raise TaskError(
            f"'{entry.name}' of the entry-point group {entry.group} ({_origin(entry)}) cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


def _origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "an unnamed package"
    return f"{entry.value} of {package}"
