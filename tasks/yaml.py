"""Task files in and out: YAML without its surprises, the line and the remedy of each fault."""

from __future__ import annotations

import json
import logging
import re
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tasks.model import BAD_SCALAR, MAX_NUMBER, Problem, StrictModel, TaskError, unknown_key
from tasks.plugins import ASSERTIONS, load_plugin, plugins
from tasks.task import Task

# -- YAML without its surprises: plain data, where each value stands, and what is wrong with the YAML itself ----------

Place = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions from the top."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN = ("str", "int", "float", "bool", "null", "timestamp", "value", "seq", "map")
_PLAIN_TAGS = {_TAG + name for name in _PLAIN}

MAX_NODES = 100_000
"""Values that one file may hold, anchors counted as often as they are used."""


class _Hopeless(Exception):
    """Reading the rest of a document makes no sense; why is among its problems."""


@dataclass(slots=True)
class Document:
    """A YAML file as plain data, with what is needed to complain about it.

    Attributes:
        file: Name for messages.
        data: The content.
        lines: Line (from 1) of each key or list item.
        raw: How a scalar was written, before YAML gave it a type.
        nodes: Values read so far.
        problems: What is wrong with the YAML itself.
    """

    file: str
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    raw: dict[Place, str] = field(default_factory=dict)
    nodes: int = 0
    problems: list[Problem] = field(default_factory=list)

    def complain(self, message: str, place: Place, line: int | None = None) -> Problem:
        """Build the problem at `place`; the line is that of the nearest known key above it."""
        known = place
        while line is None and known and known not in self.lines:
            known = known[:-1]
        return Problem(message, self.file, line or self.lines.get(known, 1), dotted(place))


def parse(text: str, file: str) -> Document:
    """Read YAML text into plain data; what is wrong with it is in the document's `problems`."""
    document = Document(file)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        document.problems.append(Problem("holds half a surrogate pair, which is no character", file, line))
        return document
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        if root is not None:
            document.data = _plain(loader, root, (), document, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or "cannot be read"
        if "another document" in why:
            why = "holds two documents (a line `---`): give each a file of its own"
        elif "\\t" in why or "cannot start any token" in why:
            why += " (indent with spaces; put text that starts with @, ` or % in quotes)"
        elif "mapping values are not allowed" in why:
            why += " (put a text that holds `: ` in quotes)"
        document.problems.append(Problem(f"not valid YAML: {why}", file, mark.line + 1 if mark else None))
    except yaml.YAMLError as error:
        document.problems.append(Problem(f"not valid YAML: {error}", file))
    except RecursionError:
        document.problems.append(Problem("is nested too deeply", file))
    except _Hopeless:
        pass
    finally:
        loader.dispose()
    return document


def _plain(loader: Any, node: yaml.Node, place: Place, document: Document, above: set[int]) -> Any:
    """Turn a YAML node into plain data, noting lines; `above` holds the nodes on the way here."""
    line = node.start_mark.line + 1
    document.lines.setdefault(place, line)
    document.nodes += 1
    if document.nodes > MAX_NODES or id(node) in above:
        document.problems.append(
            document.complain("an anchor (`&`, `*`) repeats without end: write it out", place, line)
        )
        raise _Hopeless
    if node.tag not in _PLAIN_TAGS:
        document.problems.append(
            document.complain(f"YAML tags such as {_short_tag(node.tag)} are not used", place, line)
        )
        return None
    if isinstance(node, yaml.ScalarNode):
        document.raw[place] = node.value
        if len(node.value) > MAX_NUMBER and node.tag != _TAG + "str":
            message = f"is a number of {len(node.value)} characters; if text is meant, put it in quotes"
            document.problems.append(document.complain(message, place, line))
            return None
        try:
            return node.value if node.tag == _TAG + "value" else loader.construct_object(node)
        except (*BAD_SCALAR, yaml.YAMLError):  # an impossible date such as 2024-99-99, or a tag such as !!bool maybe
            document.problems.append(document.complain(quote_hint(node.value, "a broken date or number"), place, line))
            return None
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, item, (*place, index), document, above) for index, item in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if key_node.tag == _TAG + "merge":
            document.problems.append(
                document.complain("merge keys (`<<`) are not used: write the keys out", place, key_line)
            )
            continue
        if key_node.tag != _TAG + "str" or not isinstance(key_node, yaml.ScalarNode):
            written = getattr(key_node, "value", "?")
            shown = written if isinstance(written, str) else "?"
            message = f'the key `{shown}` is not read as text: put it in quotes: "{shown}"'
            document.problems.append(document.complain(message, place, key_line))
            continue
        key = key_node.value
        if key in data:
            first = document.lines[(*place, key)]
            message = f"the key '{key}' stands here twice (first in line {first}): remove or rename one"
            document.problems.append(document.complain(message, (*place, key), key_line))
            continue
        document.lines[(*place, key)] = key_line
        data[key] = _plain(loader, value_node, (*place, key), document, above)
    return data


