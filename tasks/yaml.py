"""Task files in and out: the line and the remedy of each fault, templates made into tasks."""

from __future__ import annotations

import json
import logging
import posixpath
import re
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tasks.document import Document, Place, parse, quote_hint
from tasks.model import Problem, StrictModel, TaskError, counted, unknown_key
from tasks.parameters import Heading, Template, Value
from tasks.place import read_dockerfile
from tasks.plugins import ASSERTIONS, load_plugin, plugins
from tasks.task import Task, newer_key
from tasks.workspace import NotLaid, read_folders

# -- From what pydantic found to what a person can act on: file, line, key, and what to do ----------------------------


def explain(error: ValidationError, document: Document, root: type[StrictModel] = Task) -> list[Problem]:
    """Say in plain words what pydantic found in a document that is to be a `root`, in the order of the file."""
    problems: list[Problem] = []
    meant: set[Place] = set()  # missing keys that an unknown key probably stands for
    details = error.errors(include_url=False)
    for item in details:
        if item["type"] == "extra_forbidden":
            place = _place(item["loc"], document)
            valid = _valid_keys(item["loc"][:-1], document.data, root)
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
        elif number < len(loc) - 1 or part == "[key]" or (loc[0] == "assertions" and part in _kinds()):
            continue
        place.append(part)
    return tuple(place)


def _kinds() -> list[str]:
    return [str(model.model_fields["kind"].default) for model in _models(Task.model_fields["assertions"].annotation)]


def _valid_keys(loc: tuple[str | int, ...], data: Any, root: type[StrictModel]) -> list[str]:
    """Return the keys that the model at pydantic's location `loc` in a file's `data` knows."""
    models: list[Any] = [root]
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
    return [key for model in models[:1] for key in (*model.model_fields, *getattr(model, "only_in_files", ()))]


def _models(annotation: Any) -> list[Any]:
    """Return the models named anywhere in a type annotation."""
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return [annotation] if issubclass(annotation, StrictModel) else []
    return [model for part in typing.get_args(annotation) for model in _models(part)]


# -- Task files in and out: strict reading with every problem named, writing that reads back the same -----------------

logger = logging.getLogger(__name__)


def load_task(path: Path) -> Task:
    """Read a file of one task.

    Raises:
        TaskError: as `load_file`; or the file is a template.
    """
    return _only(load_file(path), str(path))


def load_file(path: Path) -> list[Task]:
    """Read a task file: one task, or those of a template.

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
    return _parsed(text, str(path), path.parent)


def parse_task(text: str, file: str = "<text>") -> Task:
    """Read one task from YAML text, which can name no folders; `file` is its name in messages.

    Raises:
        TaskError: as `load_task`.
    """
    return _only(_parsed(text, file, None), file)


def _only(tasks: list[Task], file: str) -> Task:
    if len(tasks) > 1:
        raise TaskError(Problem(f"is a template of {len(tasks)} tasks, where one task is wanted", file))
    return tasks[0]


def _parsed(text: str, file: str, folder: Path | None) -> list[Task]:
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
    if document.data.get("schema_version") != 2:
        _refuse_newer(document)
    elif "parameters" in document.data:
        return _tasks_of(document, folder)
    _lay(document, folder)
    _read_beside(document, folder)
    try:
        task = Task.model_validate(document.data)
    except ValidationError as error:
        raise TaskError(*document.problems, *_elsewhere(explain(error, document), document.problems)) from error
    if document.problems:
        raise TaskError(*document.problems)
    return [task]


def _refuse_newer(document: Document) -> None:
    """Complain about the keys of version 2 that are gone when a task is made; the others are the task's to refuse."""
    workspace = document.data.get("workspace")
    for holder, place in ((document.data, ("parameters",)), (workspace, ("workspace", "from"))):
        if isinstance(holder, dict) and place[-1] in holder:
            document.problems.append(document.complain(newer_key(place[-1]), place))
            del holder[place[-1]]


