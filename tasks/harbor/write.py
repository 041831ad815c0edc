"""What `python -m tasks export --to harbor` does: one folder per task that Harbor loads, runs and judges."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxes.boot import WORKSPACE
from sandboxes.docker.image import FOLDER as IMAGE
from sandboxes.inside.variables import environment
from sandboxes.sandbox import EntryKind, FileEntry
from tasks.assertions.base import leaves
from tasks.assertions.run import GraderAssertion
from tasks.assertions.script import judges_reply
from tasks.harbor import TEMPLATES
from tasks.harbor.wheels import grading_wheels
from tasks.judged_in import is_shared, network_reason
from tasks.model import SUFFIX, Problem, TaskError, counted
from tasks.task import Task
from tasks.yaml import dump_task

# -- What a task folder holds -----------------------------------------------------------------------------------------
# The agent's image and the verifier's start with the same lines, so that an engine installs their packages once. The
# workspace travels as an archive: links, modes and names come out of it as the task lays them, and no tool that walks
# the folder meets a link that leads nowhere. Graders, task file and wheels are in the verifier's image alone.

BASE_IMAGE = "debian:bookworm-slim"
BASE_PYTHON = (3, 11)
"""Version of Python in `BASE_IMAGE`: what compiled wheels must be made for."""
OWNER = 1000
"""Who owns the workspace and acts in it, as in our own image."""
USER = "user"
REPLY_SECONDS = 60.0
"""What a reply of the agent may take, beside its command."""
_DATE = 946_684_800
"""Time of every file, in seconds: the same task, the same bytes. Not 1970, which a zip archive cannot say."""
CARRIED = frozenset(
    ("schema_version", "id", "intent", "persona", "tags", "difficulty", "family", "workspace", "workdir", "environment")
    + ("limits", "budget", "assertions", "oracle", "split", "metadata", "turns")
)
"""Keys of a task that these folders express, or that the verifier's copy of the task is enough for."""
ARCHIVE = "/logs/artifacts/workspace.tar"
"""The workspace as the agent left it; Harbor brings its folder to the verifier, whose script names it, too."""
WHEELS = "tests/wheels/"
_HARBORS = ("/logs", "/tests", "/solution")
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9._/-]+")
_HEAD_ENDS = "# The offline builder"
"""The comment in our image's Dockerfile up to which it installs; what follows sets the sandbox's own workspace."""


def why_not(task: Task) -> str:
    """Say why Harbor cannot carry a task; empty if it can."""
    wanting = sorted(task.model_dump(exclude_defaults=True, exclude=set(CARRIED)))
    if wanting:
        return f"it has {' and '.join(wanting)}, which the export does not carry"
    parts = [leaf for item in task.assertions for leaf in leaves(item)]
    said = [leaf.name or leaf.default_name() for leaf in parts if judges_reply(leaf)]
    if said:
        return f"{said[0]} judges what the agent says, and Harbor's verifiers only see files"
    if is_shared(task):
        return "it is judged by the agent's processes, and the verifier has a container of its own"
    if reason := network_reason(task):
        return f"its verifier needs a network ({reason}), and has none"
    foreign = [leaf for leaf in parts if not type(leaf).__module__.startswith("tasks.")]
    if foreign:
        return f"{foreign[0].kind} is an assertion of another package, which the verifier's image would not have"
    if any("\n" in value for value in task.environment.values()):
        return "a value of its environment has several lines, which a Dockerfile cannot set"
    if ".." in task.id:
        return "its id holds '..', which Harbor takes in no name"
    place = workdir(task)
    if any(place == folder or place.startswith(folder + "/") for folder in _HARBORS):
        return f"its workdir {place} is a folder of Harbor's"
    if not _PLAIN_PATH.fullmatch(place):
        return f"its workdir {place} holds characters that a Dockerfile would read as something else"
    return ""


def workdir(task: Task) -> str:
    """Where the workspace stands."""
    return task.workdir or WORKSPACE


def task_folder(task: Task, wheels: Mapping[str, bytes], base_image: str = BASE_IMAGE) -> dict[str, FileEntry]:
    """Return the files of a Harbor task: path to content, sorted. The same arguments give the same bytes.

    Args:
        task: One that `why_not` finds nothing against.
        wheels: What `grading_wheels` returns.
        base_image: What both images are built from; a Debian or Ubuntu, or one that has our packages already.
    """
    shared = {name: (IMAGE / name).read_text("utf-8") for name in ("packages.txt", "prepare.sh")}
    texts = {
        "task.toml": _toml(_config(task)),
        "instruction.md": _instruction(task),
        "environment/Dockerfile": _agents_image(task, base_image),
        **{f"environment/{name}": text for name, text in shared.items()},
        "tests/Dockerfile": _verifiers_image(task, base_image),
        **{f"tests/{name}": text for name, text in shared.items()},
        "tests/task.yaml": dump_task(task),
    }
    scripts = {"tests/test.sh": _filled("harbor_test.sh", task)}
    if commands := _solution(task):
        scripts["solution/solve.sh"] = _filled("harbor_solve.sh", task, _runs(commands))
    files = {path: _file(text.encode()) for path, text in texts.items()}
    files |= {path: _file(text.encode(), 0o755) for path, text in scripts.items()}
    files |= {f"{WHEELS}{name}": _file(content) for name, content in wheels.items()}
    files["environment/workspace.tar"] = _file(_archive(task.files()))
    return dict(sorted(files.items()))


