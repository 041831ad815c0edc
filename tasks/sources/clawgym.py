"""Upstream ClawGym tasks: `clawgym:PATH?ids=..&prefix=..`, from a folder of `task_XXXX/` or straight from a .tar.xz."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import posixpath
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.script import OnFailure
from tasks.document import Document
from tasks.model import Problem, TaskError, collected, listed, path_and_query
from tasks.task import Task
from tasks.workspace import spelt_out
from tasks.yaml import explain

# -- Reading upstream ClawGym task folders, from a directory or straight from a tar archive, each file once -----------

ENTRY = "data_entry.json"
INPUTS = "input_files"
REWARD = "reward"
CHECK = "check.py"
ARCHIVES = (".tar", ".tar.xz", ".txz", ".tar.gz", ".tgz", ".tar.bz2")
MAX_BYTES = 2 * 1024**3
"""How far an archive is unpacked; the whole of the upstream training set takes a fortieth of it."""

_COMPRESSED: dict[bytes, Callable[[Any], Any]] = {b"\xfd7zXZ\x00": lzma.open, b"\x1f\x8b": gzip.open, b"BZh": bz2.open}


@dataclass(slots=True)
class Folder:
    """One `task_XXXX` folder, read.

    Attributes:
        place: Where it came from, for messages: `ARCHIVE:task_0000` or a path.
        name: Name of the folder.
        entry: Content of `data_entry.json`; None if there is none.
        inputs: What lies in `input_files`, by path in the workspace.
        reward: What lies in `reward`, by file name.
    """

    place: str
    name: str
    entry: bytes | None = None
    inputs: dict[str, FileEntry] = field(default_factory=dict)
    reward: dict[str, FileEntry] = field(default_factory=dict)


def is_clawgym(path: Path) -> bool:
    """Whether `path` looks like upstream tasks: a tar archive, a task folder, or a folder of task folders."""
    if path.is_file():
        return path.name.lower().endswith(ARCHIVES)
    if not path.is_dir():
        return False
    return (path / ENTRY).is_file() or next(path.glob(f"*/{ENTRY}"), None) is not None


def read_folders(path: Path) -> list[Folder]:
    """Read every task folder in `path`, sorted by name.

    Raises:
        TaskError: nothing there, an archive that is broken, or an entry that is neither file, folder nor link.
    """
    if not path.exists():
        raise TaskError(Problem("there is no such file or folder", str(path)))
    entries = _walk(path) if path.is_dir() else _unpack(path)
    folders: dict[str, Folder] = {}
    try:
        for root, inside, entry in entries:
            folder = folders.get(root)
            if folder is None:
                place = str(path / root) if path.is_dir() else f"{path}:{root}"
                folder = folders[root] = Folder(place, posixpath.basename(root) or path.name)
            _sort_in(folder, inside, entry)
    except (OSError, EOFError, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise TaskError(Problem(f"cannot be read: {str(error) or type(error).__name__}", str(path))) from error
    except ValueError as error:  # ours, and names that are no UTF-8
        raise TaskError(Problem(f"cannot be used: {error}", str(path))) from error
    found = [folders[root] for root in sorted(folders)]
    if not found:
        raise TaskError(
            Problem(f"holds no ClawGym tasks (folders task_XXXX with {ENTRY}, {INPUTS}/ and {REWARD}/)", str(path))
        )
    return found


def _sort_in(folder: Folder, inside: str, entry: FileEntry) -> None:
    head, _, rest = inside.partition("/")
    if inside == ENTRY:
        folder.entry = entry.content
    elif head == INPUTS and rest:
        folder.inputs[rest] = entry
    elif head == REWARD and rest and entry.kind is not EntryKind.DIR:
        folder.reward[rest] = entry
    # Anything else in a task folder (notes, oracles of other tools) is not part of the format.


def _split(name: str) -> tuple[str, str] | None:
    """Split an archive name into the task's folder and the path in it; None for what is above the task folders."""
    parts = name.split("/")
    for number, part in enumerate(parts[1:], start=1):
        if part in (ENTRY, INPUTS, REWARD):
            return "/".join(parts[:number]), "/".join(parts[number:])
    return None


def _unpack(path: Path) -> Iterator[tuple[str, str, FileEntry]]:
    raw = _decompressed(path)
    with tarfile.open(fileobj=io.BytesIO(raw), mode="r:", encoding="utf-8", errors="strict") as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            where = _split(name)
            if where is None:
                continue
            if name.startswith(("../", "/")):
                raise ValueError(f"its entry '{member.name}' leads out of the archive")
            mode = member.mode & 0o777
            if member.isdir():
                yield *where, FileEntry(kind=EntryKind.DIR, content=None, mode=mode)
            elif member.issym():
                yield *where, FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=member.linkname)
            elif member.isreg() and not member.issparse():
                # A slice, not `extractfile`, which takes twice as long for files as small as these.
                content = raw[member.offset_data : member.offset_data + member.size]
                if len(content) != member.size:
                    raise ValueError("the archive ends in the middle of a file: copy it again")
                yield *where, FileEntry(content=content, mode=mode, size=member.size)
            else:
                raise ValueError(f"its entry '{member.name}' is neither a file, a folder nor a symbolic link")


