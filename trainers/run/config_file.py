"""A YAML file of settings, strictly: keys that exist, once each, with values of their kind, each fault with its line.

`TrlParser` makes such values its defaults, and argparse looks at no default that is not text: a seed of 1.5, a learning
rate that was left empty or a list of steps would arrive as they are.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tasks.settings import rules_of
from trainers.errors import ConfigError
from trainers.run.settings_file import read_settings

LISTS = ("tasks",)
"""Texts that may be a list in a file."""
_KINDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a mapping",
}  # fmt: skip
Groups = tuple[Any, ...]
"""Dataclasses of settings."""


@cache
def known_settings(groups: Groups) -> Mapping[str, dataclasses.Field[Any]]:
    """Every setting by name."""
    return {f.name: f for group in groups for f in dataclasses.fields(group) if f.init}


def suggest(name: str, known: Collection[str]) -> str:
    """The known setting that was probably meant, for the end of a message."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else "; `--help` lists the common ones, `--help-all` all"


def read_config(path: Path, groups: Groups) -> dict[str, Any]:
    """The settings of a file.

    Raises:
        ConfigError: It cannot be read, or one line per key or value that does not fit.
    """
    document, known = read_settings(path), known_settings(groups)
    wrong = []
    for name, value in document.data.items():
        kinds = _kinds(name, groups) if name in known else frozenset()
        why = _misfit(known[name], kinds, value) if name in known else f"unknown key `{name}`{suggest(name, known)}"
        wrong += [document.complain(why, (name,))] if why else []
    if wrong:
        raise ConfigError("\n".join(f"{problem.file}:{problem.line}: {problem.message}" for problem in wrong))
    return {name: _as_kind(_kinds(name, groups), value) for name, value in document.data.items()}


def _misfit(f: dataclasses.Field[Any], kinds: frozenset[type], value: Any) -> str | None:
    """Why a value cannot be that of a setting."""
    if not kinds or (isinstance(value, list) and f.name in LISTS):
        return None
    if value is None:
        return None if type(None) in kinds else f"`{f.name}` has no value: give it one, or leave the line out"
    choices = rules_of(f).choices or f.metadata.get("choices")
    if choices and value not in tuple(choices) and not isinstance(value, bool):
        return f"{f.name}={value!r}: one of {', '.join(map(str, choices))}"
    if _fits(value, kinds):
        takes = rules_of(f).misfit(value)
        return f"{f.name}={value!r}: {takes}" if takes else None
    if isinstance(value, bool) and str in kinds:
        return f"`{f.name}`: YAML reads yes, no, on and off as true and false. Put the word in quotes"
    wanted = " or ".join(text for kind, text in _KINDS.items() if kind in kinds)
    return f"{f.name}={value!r}: {wanted} is needed"


def _fits(value: Any, kinds: frozenset[type]) -> bool:
    if isinstance(value, str):
        if str in kinds or bool in kinds:  # what is neither true nor false is refused with the flags
            return True
        return any(_reads_as(value, kind) for kind in (int, float) if kind in kinds)  # 1e-4 is a text in YAML 1.1
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int):
        return bool(kinds & {int, float, str})
    if isinstance(value, float):
        return bool(kinds & {float, str})
    return type(value) in kinds


def _reads_as(text: str, kind: type) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _as_kind(kinds: frozenset[type], value: Any) -> Any:
    """A number as the text that a setting is (`unseen_families: 2`), and the reverse (`1e-4`); others as they are."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and kinds and not kinds & {int, float}:
        return str(value)
    if isinstance(value, str) and not kinds & {str, bool}:
        return next((kind(value) for kind in (int, float) if kind in kinds and _reads_as(value, kind)), value)
    return value


@cache
def _kinds(name: str, groups: Groups) -> frozenset[type]:
    """The plain types that a setting takes; none where it takes others, too, which are not judged here."""
    hint = next(hints[name] for group in reversed(groups) if name in (hints := typing.get_type_hints(group)))
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    found = {typing.get_origin(part) or part for part in parts}
    found = {str if isinstance(part, type) and issubclass(part, str) else part for part in found}
    plain = found & {*_KINDS, type(None)}
    return frozenset(plain) if plain == found or str in found else frozenset()