def _lay(document: Document, folder: Path | None) -> None:
    """Put what lies in the folders that `workspace.from` names under `files` and `dirs`; `files` wins."""
    workspace = document.data.get("workspace")
    if not isinstance(workspace, dict) or "from" not in workspace:
        return
    place = ("workspace", "from")
    given = {key: value for key, value in workspace.items() if key != "from"}
    files, dirs = given.get("files", {}), given.get("dirs", [])
    names = workspace["from"] if isinstance(workspace["from"], list) else [workspace["from"]]
    document.data = {**document.data, "workspace": given}
    problem = None
    if not names or not all(isinstance(name, str) and name for name in names):
        problem = "needs a folder, or a list of folders, by their paths from this file's"
    elif folder is None:
        problem = "a task that is read from no file has no folder beside it: write its content under files"
    if problem is not None or folder is None:
        document.problems.append(document.complain(problem or "", place))
        return
    if not isinstance(files, dict) or not isinstance(dirs, list):
        return  # the task complains about these
    try:
        laid = read_folders(folder, names).under(*(map(_normal, paths) for paths in (files, dirs)))
    except NotLaid as error:
        document.problems.append(document.complain(str(error), place))
        return
    given["files"] = {**laid.files, **files}
    given["dirs"] = [*dirs, *laid.dirs]
    document.origin.update({("workspace", "files", path): place for path in laid.files})
    document.origin.update({("workspace", "dirs", len(dirs) + index): place for index in range(len(laid.dirs))})


def _normal(path: object) -> str:
    return posixpath.normpath(path) if isinstance(path, str) else ""


def _tasks_of(document: Document, folder: Path | None) -> list[Task]:
    """Make the tasks of a template: as many as it asks for, no two of them twins."""
    try:
        heading = Heading.model_validate(document.data)
    except ValidationError as error:
        found = explain(error, document, Heading)
        raise TaskError(*document.problems, *_elsewhere(found, document.problems)) from error
    del document.data["parameters"]
    template = Template(document, heading.parameters)
    if document.problems or (found := template.problems()):
        raise TaskError(*(document.problems or found))
    wanted = heading.parameters.n
    tasks: dict[str, Task] = {}
    as_text: set[Place] = set()
    for tries, values in enumerate(heading.parameters.draws()):
        task = _filled_in(template, values, len(tasks) + 1, as_text, folder)
        tasks.setdefault(task.meaning_hash, task)
        if len(tasks) == wanted:
            return list(tasks.values())
        if tries >= TRIES * wanted:
            break
    message = f"asks for {counted(wanted, 'task')}, but the values make only {len(tasks)} that differ in what they "
    message += "ask, lay out or check: give a parameter more values, or lower n"
    raise TaskError(document.complain(message, ("parameters", "n")))


TRIES = 50
"""Choices of values that a template may try for each task that it is to make."""


def _filled_in(
    template: Template, values: Mapping[str, Value], number: int, as_text: set[Place], folder: Path | None
) -> Task:
    """Make one task of a template; a number that stands alone is written as text where its key takes no number."""
    numbers = template.numbers
    while True:
        document = template.filled(values, number, as_text)
        _lay(document, folder)
        _read_beside(document, folder)
        try:
            task = Task.model_validate(document.data)
        except ValidationError as error:
            places = (_place(item["loc"], document) for item in error.errors(include_url=False, include_input=False))
            texts = {document.written(place) for place in places} & numbers - as_text
            if texts:
                as_text |= texts
                continue
            found = explain(error, document)
        else:
            found = []
        found = [*document.problems, *_elsewhere(found, document.problems)]
        if not found:
            return task
        shown = ", ".join(f"{name}={value}" for name, value in values.items())
        raise TaskError(*(replace(problem, message=f"{problem.message} (with {shown})") for problem in found))


def _read_beside(document: Document, folder: Path | None) -> None:
    """Put the text of a Dockerfile in the place of its name."""
    name = document.data.get("dockerfile")
    if not isinstance(name, str):
        return
    try:
        if folder is None:
            raise ValueError("a task that is read from no file has no file beside it: write its lines under text")
        document.data["dockerfile"] = {"text": read_dockerfile(name, folder)}
    except ValueError as error:
        document.problems.append(document.complain(str(error), ("dockerfile",)))
        del document.data["dockerfile"]


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