def _decompressed(path: Path) -> bytes:
    """The tar archive in one piece: small files come much faster out of memory than out of a stream."""
    packed = path.read_bytes()
    for magic, open_stream in _COMPRESSED.items():
        if packed.startswith(magic):
            with open_stream(io.BytesIO(packed)) as stream:
                raw: bytes = stream.read(MAX_BYTES + 1)
            if len(raw) > MAX_BYTES:
                raise ValueError(f"it unpacks to more than {MAX_BYTES} bytes")
            return raw
    return packed


def _walk(path: Path) -> Iterator[tuple[str, str, FileEntry]]:
    roots = [path] if (path / ENTRY).is_file() else sorted(entry.parent for entry in path.glob(f"*/{ENTRY}"))
    for root in roots:
        prefix = "" if root == path else root.name
        yield prefix, ENTRY, FileEntry(content=(root / ENTRY).read_bytes())
        for part in (INPUTS, REWARD):
            for file in sorted((root / part).rglob("*")):
                yield prefix, file.relative_to(root).as_posix(), _file_entry(file)


def _file_entry(file: Path) -> FileEntry:
    status = file.lstat()
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISLNK(status.st_mode):
        return FileEntry(kind=EntryKind.SYMLINK, content=None, mode=0o777, target=str(file.readlink()))
    if stat.S_ISDIR(status.st_mode):
        return FileEntry(kind=EntryKind.DIR, content=None, mode=mode)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"'{file}' is neither a file, a folder nor a symbolic link")
    content = file.read_bytes()
    return FileEntry(content=content, mode=mode, size=len(content))


# ---------------------------------------------------------------------------------------------------------------------
# Upstream ClawGym tasks: `clawgym:PATH?ids=..&prefix=..`, from a folder of `task_XXXX/` or straight from a .tar.xz.
#
# What a task asks is in its `data_entry.json`, what the agent finds in `input_files/`, and the judge is
# `reward/check.py`: it prints a JSON object of named sub-scores, whose mean upstream's `reward.sh` prints. Here each
# sub-score is a result of its own and the rate is the same mean. One thing differs: a judge that fails (crash, missing
# module, no JSON) is an error, never a score.

SCHEME = "clawgym"
MOUNT = "/root/.openclaw/workspace"
"""Where upstream mounts the workspace of every task: their judges, and some requests, name this path."""

RUNNER = "reward.sh"
RUNNER_SHA256 = "2c892af9d8248934e5e67646a02524d9da0f5a1fcc5fadadd077e485238d6e65"
"""The one `reward.sh` of all upstream tasks: runs `check.py`, prints the mean. A different one is run as it is."""

PAYLOAD = "OPENCLAW_REWARD_PAYLOAD"
"""Variable that names the JSON file from which a judge learns what was asked and what was said."""

_JUDGE = """\
unset PYTHONSAFEPATH
place=$WORKSPACE/reward
trap 'rm -rf -- "$place"' EXIT
{{ rm -rf -- "$place" && mkdir -- "$place" && for f in "$GRADER"/*; do : > "$place/${{f##*/}}"; done; }} 2>/dev/null
{run}
"""
"""How a judge is run.

Upstream it stands in `reward/` of the workspace, and some judges count all files. There stand empty files of its names;
it runs from the grader's folder, which nothing that it starts can read. What it starts (often what the agent wrote)
finds its own modules.
"""

_IN_REWARD = re.compile(r"(?:[\w./-]*/)?(?<![\w.-])reward/(?=[\w.-])")
"""How a runner of its own names a file of the judge: it lies in the grader's folder, not in the workspace."""

_PACKAGES = re.compile(r"^\s*(?:import|from)\s+(yaml|cryptography)\b", re.MULTILINE)
"""Packages that judges import, often where a failed import would only look like an agent's mistake."""

GRADER_SECONDS = 120.0
BUDGET = {"max_turns": 30, "command_seconds": 30.0, "turn_tokens": 2048}
"""Upstream states no budget; these leave room for tasks that ask for several reports."""


def load(rest: str | Path) -> list[Task]:
    """Load the upstream tasks for what stands after `clawgym:`, sorted by id.

    Args:
        rest: Path of a folder, one task folder, or a tar archive; as text it may end in `?ids=A,B` (those only),
            `&prefix=TEXT` (put before every id: upstream uses the same ids in its training and evaluation set) and
            `&on_failure=fail` (a judge that fails is the agent's doing; see `tasks.assertions.script.OnFailure`).

    Raises:
        TaskError: every problem of every task folder.
    """
    path, ids, prefix, on_failure = _parse(rest) if isinstance(rest, str) else (rest, (), "", OnFailure.ERROR)
    folders = read_folders(path)
    if ids:
        names = {folder.name: folder for folder in folders}
        missing = [name for name in ids if name not in names]
        if missing:
            raise TaskError(Problem(f"has no {', '.join(missing)}: it holds {folders[0].name} and others", str(path)))
        folders = [names[name] for name in dict.fromkeys(ids)]
    tasks: dict[str, Task] = {}
    errors: list[TaskError] = []
    for folder in folders:
        try:
            task = make_task(folder, prefix, on_failure)
        except TaskError as error:
            errors.append(error)
            continue
        if tasks.setdefault(task.id, task) is not task:
            errors.append(TaskError(Problem(f"the id '{task.id}' stands in two folders", folder.place, key="task_id")))
    if errors:
        raise collected(errors)
    return list(tasks.values())


