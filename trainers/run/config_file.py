"""A YAML file of settings, strictly: keys that exist, once each, with values of their kind, each fault with its line.

`TrlParser` makes such values its defaults, and argparse looks at no default that is not text: a seed of 1.5, a learning
rate that was left empty or a list of steps would arrive as they are.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from agents.t2po import T2POConfig
from tasks.settings import rules_of
from trainers.config import EnvArguments, GiGPOConfig, PolicyArguments
from trainers.errors import ConfigError
from trainers.run.settings_file import read_settings

GROUPS = (EnvArguments, PolicyArguments, T2POConfig, GiGPOConfig)
LISTS = ("tasks",)
"""Texts that may be a list in a file."""
_KINDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a mapping",
}  # fmt: skip


@cache
def known() -> Mapping[str, dataclasses.Field[Any]]:
    """Every setting by name."""
    return {f.name: f for group in GROUPS for f in dataclasses.fields(group) if f.init}


def suggest(name: str) -> str:
    """The known setting that was probably meant, for the end of a message."""
    near = difflib.get_close_matches(name, known(), n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else "; `--help` lists the common ones, `--help-all` all"


def read_config(path: Path) -> dict[str, Any]:
    """The settings of a file.

    Raises:
        ConfigError: It cannot be read, or one line per key or value that does not fit.
    """
    document = read_settings(path)
    problems = [document.complain(why, (key,)) for key, value in document.data.items() if (why := _problem(key, value))]
    if problems:
        raise ConfigError("\n".join(f"{problem.file}:{problem.line}: {problem.message}" for problem in problems))
    return {key: _as_text(key, value) for key, value in document.data.items()}


def _problem(name: str, value: Any) -> str | None:
    return _misfit(name, value) if name in known() else f"unknown key `{name}`{suggest(name)}"


def _misfit(name: str, value: Any) -> str | None:
    """Why a value cannot be that of a setting."""
    kinds = _kinds(name)
    if kinds is None or (isinstance(value, list) and name in LISTS):
        return None
    if value is None:
        return None if type(None) in kinds else f"`{name}` has no value: give it one, or leave the line out"
    choices = rules_of(known()[name]).choices or known()[name].metadata.get("choices")
    if choices and value not in choices:
        return f"{name}={value!r}: one of {', '.join(map(str, choices))}"
    if _fits(value, kinds):
        return None
    wanted = " or ".join(text for kind, text in _KINDS.items() if kind in kinds)
    if isinstance(value, bool) and str in kinds:
        return f"`{name}`: YAML reads yes, no, on and off as true and false. Put the word in quotes"
    return f"{name}={value!r}: {wanted} is needed"


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


def _as_text(name: str, value: Any) -> Any:
    """A number as the text that a setting is (`unseen_families: 2`); other values as they are."""
    kinds = _kinds(name) or frozenset({type(value)})
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return str(value) if number and not kinds & {int, float} else value


@cache
def _hints() -> Mapping[str, Any]:
    return {name: hint for group in GROUPS for name, hint in typing.get_type_hints(group).items()}


def _kinds(name: str) -> frozenset[type] | None:
    """The plain types that a setting takes; `None` where it takes others, too, which are not judged here."""
    hint = _hints()[name]
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    found = {typing.get_origin(part) or part for part in parts}
    plain = found & {*_KINDS, type(None)}
    return frozenset(plain) if plain == found or str in found else None