def _file(content: bytes, mode: int = 0o644) -> FileEntry:
    return FileEntry(content=content, mode=mode, size=len(content))


def _config(task: Task) -> dict[str, Any]:
    graders = [leaf for item in task.assertions for leaf in leaves(item) if isinstance(leaf, GraderAssertion)]
    budget = task.budget
    return {
        "schema_version": "1.4",
        "artifacts": [workdir(task)],
        "task": {
            "name": f"turngym/{task.id}",
            "version": task.content_hash[:12],
            "description": task.intent.splitlines()[0],
            "keywords": list(task.tags),
        },
        "metadata": {
            "difficulty": task.difficulty.value,
            "tags": list(task.tags),
            "category": task.family or "hand-written",
            "turngym_task": task.id,
            "turngym_hash": task.content_hash,
            "max_turns": budget.max_turns,
            "command_seconds": budget.command_seconds,
        },
        "agent": {
            "timeout_sec": budget.episode_seconds or budget.max_turns * (budget.command_seconds + REPLY_SECONDS),
            "user": USER,
        },
        # A grader that runs out of time is run again, and once on the untouched workspace.
        "verifier": {"environment_mode": "separate", "timeout_sec": 120.0 + 3 * sum(leaf.timeout for leaf in graders)},
        "verifier.environment": {
            "network_mode": "no-network",
            "cpus": 1,
            "memory_mb": 2048,
            "workdir": workdir(task),
        },
        "[verifier.collect]": {"command": _collect(workdir(task)), "user": "root"},
        "environment": {"cpus": 1, "memory_mb": 2048, "storage_mb": 10240, "workdir": workdir(task)},
    }


def _collect(place: str) -> str:
    """Keep the workspace as an archive: Harbor's own way to the verifier drops write permission of groups."""
    return f"rm -rf {ARCHIVE}; tar --numeric-owner -C {place} -cf {ARCHIVE} ."


def _instruction(task: Task) -> str:
    who = ""
    if task.persona is not None:
        context = f" ({task.persona.context})" if task.persona.context else ""
        who = f"Asked by: {task.persona.role}{context}\n\n"
    return f"{who}{task.intent}\n\nThe workspace is `{workdir(task)}`.\n"


def _head(base_image: str) -> str:
    """The start of both images: what the sandbox's own image installs."""
    text, found, _ = (IMAGE / "Dockerfile").read_text("utf-8").partition(_HEAD_ENDS)
    first = text.index("ARG BASE=")
    assert found
    rest = text[first:].partition("\n")[2]
    return f"ARG BASE={base_image}\n{rest}"


def _agents_image(task: Task, base_image: str) -> str:
    place = workdir(task)
    given = {**environment(place, "/tmp"), **task.environment}
    settings = " ".join(f"{name}={_word(value)}" for name, value in given.items())
    return (
        f"# The workspace of the task '{task.id}', in an image with the packages of TurnGym's sandbox.\n"
        f"{_head(base_image)}"
        f"ENV {settings}\n"
        f"RUN mkdir -p {place} && chown {OWNER}:{OWNER} {place}\n"
        f"ADD workspace.tar {place}/\n"
        f"WORKDIR {place}\n"
        f"USER {OWNER}:{OWNER}\n"
    )


def _word(value: str) -> str:
    """A value of ENV: a Dockerfile reads `$`, quotes and backslashes in it."""
    return '"' + re.sub(r'(["\\$])', r"\\\1", value) + '"'


def _verifiers_image(task: Task, base_image: str) -> str:
    return (
        f"# Judges the task '{task.id}' with TurnGym, apart from where the agent worked.\n"
        f"{_head(base_image)}COPY . /tests/\nWORKDIR {workdir(task)}\n"
    )


def _filled(template: str, task: Task, commands: str = "") -> str:
    text = (TEMPLATES / template).read_text("utf-8")
    return text.replace("@WORKDIR@", shlex.quote(workdir(task))).replace("@COMMANDS@\n", commands)