def quote_hint(written: str, read_as: str) -> str:
    """Word the complaint about a bare word that YAML takes for something else than text."""
    quoted = json.dumps(written, ensure_ascii=False)
    return f"`{written}` is read by YAML as {read_as}, but text is meant here: put it in quotes: {quoted}"


def dotted(place: Place) -> str:
    """Write a place as people do: `assertions[1].path`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _short_tag(tag: str) -> str:
    return tag.replace(_TAG, "!!")


# -- From what pydantic found to what a person can act on: file, line, key, and what to do ----------------------------


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


# -- Task files in and out: strict reading with every problem named, writing that reads back the same -----------------

logger = logging.getLogger(__name__)


def load_task(path: Path) -> Task:
    """Read one task file.

    Raises:
        TaskError: the file cannot be read or is no valid task; lists every problem found.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise TaskError(Problem(f"cannot be read: {error.strerror or error}", str(path))) from error
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise TaskError(Problem("is not UTF-8 text: save it as UTF-8", str(path), line)) from error
    return parse_task(text, str(path))


def parse_task(text: str, file: str = "<text>") -> Task:
    """Read one task from YAML text; `file` is its name in messages.

    Raises:
        TaskError: as `load_task`.
    """
    if "\r\n" in text:
        logger.warning("%s has CRLF line endings; they are read as plain line ends, in scripts too", file)
        text = text.replace("\r\n", "\n")
    document = parse(text, file)
    if document.data is None and not document.problems:
        document.problems.append(Problem("is empty: `python -m tasks new NAME` writes a task to start from", file))
    elif not isinstance(document.data, dict) and not document.problems:
        document.problems.append(
            Problem("a task is a mapping (`id: ...`, `intent: ...`), not a list or a text", file, 1)
        )
    if document.problems and not isinstance(document.data, dict):
        raise TaskError(*document.problems)
    try:
        task = Task.model_validate(document.data)
    except ValidationError as error:
        raise TaskError(*document.problems, *_elsewhere(explain(error, document), document.problems)) from error
    if document.problems:
        raise TaskError(*document.problems)
    return task


def _elsewhere(found: Iterable[Problem], known: Sequence[Problem]) -> list[Problem]:
    """Leave out what stands at, above or below a place that is known to be wrong: it only follows from that."""
    places = [problem.key or "" for problem in known]
    return [problem for problem in found if not any(_related(problem.key or "", place) for place in places)]


def _related(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    return longer.startswith(shorter) and longer[len(shorter) : len(shorter) + 1] in ("", ".", "[") or not shorter


def dump_task(task: Task) -> str:
    """Write a task as YAML that `parse_task` reads back to an equal task; keys in the order of the schema."""
    return yaml.dump(
        _compact(task), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
    )


def _compact(task: Task) -> dict[str, Any]:
    data: dict[str, Any] = task.model_dump(mode="json", exclude_defaults=True, exclude={"assertions"})
    files = data.get("workspace", {}).get("files", {})
    for path, spec in files.items():
        if set(spec) == {"text"}:
            files[path] = spec["text"]
    assertions = []
    for assertion in task.assertions:
        shown = assertion.canonical()
        if shown.get("name") == assertion.default_name():
            del shown["name"]
        if len(shown.get("contains", [])) == 1:
            shown["contains"] = shown["contains"][0]
        assertions.append(shown)
    oracle = data.pop("oracle", None)
    return {**data, "assertions": assertions, **({"oracle": oracle} if oracle else {})}


class _Dumper(yaml.SafeDumper):
    """Multi-line text as a literal block; list items indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Indent list items under their key."""
        super().increase_indent(flow, False)


_OTHER_BREAKS = "\x85\u2028\u2029"
"""Line breaks to YAML 1.1, which would not come back as they were; escaped in double quotes."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if any(mark in text for mark in _OTHER_BREAKS) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
