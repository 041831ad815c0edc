"""The environments by id, one row each: `gymnasium.make`, `make_vec`, `Mixed-v0`, `--env`, replay and help read them.

A project adds its own in one of two ways:

* a call, `register_environment("Guess-v0", "guess:GuessEnv")`, in the module that has the class. `guess:Guess-v0` as an
  id imports that module first, as in Gymnasium, so a file in the current folder is enough;
* an entry point of the group `turngym.environments` in its package: the name is the id, the object the class.

What an environment takes (its default tasks, the kind of answer that it asks for, settings of its own) the class says.
"""

from __future__ import annotations

import importlib
import inspect
import re
import warnings
from collections.abc import Iterator
from typing import Any

from gymnasium.envs import registration

from envs.conversation import ConversationEnv
from tasks.model import unknown_key
from tasks.plugins import load_plugin, plugins
from tasks.problems import TaskError

GROUP = "turngym.environments"
"""Group of entry points."""

BUILT_IN = {
    "ClawGym-v0": "envs.clawgym:ClawGymEnv",
    "GSM8K-v0": "envs.gsm8k:GSM8KEnv",
    "MATH-v0": "envs.math:MATHEnv",
    "IFEval-v0": "envs.ifeval:IFEvalEnv",
    "Mixed-v0": "envs.mixed:MixedEnv",
}
"""Those that ship: id and where the class is."""

_ID = re.compile(r"(?:[\w:.-]+/)?[\w:.-]+-v\d+")
_called: dict[str, str | type[ConversationEnv]] = {}
"""Those that calls have registered."""


def register_environment(name: str, entry: str | type[ConversationEnv]) -> None:
    """Add an environment; the same one twice is no mistake.

    Args:
        name: Its id, such as `Guess-v0`.
        entry: The class, or where it is: `module:Class`.

    Raises:
        ValueError: This is no id, or it is taken.
    """
    if not _ID.fullmatch(name):
        raise ValueError(f"'{name}' is no id of an environment: write a name and a version, such as Guess-v0")
    known = {**BUILT_IN, **_called}.get(name)
    if known is not None and _place(known) != _place(entry):
        raise ValueError(f"environment {name} is {_place(known)} already, and cannot be {_place(entry)} as well")
    _called[name] = entry
    _tell_gymnasium(name, _place(entry))


def environment(name: str) -> type[ConversationEnv]:
    """The class of an id.

    Args:
        name: An id, or `module:id`, which imports the module first.

    Raises:
        ValueError: There is none of this id, or it cannot be imported.
    """
    module, _, name = name.rpartition(":")
    if module:
        _import(module, f"environment {module}:{name}")
    if name in BUILT_IN:
        return _loaded(name, BUILT_IN[name])
    if name in _called:
        return _loaded(name, _called[name])
    try:
        offered = plugins(GROUP)
        if name in offered:
            return _checked(name, load_plugin(offered[name]))
    except TaskError as error:
        raise ValueError(f"environment {name}: {error}") from error
    raise ValueError(unknown_key(name, environment_ids(), "environment"))


def environment_ids() -> list[str]:
    """All ids: those that ship, then those of calls, then those of other packages."""
    return list(dict.fromkeys([*BUILT_IN, *_called, *_offered()]))


def environments() -> Iterator[tuple[str, type[ConversationEnv]]]:
    """Each id and its class, in the order of `environment_ids`; a class is imported when its turn comes."""
    return ((name, environment(name)) for name in environment_ids())


def id_of(kind: type[ConversationEnv]) -> str | None:
    """The id of a class, with its module before it where it does not ship (then `environment` finds it anywhere)."""
    name = next((name for name, entry in {**BUILT_IN, **_called}.items() if _place(entry) == _place(kind)), None)
    if name is None:
        name = next((name for name in _offered() if environment(name) is kind), None)
    return name if name is None or name in BUILT_IN else f"{kind.__module__}:{name}"


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
    try:
        for name, entry in plugins(GROUP).items():
            _tell_gymnasium(name, entry.value)
    except TaskError as error:  # whoever asks for such an id meets it as an error; an import must go on
        warnings.warn(str(error), stacklevel=2)


def _tell_gymnasium(name: str, place: str) -> None:
    if name not in registration.registry:
        plain = name.removeprefix("TurnGym/")
        registration.register(name, entry_point=place, vector_entry_point=f"envs.vector:{plain}")


def _offered() -> list[str]:
    try:
        return list(plugins(GROUP))
    except TaskError:  # `environment` says which two packages
        return []


def _place(entry: str | type[ConversationEnv]) -> str:
    return entry if isinstance(entry, str) else f"{entry.__module__}:{entry.__qualname__}"


def _loaded(name: str, entry: str | type[ConversationEnv]) -> type[ConversationEnv]:
    if not isinstance(entry, str):
        return _checked(name, entry)
    module, _, attribute = entry.partition(":")
    found: Any = _import(module, f"environment {name}")
    for part in attribute.split("."):
        found = getattr(found, part, None)
    return _checked(name, found)


def _import(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except Exception as error:  # whatever a foreign module does while it is imported, its name must be in the message
        raise ValueError(f"{what}: {module} cannot be imported: {type(error).__name__}: {error}") from error


def _checked(name: str, found: Any) -> type[ConversationEnv]:
    if not (isinstance(found, type) and issubclass(found, ConversationEnv)):
        raise ValueError(f"environment {name} is {found!r}, and must be a class that extends envs.ConversationEnv")
    return found
