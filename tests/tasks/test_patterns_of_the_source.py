"""Patterns of ours that `re` would match wrongly on the Python that Debian 12 ships (3.11.2)."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import tasks


def possessive(items: Any) -> Iterator[Any]:
    """Yield what a possessive quantifier or an atomic group of a parsed pattern holds."""
    for op, value in items:
        if op in (_constants.POSSESSIVE_REPEAT, _constants.ATOMIC_GROUP):
            yield value[-1] if op is _constants.POSSESSIVE_REPEAT else value
        for part in value if isinstance(value, tuple) else (value,):
            for inner in part if isinstance(part, list) else (part,):
                if isinstance(inner, _parser.SubPattern):
                    yield from possessive(inner)


def backtracks(items: Any) -> bool:
    """Whether what is repeated is more than one character or set: then Python before 3.11.5 matches it wrongly."""
    return len(items) != 1 or items[0][0] not in (_constants.IN, _constants.LITERAL, _constants.ANY)


def wrong(pattern: re.Pattern[str]) -> bool:
    return any(backtracks(items) for items in possessive(_parser.parse(pattern.pattern, pattern.flags)))


def test_possessive_quantifiers_of_groups_are_left_to_another_library() -> None:
    """gh-106052: answers of `\\boxed{...}` were read wrongly. `regex` has no such fault."""
    assert wrong(re.compile("(?:a|ab)*+c")) and wrong(re.compile("(?>a|ab)c")) and not wrong(re.compile("[ab]*+c"))
    found = []
    for module in pkgutil.walk_packages(tasks.__path__, "tasks."):
        if not module.name.endswith("__main__"):
            names = vars(importlib.import_module(module.name)).items()
            found += [
                f"{module.name}.{n}"
                for n, v in names
                if isinstance(v, re.Pattern) and isinstance(v.pattern, str) and wrong(v)
            ]
    assert found == []
