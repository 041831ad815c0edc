"""Procedural tasks by spec: `generated:<family>?n=100&seed=0`."""

from __future__ import annotations

from tasks.model import unknown_key
from tasks.problems import TaskError
from tasks.task import Task

GENERATED = "generated"
DEFAULTS = {"n": 100, "seed": 0}
"""Parameters of the spec, and what they are where the spec leaves them out."""


def load_generated(rest: str) -> list[Task]:
    """Generate the tasks for what stands after `generated:`.

    Raises:
        TaskError: unknown family or parameter (the nearest is named), or a number that makes no sense.
    """
    from tasks.families import NAMES, generate  # only here: other sources need not pay for this import

    family, numbers = read_generated(rest)
    if family not in NAMES:
        raise TaskError(f"{GENERATED}:{rest}: " + unknown_key(family, NAMES, "family"))
    return generate(family, numbers["n"], numbers["seed"])


def read_generated(rest: str) -> tuple[str, dict[str, int]]:
    """Return the family and the parameters (those of `DEFAULTS`) of what stands after `generated:`.

    Raises:
        TaskError: unknown parameter, or a number that makes no sense; whether there is such a family is not looked at.
    """
    family, _, query = rest.partition("?")
    return family, _parse(query, f"{GENERATED}:{rest}")


def _parse(query: str, spec: str) -> dict[str, int]:
    numbers = dict(DEFAULTS)
    seen: set[str] = set()
    for item in query.split("&") if query else ():
        name, _, value = item.partition("=")
        if name not in DEFAULTS:
            raise TaskError(f"{spec}: " + unknown_key(name, DEFAULTS, "parameter"))
        if name in seen:
            raise TaskError(f"{spec}: '{name}' is given twice")
        seen.add(name)
        try:
            numbers[name] = int(value)
        except ValueError:
            raise TaskError(f"{spec}: {name}='{value}' is no whole number") from None
    if numbers["n"] < 1:
        raise TaskError(f"{spec}: n={numbers['n']} asks for no tasks: n must be at least 1")
    return numbers
