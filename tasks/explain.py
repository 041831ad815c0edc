"""From what pydantic found to what a person can act on: file, line, key, and what to do."""

from __future__ import annotations

import json
import re
import types
import typing
from typing import Any

from pydantic import ValidationError

from tasks.document import Document, Place, quote_hint
from tasks.model import StrictModel, unknown_key
from tasks.plugins import ASSERTIONS, load_plugin, plugins
from tasks.problems import Problem
from tasks.task import Task


def explain(error: ValidationError, document: Document) -> list[Problem]:
    """Say in plain words what pydantic found, in the order of the file."""
    problems: list[Problem] = []
    meant: set[Place] = set()  # missing keys that an unknown key probably stands for
    details = error.errors(include_url=False)
    for item in details:
        if item["type"] == "extra_forbidden":
            place = _place(item["loc"], document)
            valid = _valid_keys(item["loc"][:-1], document.data)
            problems.append(document.complain(unknown_key(place[-1], valid), place))
            meant |= {(*place[:-1], key) for key in valid if f"'{key}'?" in problems[-1].message}
    for item in details:
        context = item.get("ctx", {})
        place = (*_place(item["loc"], document), *context.get("at", ()))
        if item["type"] == "extra_forbidden" or (item["type"] == "missing" and place in meant):
            continue
        if item["type"] == "too_short" and len(item["input"]) >= context.get("min_length", 1):
            continue  # only an echo: items that failed on their own do not count for pydantic
        problems.append(document.complain(_words(item["type"], item, context, place, document), place))
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.key))


def _words(kind: str, item: Any, context: dict[str, Any], place: Place, document: Document) -> str:
    value = item["input"]
    written = document.raw.get(place)
    if kind == "task":
        return str(context["message"])
    if kind == "missing":
        return "is missing"
    if kind == "union_tag_not_found":
        return (
            f"needs a kind (valid: {', '.join(_kinds())})" if isinstance(value, dict) else "is no mapping with a kind"
        )
    if kind == "union_tag_invalid":
        return unknown_key(context["tag"], [*_kinds(), *plugins(ASSERTIONS)], "kind")
    is_file = len(place) == 3 and place[:2] == ("workspace", "files")
    if value is None:
        return "has no value (a bare word such as `null` or `~` is read as nothing: put it in quotes if it is text)"
    if (
        (kind in ("string_type", "tuple_type", "enum") or is_file)
        and written is not None
        and not isinstance(value, str)
    ):
        return quote_hint(written, _type_word(value))
    if kind == "enum" or kind == "literal_error":
        if str(value) in re.findall(r"\d+", context["expected"]):
            return f"'{value}' is a text, and a number is needed: leave the quotes out"
        return f"'{value}' is not valid: {_choices(str(value), context['expected'])}"
    if kind == "tuple_type":
        return "needs a list: write each item on its own line after `- `"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return f"needs a mapping of keys to values, but has {_type_word(value)}"
    if kind == "string_type" and isinstance(value, dict):
        return "is read by YAML as a mapping, because of a `: ` in it: put the text in quotes or in a block (`|`)"
    if kind in ("string_too_short", "too_short"):
        return "is empty: " + (
            "a task without assertions can never pass" if place == ("assertions",) else "give at least one"
        )
    if kind == "string_pattern_mismatch":
        return f"'{value}' is no id: use lower case letters, digits, '.', '_' and '-', starting with a letter or digit"
    message = re.sub(r"^Input should be", "must be", str(item["msg"]))
    return f"{message}, but is {_type_word(value)} {json.dumps(value, default=str, ensure_ascii=False)[:60]}"


def _type_word(value: object) -> str:
    words = {bool: "a boolean", int: "a number", float: "a number", str: "the text", dict: "a mapping", list: "a list"}
    return "nothing" if value is None else words.get(type(value), "a date")


def _choices(value: str, expected: str) -> str:
    valid = [word or number for word, number in re.findall(r"'([^']+)'|(\d+)", expected)]
    return unknown_key(value, valid, "value").split(": ", 1)[1]


def _place(loc: tuple[str | int, ...], document: Document) -> Place:
    """Turn pydantic's location into a place in the document: without union tags and markers."""
    place: list[str | int] = []
    node = document.data
    for number, part in enumerate(loc):
        in_list = isinstance(node, list) and isinstance(part, int) and part < len(node)
        if in_list or (isinstance(node, dict) and part in node):
            node = node[part]
        elif number < len(loc) - 1 or part == "[key]" or part in _kinds():
            continue
        place.append(part)
    return tuple(place)


def _kinds() -> list[str]:
    return [str(model.model_fields["kind"].default) for model in _models(Task.model_fields["assertions"].annotation)]


def _valid_keys(loc: tuple[str | int, ...], data: Any) -> list[str]:
    """Return the keys that the model at pydantic's location `loc` in a file's `data` knows."""
    models: list[Any] = [Task]
    for part in loc:
        if isinstance(data, dict):
            data = data.get(part, data)
        elif isinstance(data, list) and isinstance(part, int):
            data = data[part]
        fields = [model.model_fields[part] for model in models if part in model.model_fields]
        tagged = [
            model for model in models if "kind" in model.model_fields and model.model_fields["kind"].default == part
        ]
        if fields:
            models = _models(fields[0].annotation)
        elif tagged:
            models = tagged
        kind = data.get("kind") if loc[0] == "assertions" and isinstance(data, dict) else None
        if isinstance(kind, str) and kind not in _kinds() and (entry := plugins(ASSERTIONS).get(kind)):
            models = [load_plugin(entry)]  # a kind of another package: no part of the union of ours
    return [key for model in models[:1] for key in model.model_fields]


def _models(annotation: Any) -> list[Any]:
    """Return the models named anywhere in a type annotation."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, StrictModel) else []
    return [model for part in typing.get_args(annotation) for model in _models(part)]
