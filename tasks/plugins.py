"""What others add: entry points of installed packages, and one registry per kind of thing.

A `Registry` holds what ships under a name. Others add to it in one of two ways:

* a program calls `REGISTRY.register(name, thing)`;
* an installed package names the thing in the registry's entry-point group. It is imported when its name is asked for.

Task sources and assertion kinds, whose names are looked up in many places at a time, use the entry points directly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from tasks.model import TaskError, unknown_key

T = TypeVar("T")

TASKS = "turngym.tasks"
"""Group of task sources. The name is the scheme of a spec; the object takes what follows `scheme:`, returns tasks."""

ASSERTIONS = "turngym.assertions"
"""Group of assertion kinds. The name is the kind; the object is a subclass of `BaseAssertion`."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
"""Without a colon (a policy's name ends there) and without a comma (operators are named in a list)."""


class PluginError(TaskError):
    """Something of another package's or program's cannot be used, or nothing has the name.

    A `TaskError` since task files and specs name plugins, too; whoever reports the one reports the other.
    """


def plugins(group: str, name: str | None = None) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, none of them imported.

    Args:
        group: Such as `turngym.tasks`.
        name: Return only what has this name; others that clash do no harm then.

    Raises:
        PluginError: two packages offer the same name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if name is not None and entry.name != name:
            continue
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise PluginError(
                f"two packages offer '{entry.name}' in the entry-point group {group}: {_origin(other)} and "
                f"{_origin(entry)}; uninstall one"
            )
    return found


def load_plugin(entry: EntryPoint) -> Any:
    """Import what an entry point names.

    Raises:
        PluginError: it cannot be imported; says which package offers it, and why it fails.
    """
    try:
        return entry.load()
    except Exception as error:  # whatever a foreign module does while it is imported, its name must be in the message
        raise PluginError(
            f"'{entry.name}' of the entry-point group {entry.group} ({_origin(entry)}) cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error


class Registry(dict[str, T]):
    """The things of one kind by name: those that ship, and those that `register` was given.

    As a mapping it has what is known without a look at installed packages; `find` and `names` look there, too.

    Args:
        what: The kind of thing, for messages: `reward`.
        group: Its entry-point group.
        rows: What ships.
        take: Makes a row from what others give and its name; a `ValueError` says why it cannot. Default: as it is.
        reserved: Further names that nobody may take.
    """

    def __init__(
        self,
        what: str,
        group: str,
        rows: Mapping[str, T],
        *,
        take: Callable[[str, Any], T] | None = None,
        reserved: Iterable[str] = (),
    ) -> None:
        super().__init__(rows)
        self.what, self.group = what, group
        self._take = take
        self._shipped = frozenset(rows)
        self._reserved = self._shipped | frozenset(reserved)
        self._given: dict[str, Any] = {}
        """What `register` was given."""
        self._found: dict[str, tuple[EntryPoint | None, T]] = {}
        """What `find` has answered, so that installed packages are looked at once for each name."""

    def ships(self, name: str) -> bool:
        """Whether the thing of this name is one of ours."""
        return name in self._shipped

    def register(self, name: str, thing: Any) -> None:
        """Add a thing under a name, for this process. The same again (a cell of a notebook run twice) replaces it.

        Raises:
            PluginError: the name is taken, or no name; the thing is none of this kind.
        """
        if not _NAME.fullmatch(name):
            raise PluginError(f"'{name}' is no name of a {self.what}: a letter, then letters, digits, '.', '_', '-'")
        if name in self._reserved:
            raise PluginError(f"the {self.what} '{name}' ({_place(thing)}) has the name of one of ours: choose another")
        if name in self._given and _place(self._given[name]) != _place(thing):
            raise PluginError(
                f"two things are registered as the {self.what} '{name}': {_place(self._given[name])} and "
                f"{_place(thing)}; rename one"
            )
        self[name] = self._taken(name, thing, _place(thing))
        self._given[name] = thing
        self._found.pop(name, None)

    def names(self) -> list[str]:
        """Every name: what ships first, then what was registered, then what is installed. Nothing is imported."""
        installed = {entry.name for entry in entry_points(group=self.group)}
        return [*self, *sorted(installed - set(self) - self._reserved)]

    def known(self, name: str) -> bool:
        """Whether there is anything of this name; nothing is imported."""
        return name in self or (name not in self._reserved and bool(plugins(self.group, name)))

    def find(self, name: str) -> T:
        """The thing of a name; what another package offers is imported now.

        Raises:
            PluginError: there is none (the message lists what there is), two have the name, or it cannot be used.
        """
        if name in self._found:
            entry, row = self._found[name]
            if entry is not None or self.get(name) is row:
                return row
        entry = plugins(self.group, name).get(name)
        if name in self:
            self._refuse_second(name, entry)
            row, entry = self[name], None
        elif entry is not None:
            if name in self._reserved:
                raise PluginError(f"the {self.what} '{name}' of {_origin(entry)} has the name of one of ours")
            row = self._taken(name, load_plugin(entry), _origin(entry))
        else:
            raise PluginError(unknown_key(name, self.names(), self.what))
        self._found[name] = (entry, row)
        return row

    def _refuse_second(self, name: str, entry: EntryPoint | None) -> None:
        """What is known under a name and offered by a package must be the same thing."""
        if entry is None:
            return
        if name in self._shipped:
            raise PluginError(f"the {self.what} '{name}' of {_origin(entry)} has the name of one of ours; uninstall it")
        given = self._given.get(name, self[name])
        if load_plugin(entry) is not given:
            raise PluginError(
                f"two things are the {self.what} '{name}': {_place(given)}, which was registered, and "
                f"{_origin(entry)}; rename one"
            )

    def _taken(self, name: str, thing: Any, origin: str) -> T:
        if self._take is None:
            row: T = thing
            return row
        try:
            return self._take(name, thing)
        except ValueError as error:
            raise PluginError(f"the {self.what} '{name}' ({origin}): {error}") from error


def _origin(entry: EntryPoint) -> str:
    package = entry.dist.name if entry.dist else "an unnamed package"
    return f"{entry.value} of {package}"


def _place(thing: Any) -> str:
    """Where a thing is defined, as an entry point would name it."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{named.__module__}:{named.__qualname__}"
