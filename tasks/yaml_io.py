"""Task files in and out: strict reading with every problem named, writing that reads back the same."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from tasks.document import parse
from tasks.explain import explain
from tasks.problems import Problem, TaskError
from tasks.task import Task

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
