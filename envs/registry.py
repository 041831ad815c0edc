"""The environments by id, one row each: `gymnasium.make`, `make_vec`, `Mixed-v0`, `--env`, replay and help read them.

A project adds its own in one of two ways:

* a call, `register_environment("Guess-v0", GuessEnv)`, in the module that has the class. `guess:Guess-v0` as an id
  imports that module first, as in Gymnasium, so a file in the current folder is enough;
* an entry point of the group `turngym.environments` in its package: the name is the id, the object the class.

What an environment takes (its default tasks, the kind of answer that it asks for, settings of its own) the class says.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import Any

from gymnasium.envs import registration

from envs.conversation import ConversationEnv
from tasks.plugins import Registry

GROUP = "turngym.environments"
"""Group of entry points."""

BUILT_IN = {
    "ClawGym-v0": "envs.clawgym:ClawGymEnv",
    "GSM8K-v0": "envs.questions:GSM8KEnv",
    "MATH-v0": "envs.questions:MATHEnv",
    "IFEval-v0": "envs.questions:IFEvalEnv",
    "Mixed-v0": "envs.mixed:MixedEnv",
    "ClawGym-v1": "envs.user:ClawGymUserEnv",
}
"""Those that ship: id and where the class is (they are imported when they are asked for: some read this table)."""


def _taken(name: str, kind: Any) -> type[ConversationEnv]:
    if not re.fullmatch(r".+-v\d+", name):
        raise ValueError("is no id of an environment: write a name and a version, such as Guess-v0")
    if not (isinstance(kind, type) and issubclass(kind, ConversationEnv)):
        raise ValueError("must be a class that extends envs.ConversationEnv")
    return kind


_ENVIRONMENTS: Registry[str | type[ConversationEnv]] = Registry("environment", GROUP, BUILT_IN, take=_taken)


def register_environment(name: str, kind: type[ConversationEnv]) -> None:
    """Add an environment, for this process; Gymnasium knows it then, too.

    Args:
        name: Its id, such as `Guess-v0`.
        kind: The class.

    Raises:
        tasks.plugins.PluginError: This is no id, it is taken, or the class is no environment.
    """
    _ENVIRONMENTS.register(name, kind)
    asking_for.cache_clear()
    _id_of.cache_clear()
    _tell_gymnasium(name, f"{kind.__module__}:{kind.__qualname__}")


def environment(name: str) -> type[ConversationEnv]:
    """The class of an id.

    Args:
        name: An id, or `module:id`, which imports the module first.

    Raises:
        ValueError: There is none of this id (the message lists all), or it cannot be imported.
    """
    module, _, name = name.rpartition(":")
    if module:
        try:
            importlib.import_module(module)
        except Exception as error:  # whatever a foreign module does then, its name must be in the message
            raise ValueError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    row = _ENVIRONMENTS.find(name)
    if not isinstance(row, str):
        return row
    place, _, attribute = row.partition(":")
    return _taken(name, getattr(importlib.import_module(place), attribute))


def environment_ids() -> list[str]:
    """All ids: those that ship, then those of calls, then those of other packages. Nothing is imported."""
    return _ENVIRONMENTS.names()


def environments() -> Iterator[tuple[str, type[ConversationEnv]]]:
    """Each id and its class, in the order of `environment_ids`; a class is imported when its turn comes."""
    yield from ((name, environment(name)) for name in list(_ENVIRONMENTS))  # before a look at installed packages
    yield from ((name, environment(name)) for name in environment_ids() if name not in _ENVIRONMENTS)


def id_of(kind: type[ConversationEnv]) -> str | None:
    """The id of a class, with its module before it where it does not ship (then `environment` finds it anywhere)."""
    asked: Any = kind  # mypy takes the class's own `__hash__` for that of its instances
    return _id_of(asked)


@cache  # the record of every episode asks, and a look at installed packages takes milliseconds
def _id_of(kind: Any) -> str | None:
    name = next((name for name, other in environments() if other is kind), None)
    return name if name is None or name in BUILT_IN else f"{kind.__module__}:{name}"


@cache  # every reset of a mix asks, and a look at installed packages takes milliseconds
def asking_for(judge: str) -> tuple[str, type[ConversationEnv]] | None:
    """Id and class of the environment that asks for an answer which a kind of assertion judges; `None` without one."""
    return next(((name, kind) for name, kind in environments() if kind.judged_by == judge), None)


def takes(kind: type[ConversationEnv], setting: str) -> bool:
    """Whether a class has a setting of this name: its own, or one that it passes on to a base."""
    made = (base.__init__ for base in kind.__mro__ if "__init__" in vars(base) and issubclass(base, ConversationEnv))
    return any(setting in inspect.signature(init).parameters for init in made)


def register_all() -> None:
    """Make every environment known to Gymnasium, those that ship also under `TurnGym/`. A second call adds nothing."""
    for name, place in BUILT_IN.items():
        _tell_gymnasium(name, place)
        _tell_gymnasium(f"TurnGym/{name}", place)
    for entry in entry_points(group=GROUP):
        _tell_gymnasium(entry.name, entry.value)


def _tell_gymnasium(name: str, place: str) -> None:
    if name not in registration.registry:
        plain = name.removeprefix("TurnGym/")
        registration.register(name, entry_point=place, vector_entry_point=f"envs.vector:{plain}")
        if plain in BUILT_IN and not plain.endswith("-v0"):
            # Another protocol, no newer release: with a version here Gymnasium would call `-v0` out of date.
            registration.registry[name].version = None