def _solution(task: Task) -> list[str]:
    """The oracle's commands; none where it reads what a command prints, which a script of commands alone does not."""
    steps = () if task.oracle is None else task.oracle.commands
    plain = [step for step in steps if isinstance(step, str)]
    return plain if len(plain) == len(steps) else []


def _runs(commands: Sequence[str]) -> str:
    return "".join(f"\nrun {shlex.quote(command)}\n" for command in commands)


def _archive(entries: Mapping[str, FileEntry]) -> bytes:
    """The workspace, its own folder first: an archive with nothing in it would be copied as a file."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, entry in {".": FileEntry(EntryKind.DIR, None, 0o755), **entries}.items():
            item = tarfile.TarInfo(path)
            item.mode, item.mtime, item.uid, item.gid = entry.mode, _DATE, OWNER, OWNER
            content = entry.content or b""
            if entry.kind is EntryKind.DIR:
                item.type = tarfile.DIRTYPE
            elif entry.kind is EntryKind.SYMLINK:
                item.type, item.linkname = tarfile.SYMTYPE, entry.target or ""
            else:
                item.size = len(content)
            archive.addfile(item, io.BytesIO(content) if entry.kind is EntryKind.FILE else None)
    return out.getvalue()


def _toml(tables: Mapping[str, Any]) -> str:
    """TOML of plain values, and of tables of them by their dotted names; in brackets, one of a list of tables."""
    lines = [f"{key} = {_value(value)}" for key, value in tables.items() if not isinstance(value, dict)]
    for name, table in tables.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    """A value as TOML: its strings escape what those of JSON do, and DEL."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- The command ------------------------------------------------------------------------------------------------------


def export(
    tasks: Sequence[Task], destination: Path, *, wheels: Sequence[Path] = (), base_image: str = BASE_IMAGE
) -> int:
    """Write a folder for each task that Harbor can carry, whole or not at all, and name the others with the reason.

    Returns:
        Exit code: 0, or 1 if a task was left out.

    Raises:
        TaskError: A folder is there already, wheels are missing or for another Python than the base image's, or the
            destination cannot be written; only then are folders there already.
    """
    taken = [path for task in tasks if os.path.lexists(path := destination / task.id)]
    if taken:
        raise TaskError(
            *(Problem("is there already and was left as it is: choose another place", str(p)) for p in taken)
        )
    if not re.fullmatch(r"\S+", base_image):
        raise TaskError(f"--base-image '{base_image}' is no name of an image")
    left_out = {task.id: reason for task in tasks if (reason := why_not(task))}
    carried = [task for task in tasks if task.id not in left_out]
    judges = _checked(grading_wheels(wheels), base_image) if carried else {}
    first: Path | None = None
    for task in carried:
        _lay(destination / task.id, task_folder(task, judges, base_image), first)
        first = first or destination / task.id
    for task_id, reason in left_out.items():
        print(f"tasks: left out {task_id}: {reason}", file=sys.stderr)
    proven = sum(bool(_solution(task)) for task in carried)
    print(f"wrote {counted(len(carried), 'task folder')} to {destination} ({proven} with a solution)")
    if first is not None:
        print(f"run one:  harbor run --path {first} --agent oracle")
    return 1 if left_out else 0


def _checked(wheels: Mapping[str, bytes], base_image: str) -> Mapping[str, bytes]:
    """Return the wheels if the base image can load them, as far as we know its Python."""
    wanted = f"cp{BASE_PYTHON[0]}{BASE_PYTHON[1]}"
    for name in wheels if base_image == BASE_IMAGE else ():
        python, abi = name.removesuffix(".whl").split("-")[-3:-1]
        if abi not in ("none", "abi3") and wanted not in python.split("."):
            raise TaskError(
                f"{name} is for another Python than the {BASE_PYTHON[0]}.{BASE_PYTHON[1]} of {BASE_IMAGE}: give one "
                f"for that with --wheel FILE, or name an image that has this Python with --base-image"
            )
    return wheels


def _lay(folder: Path, files: Mapping[str, FileEntry], first: Path | None) -> None:
    """Write a folder beside its place and move it there. Wheels are links to those of the first folder: one copy."""
    fresh = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}{SUFFIX}")
    try:
        for path, entry in files.items():
            target = fresh / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if first is not None and path.startswith(WHEELS):
                _link(first / path, target)
            else:
                target.write_bytes(entry.content or b"")
                target.chmod(entry.mode)
        fresh.rename(folder)
    except OSError as error:
        shutil.rmtree(fresh, ignore_errors=True)
        raise TaskError(Problem(f"cannot be written: {error.strerror or error}", str(folder))) from error
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise


def _link(there: Path, target: Path) -> None:
    try:
        target.hardlink_to(there)
    except OSError:  # a file system without such links
        shutil.copy2(there, target)