def make_task(folder: Folder, prefix: str = "", on_failure: OnFailure = OnFailure.ERROR) -> Task:
    """Make the task of one upstream folder.

    Raises:
        TaskError: what is missing or malformed, with the file and the key.
    """
    entry = _entry(folder)
    name = entry["task_id"]
    data = {
        "id": prefix + name.lower(),
        "intent": entry["user_query"],
        "tags": [SCHEME],
        "difficulty": "hard",
        "workspace": spelt_out(folder.inputs),
        "workdir": entry.get("input_mount_dir") or MOUNT,
        "budget": BUDGET,
        "assertions": [{**_script(folder, entry), "on_failure": on_failure}],
    }
    try:
        return Task.model_validate(data)
    except ValidationError as error:
        found = explain(error, Document(folder.place, data))
        raise TaskError(*(Problem(problem.message, problem.file, key=problem.key) for problem in found)) from error


def _parse(rest: str) -> tuple[Path, tuple[str, ...], str, OnFailure]:
    given = {"ids": "", "prefix": "", "on_failure": OnFailure.ERROR.value}
    example = f"a folder or archive, such as {SCHEME}:data/clawgym_train.tar.xz"
    path, found = path_and_query(SCHEME, rest, given, example)
    if found["on_failure"] not in list(OnFailure):
        raise TaskError(f"{SCHEME}:{rest}: on_failure must be one of {', '.join(OnFailure)}")
    return path, listed(found["ids"]), found["prefix"], OnFailure(found["on_failure"])


def _entry(folder: Folder) -> dict[str, Any]:
    file = f"{folder.place}/{ENTRY}"
    if folder.entry is None:
        raise TaskError(Problem("is missing: a task folder needs it", file))
    try:
        entry = json.loads(folder.entry)
    except (ValueError, RecursionError) as error:  # a UnicodeDecodeError is a ValueError
        raise TaskError(Problem(f"is no JSON: {error}", file)) from error
    if not isinstance(entry, dict):
        raise TaskError(Problem("must be a JSON object", file))
    problems = [
        Problem("must be a text", file, key=key)
        for key in ("task_id", "user_query")
        if not isinstance(entry.get(key), str)
    ]
    mount = entry.get("input_mount_dir")
    if mount is not None and not isinstance(mount, str):
        problems.append(Problem("must be a text, or absent", file, key="input_mount_dir"))
    if problems:
        raise TaskError(*problems)
    return entry


def _script(folder: Folder, entry: dict[str, Any]) -> dict[str, Any]:
    files: dict[str, str] = {}
    for name, file in folder.reward.items():
        try:
            if file.content is None or "/" in name:
                raise ValueError("only plain files can be judges")
            files[name] = file.content.decode("utf-8")
        except ValueError as error:
            raise TaskError(Problem(f"cannot be used: {error}", f"{folder.place}/{REWARD}/{name}")) from error
    runner = folder.reward.get(RUNNER)
    plain = runner is None or hashlib.sha256((runner.content or b"").rstrip() + b"\n").hexdigest() == RUNNER_SHA256
    if plain:
        files.pop(RUNNER, None)
    else:
        files[RUNNER] = _IN_REWARD.sub("$GRADER/", files[RUNNER])
    if (CHECK if plain else RUNNER) not in files:
        raise TaskError(Problem("is missing: it is what judges the task", f"{folder.place}/{REWARD}/{CHECK}"))
    run = f'python3 -I "$GRADER/{CHECK}" "$WORKSPACE"' if plain else f'bash "$GRADER/{RUNNER}"'
    script: dict[str, Any] = {
        "kind": "script",
        "name": "reward",
        "files": files,
        "timeout": GRADER_SECONDS,
        "mode": "json" if plain else "last_float",
    }
    needed = sorted({package for text in files.values() for package in _PACKAGES.findall(text)})
    if any(PAYLOAD in text for text in files.values()):
        script["payload"] = {key: entry[key] for key in ("task_id", "user_query", "metadata") if key in entry}
        run = f'{PAYLOAD}="$GRADER/payload.json" {run}'
    if needed:
        run = f"python3 -I -c 'import {', '.join(needed)}' || exit 125\n{run}"
    return {**script, "command": _JUDGE.format(run=run)}


__all__ = ["SCHEME", "is_clawgym", "load"]
