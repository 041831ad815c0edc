"""Field-notes records, both ways: `fieldnotes:PATH`, a JSONL file with one synthesised task a line.

The format knows five kinds of assertion, text files and stubs of zero bytes. What it has no place for (budget, oracle,
weights, ...) is written under keys of ours, which other readers pass over, so that a task comes back as it went out.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.document import Document
from tasks.model import Problem, TaskError, each, unknown_key
from tasks.task import VERSION_2, Task, given
from tasks.yaml import explain

logger = logging.getLogger(__name__)

SCHEME = "fieldnotes"
SUFFIX = ".jsonl"
EXTRA = "turngym"
"""Key of a record for what only we know: budget, oracle, split, tags."""

KINDS = {
    "file_exists": ("file_exists", {}),
    "file_not_exists": ("file_not_exists", {}),
    "file_contents_contain": ("file_contains", {"must_contain": "contains"}),
    "file_contents_match_regex": ("file_matches", {"regex": "pattern"}),
    "file_unchanged": ("file_unchanged", {}),
}
"""Kind there: kind here, and the keys that are named differently."""

_BACK = {ours: (theirs, {ours_key: key for key, ours_key in keys.items()}) for theirs, (ours, keys) in KINDS.items()}
_NEEDED = ("task_id", "intent", "workspace_seed", "verifiable_assertions")
_KNOWN = (*_NEEDED, "persona", "skills_required", "difficulty", "estimated_steps", EXTRA)
_SKILL, _STEPS = "skill:", "steps:"
_KEPT = ("schema_version", "budget", "oracle", "split", "family", "turns", "metadata")


def load(rest: str | Path) -> list[Task]:
    """Load the records of a file, in the order of its lines.

    Raises:
        TaskError: the file cannot be read, holds no record, or records are malformed; every problem, with its line.
    """
    path = Path(rest).expanduser()
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # not splitlines, which splits at U+2028 in a text too
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(Problem(f"cannot be read: {error}", str(path))) from error
    tasks: dict[str, Task] = {}
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = from_record(_parsed(line, str(path), number), str(path), number)
        except TaskError as error:
            problems += error.problems
            continue
        if tasks.setdefault(task.id, task) is not task:
            problems.append(
                Problem(f"the id '{task.id}' stands twice: ids must be unique", str(path), number, "task_id")
            )
    if problems:
        raise TaskError(*problems)
    if not tasks:
        raise TaskError(Problem("holds no records: one JSON object a line", str(path)))
    return list(tasks.values())


def from_record(record: Mapping[str, Any], file: str = "<record>", line: int = 1) -> Task:
    """Make the task of one record; `file` and `line` say in messages where it stands.

    Raises:
        TaskError: keys that are missing or malformed, and what the product refuses: no assertions, an unknown kind,
            or `file_unchanged` on a path that the record does not lay.
    """
    missing = [Problem("is missing", file, line, key) for key in _NEEDED if key not in record]
    if missing:
        raise TaskError(*missing)
    unknown = [key for key in record if key not in _KNOWN]
    if unknown:
        logger.warning("%s:%d: passed over what the format does not know: %s", file, line, ", ".join(unknown))
    extra = _mapping(record.get(EXTRA) or {}, EXTRA, file, line)
    data: dict[str, Any] = {
        "id": record["task_id"],
        "intent": record["intent"],
        "workspace": _workspace(record["workspace_seed"], file, line),
        "assertions": _assertions(record["verifiable_assertions"], file, line),
        "tags": _tags(record, extra),
        **{key: extra[key] for key in _KEPT if extra.get(key) is not None},
    }
    if "difficulty" in record:
        data["difficulty"] = record["difficulty"]
    persona = _mapping(record.get("persona") or {}, "persona", file, line)
    if persona.get("role"):
        data["persona"] = {"role": persona["role"], "context": persona.get("context") or ""}
    try:
        return Task.model_validate(data)
    except ValidationError as error:
        raise TaskError(*explain(error, Document(file, data, {(): line}))) from error


def write(tasks: Iterable[Task], path: Path) -> int:
    """Write tasks as records, one a line, and return how many.

    Raises:
        TaskError: tasks that the format cannot hold, each with what stands against it; nothing is written then.
        FileExistsError: the file is already there.
    """
    records = each(tasks, lambda task: json.dumps(to_record(task), ensure_ascii=False))
    with path.open("x", encoding="utf-8", newline="\n") as stream:
        stream.writelines(f"{record}\n" for record in records)
    return len(records)


def to_record(task: Task) -> dict[str, Any]:
    """Return a task as a record; `from_record` gives the same task back.

    Raises:
        TaskError: the format has no place for something the task needs: other assertions, bytes, links, a workdir.
    """
    problems: list[Problem] = []
    if task.workdir is not None:
        problems.append(Problem("a fixed workspace path has no place in the format", task.id, key="workdir"))
    problems += [
        Problem("has no place in the format", task.id, key=".".join(place))
        for place in VERSION_2
        if place[0] not in _KEPT and given(task, place)
    ]
    files: list[dict[str, Any]] = []
    folders: list[str] = []
    for path, entry in task.files().items():
        if entry.kind is EntryKind.DIR:
            folders.append(path)
            continue
        try:
            files.append(_file(path, entry))
        except ValueError as error:
            problems.append(Problem(str(error), task.id, key=f"workspace.files.{path}"))
    assertions: list[dict[str, Any]] = []
    for number, assertion in enumerate(task.assertions):
        values = assertion.canonical()
        kind = values.pop("kind")
        if kind not in _BACK:
            problems.append(Problem(f"the format has no kind like {kind}", task.id, key=f"assertions[{number}].kind"))
            continue
        theirs, names = _BACK[kind]
        if values.get("name") == f"{kind}:{values.get('path')}":
            del values["name"]  # the name it gets anyway
        assertions.append({"kind": theirs, **{names.get(key, key): value for key, value in values.items()}})
    if problems:
        raise TaskError(*problems)
    parents = {parent.as_posix() for item in files for parent in Path(item["path"]).parents}
    seed: dict[str, Any] = {"files": files}
    if set(folders) - parents:
        seed["dirs"] = sorted(set(folders) - parents)
    record: dict[str, Any] = {
        "task_id": task.id,
        "persona": {"role": task.persona.role, "context": task.persona.context} if task.persona else {"role": ""},
        "intent": task.intent,
        "workspace_seed": seed,
        "skills_required": [tag.removeprefix(_SKILL) for tag in task.tags if tag.startswith(_SKILL)],
        "verifiable_assertions": assertions,
        "difficulty": task.difficulty.value,
        "estimated_steps": _steps(task),
    }
    extra = task.model_dump(mode="json", include=set(_KEPT), exclude_defaults=True)
    record[EXTRA] = {"tags": list(task.tags), **extra}
    return record


def _parsed(line: str, file: str, number: int) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TaskError(Problem(f"is no JSON: {error}", file, number)) from error
    return _mapping(record, "", file, number)


def _mapping(value: object, key: str, file: str, line: int) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TaskError(Problem(f"must be a JSON object, not {json.dumps(value)[:60]}", file, line, key))
    return value


def _items(value: object, key: str, file: str, line: int) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        raise TaskError(Problem(f"must be a list, not {json.dumps(value)[:60]}", file, line, key))
    return [_mapping(item, f"{key}[{number}]", file, line) for number, item in enumerate(value)]


def _workspace(seed: object, file: str, line: int) -> dict[str, Any]:
    given = _mapping(seed, "workspace_seed", file, line)
    files: dict[str, Any] = {}
    for number, item in enumerate(_items(given.get("files", []), "workspace_seed.files", file, line)):
        key = f"workspace_seed.files[{number}]"
        path, kind = item.get("path"), item.get("kind", "text")
        if not isinstance(path, str):
            raise TaskError(Problem("must be a text", file, line, f"{key}.path"))
        if path in files:
            raise TaskError(Problem(f"'{path}' stands twice among the files", file, line, f"{key}.path"))
        if kind == "text":
            files[path] = {"text": item.get("content", "")}
        elif kind == "binary-stub":
            files[path] = {"size": _size(item, key, file, line)}
        else:
            raise TaskError(Problem(unknown_key(kind, ("text", "binary-stub"), "kind"), file, line, f"{key}.kind"))
        if "mode" in item:
            files[path]["mode"] = item["mode"]
    return {"files": files, "dirs": given.get("dirs", [])}


def _size(item: Mapping[str, Any], key: str, file: str, line: int) -> int:
    """Bytes of a stub: `size_bytes`, or what stands where a text has its content, as a number or in digits."""
    size = item.get("size_bytes", item.get("content", 0))
    try:
        if isinstance(size, bool) or not isinstance(size, int | str):
            raise ValueError
        return int(size)
    except ValueError:
        raise TaskError(Problem(f"{size!r} is no number of bytes", file, line, f"{key}.content")) from None


def _assertions(value: object, file: str, line: int) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for number, item in enumerate(_items(value, "verifiable_assertions", file, line)):
        key = f"verifiable_assertions[{number}]"
        kind = item.get("kind")
        if kind not in KINDS:
            raise TaskError(Problem(unknown_key(kind, KINDS, "kind"), file, line, f"{key}.kind"))
        ours, names = KINDS[kind]
        made.append({**{names.get(name, name): entry for name, entry in item.items()}, "kind": ours})
    return made


def _tags(record: Mapping[str, Any], extra: Mapping[str, Any]) -> list[Any]:
    if "tags" in extra:
        return list(extra["tags"])
    steps = record.get("estimated_steps")
    skills = record.get("skills_required") or []
    return [*(f"{_SKILL}{skill}" for skill in skills), *([f"{_STEPS}{steps}"] if steps else [])]


def _steps(task: Task) -> int:
    for tag in task.tags:
        if tag.startswith(_STEPS) and tag.removeprefix(_STEPS).isdigit():
            return int(tag.removeprefix(_STEPS))
    return len(task.oracle.commands) if task.oracle and task.oracle.commands else 1


def _file(path: str, entry: FileEntry) -> dict[str, Any]:
    if entry.kind is not EntryKind.FILE or entry.content is None:
        raise ValueError("the format has no links")
    mode = {} if entry.mode == 0o644 else {"mode": f"{entry.mode:04o}"}
    if entry.content and not entry.content.strip(b"\0"):
        return {"path": path, "kind": "binary-stub", "content": len(entry.content), **mode}
    try:
        return {"path": path, "kind": "text", "content": entry.content.decode("utf-8"), **mode}
    except UnicodeDecodeError:
        raise ValueError("the format has no bytes that are neither UTF-8 text nor zeros") from None
