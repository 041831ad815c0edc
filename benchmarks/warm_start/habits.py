"""The faults of the demonstrated agent: what it does wrong, and how often.

A policy that learns from rare, random faults is already right when it is decoded greedily, so training it further
shows nothing. Here some families are shown wrong more often than right, always in the same way (a *habit*): a policy
that imitates them starts wrong under greedy decoding, yet samples the right form often enough for a reward to find it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any

from tasks.families.quickstart import FILE_NAMES, FOLDERS, WORDS


def _clobber(command: str) -> str:
    return command.replace(" >> ", " > ")


def _move_for_copy(command: str) -> str:
    return re.sub(r"^cp ", "mv ", command)


def _copy_for_move(command: str) -> str:
    return re.sub(r"^mv ", "cp ", command)


def _not_in_place(command: str) -> str:
    return command.replace("sed -i ", "sed ")


def _only_shown(command: str) -> str:
    return re.sub(r" > \S+$", "", command)


def _no_number(command: str) -> str:
    return re.sub(r"^head -n \d ", "head ", command)


def _ascending(command: str) -> str:
    return command.replace("sort -r ", "sort ")


HABITS: Mapping[str, Callable[[str], str]] = {
    "append": _clobber,
    "backup_append": _clobber,
    "backwards": _ascending,
    "copy": _move_for_copy,
    "drop": _not_in_place,
    "find": _only_shown,
    "head": _no_number,
    "rename": _copy_for_move,
    "rename_append": _copy_for_move,
    "replace": _not_in_place,
    "stow": _copy_for_move,
}
"""Family to its habit: right command to wrong command, or to itself where the habit does not touch it."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How often the demonstrated agent errs. All values are probabilities.

    Attributes:
        habit: Share of a family's demonstrations that show its habit instead of the right form.
        habits: Families with another share than that.
        misname: A command names a wrong file, folder or word.
        retry: A misnamed command that failed is followed by the command that was meant.
        extra: A demonstration holds one needless look around.
        endless: A demonstration never says that it is done; it looks around until its turns are spent.
        repeat: A needless turn repeats the last command instead of looking around.
    """

    habit: float = 0.57
    habits: Mapping[str, float] = field(default_factory=dict)
    misname: float = 0.10
    retry: float = 0.15
    extra: float = 0.25
    endless: float = 0.40
    repeat: float = 0.10

    def __post_init__(self) -> None:
        """Refuse what is no probability, and families that have no habit."""
        for name, value in {**self.habits, **{k: v for k, v in asdict(self).items() if k != "habits"}}.items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"recipe: {name} is {value}, but a probability lies between 0 and 1")
        unknown = sorted(set(self.habits) - set(HABITS))
        if unknown:
            raise ValueError(f"recipe: no habit is known for {', '.join(unknown)} (there are: {', '.join(HABITS)})")

    def share(self, family: str) -> float:
        """Return how often demonstrations of a family show its habit: 0 for a family that has none."""
        return self.habits.get(family, self.habit) if family in HABITS else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as a record for run folders."""
        return {**asdict(self), "habits": dict(self.habits)}


FAULTLESS = Recipe(habit=0.0, misname=0.0, extra=0.0, endless=0.0)
"""Oracle demonstrations: nothing goes wrong."""

_POOLS = {**dict.fromkeys(FILE_NAMES, FILE_NAMES), **dict.fromkeys(FOLDERS, FOLDERS), **dict.fromkeys(WORDS, WORDS)}
_NAME = re.compile(r"[a-z]+(?:\.[a-z]+)?")


def misname(rng: Random, command: str, present: Collection[str]) -> str:
    """Return the command with one of its names exchanged for another of the same kind.

    Args:
        rng: Where the choice comes from.
        command: A right command; it holds at least one word of the vocabulary.
        present: Paths of the workspace: half of the wrong file names are among them, if it has any other.
    """
    spots = [match for match in _NAME.finditer(command) if match[0] in _POOLS]
    spot = rng.choice(spots)
    taken = {match[0] for match in spots}
    pool = _POOLS[spot[0]]
    if pool is FILE_NAMES and rng.random() < 0.5:
        pool = tuple(sorted(path for path in present if _POOLS.get(path) is FILE_NAMES and path not in taken)) or pool
    word = rng.choice(pool)
    while word in taken:
        word = rng.choice(pool)
    return command[: spot.start()] + word + command[spot.end() :]
