"""Where tasks come from: library, families, YAML files, ClawGym and Harbor folders, field notes, question sets."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from tasks.document import parse
from tasks.harbor import SCHEME as HARBOR
from tasks.harbor import is_harbor
from tasks.model import Problem, TaskError, collected, nearest, unknown_key
from tasks.parameters import Heading
from tasks.plugins import TASKS, load_plugin, plugins
from tasks.sources.clawgym import SCHEME as CLAWGYM
from tasks.sources.clawgym import is_clawgym
from tasks.sources.clawgym import load as load_clawgym
from tasks.sources.fieldnotes import SCHEME as FIELDNOTES
from tasks.sources.fieldnotes import SUFFIX as RECORDS
from tasks.sources.fieldnotes import load as load_records
from tasks.task import Task
from tasks.yaml import load_file

# -- Task files: one YAML file is one task, a folder is all of them in it and below -----------------------------------

SUFFIXES = (".yaml", ".yml")


def load_yaml(path: Path) -> list[Task]:
    """Load a file, or every task file in a folder and below, sorted by path.

    Raises:
        TaskError: nothing there, broken files (all problems of all files), or an id that two files share.
    """
    return load_files(task_files(path))


def task_files(path: Path) -> list[Path]:
    """Return the task files that `path` stands for, sorted; hidden files and folders are left out.

    Raises:
        TaskError: a folder without task files, one that may not be read, or a file of another kind.
    """
    if not path.is_dir():
        if path.suffix.lower() not in SUFFIXES:
            raise TaskError(Problem("is no task file: its name must end in .yaml or .yml", str(path)))
        return [path]

    def refuse(error: OSError) -> None:  # `rglob` would pass over what it may not read, and its tasks would be missing
        raise unreadable(Path(error.filename or path), error) from error

    found = sorted(
        file
        for folder, _, names in os.walk(path, onerror=refuse)
        for file in (Path(folder, name) for name in names)
        if file.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in file.relative_to(path).parts)
    )
    if not found:
        raise TaskError(
            Problem(f"holds no task files (*.yaml): `python -m tasks new NAME --dir {path}` writes one", str(path))
        )
    return _without_fixtures(found)


_VERSION_2 = re.compile(rb"schema_version\W+2")
_FROM = re.compile(rb"\bfrom[\"']?\s*:")


def _without_fixtures(files: Sequence[Path]) -> list[Path]:
    """Leave out what lies in a folder that a task lays by `workspace.from`: a YAML file in it is no task."""
    if len({file.parent for file in files}) == 1:
        return list(files)  # nothing lies below another one, so none need be read here
    laid: set[Path] = set()
    for file in sorted(files, key=lambda file: len(file.parts)):
        if laid.isdisjoint(file.parents):
            laid.update(file.parent / name for name in _laid_by(file))
    return [file for file in files if laid.isdisjoint(file.parents)]


def _laid_by(file: Path) -> list[str]:
    """The folders that a task file names under `workspace.from`, as far as they can be told before it is loaded."""
    try:
        content = file.read_bytes()
        data = (
            parse(content.decode("utf-8"), str(file)).data
            if _VERSION_2.search(content) and _FROM.search(content)
            else None
        )
    except (OSError, UnicodeDecodeError):
        return []  # loading it says what is wrong
    if not isinstance(data, dict) or data.get("schema_version") != 2 or not isinstance(data.get("workspace"), dict):
        return []
    given = data["workspace"].get("from")
    names = [name for name in (given if isinstance(given, list) else [given]) if isinstance(name, str)]
    if "parameters" in data:
        try:
            parameters = Heading.model_validate(data).parameters
        except ValidationError:
            return []
        names = [spelt for name in names for spelt in parameters.spellings(name)]
    return [normal for name in names if (normal := posixpath.normpath(name)) != "."]


def unreadable(path: Path, error: OSError) -> TaskError:
    """Word that a folder or a file may not be read."""
    return TaskError(Problem(f"cannot be read ({error.strerror}): check its permissions", str(path)))


def load_files(files: Iterable[Path]) -> list[Task]:
    """Load task files; one broken file does not hide the problems of the others.

    Raises:
        TaskError: every problem of every file.
    """
    tasks: dict[str, tuple[Task, Path]] = {}
    errors: list[TaskError] = []
    for file in files:
        try:
            loaded = load_file(file)
        except TaskError as error:
            errors.append(error)
            continue
        for task in loaded:
            if task.id in tasks:
                first = tasks[task.id][1]
                message = f"the id '{task.id}' is taken by {first}: ids must be unique, rename one"
                errors.append(TaskError(Problem(message, str(file), key="id")))
                continue
            tasks[task.id] = (task, file)
    if errors:
        raise collected(errors)
    return [task for task, _ in tasks.values()]


# -- The hand-written tasks that ship with the package ----------------------------------------------------------------

LIBRARY = "library"
FOLDER = Path(__file__).resolve().parent.parent / "library"
"""Where the files are; a plain folder in the wheel too."""

DIALOGUES = "dialogues"
"""The shelf of the library whose tasks have a user, for `ClawGym-v1`."""
TURNS = "turns"
"""The shelf whose tasks need turns."""
SHELVES = (DIALOGUES, TURNS)
"""Folders of the library whose tasks are not among those of `library`, so that its pool stays as it is."""


def load_library(name: str | None = None) -> list[Task]:
    """Load all shipped tasks but those of shelves, sorted by id; or others by name.

    Args:
        name: A shelf, for all tasks on it; or the id of a task, wherever it stands.

    Raises:
        TaskError: no such id; the nearest one is named.
    """
    if name is None or name in SHELVES:
        return _on(FOLDER / (name or ""))
    for folder in (FOLDER, *(FOLDER / shelf for shelf in SHELVES)):
        if (file := folder / f"{name}.yaml") in task_files(folder):  # each file is named after its task
            return load_files([file])
    raise TaskError(unknown_key(name, [*SHELVES, *sorted(file.stem for file in task_files(FOLDER))], "library task"))


def load_shipped() -> list[Task]:
    """Load every task that ships: the library, then each of its shelves."""
    return [task for name in (None, *SHELVES) for task in load_library(name)]


def _on(folder: Path) -> list[Task]:
    return sorted(load_files(sorted(folder.glob("*.yaml"))), key=lambda task: task.id)


# -- Task folders of Harbor -------------------------------------------------------------------------------------------


def load_harbor(rest: str | Path) -> list[Task]:
    """Load Harbor tasks for what stands after `harbor:`.

    Raises:
        TaskError: See `tasks.harbor.read.load`.
    """
    from tasks.harbor.read import load  # only here: other sources need not pay for this import

    return load(rest)


# -- Procedural tasks by spec: `generated:<family>?n=100&seed=0` ------------------------------------------------------

GENERATED = "generated"
DEFAULTS = {"n": 100, "seed": 0}
"""Parameters of the spec, and what they are where the spec leaves them out."""


def load_generated(rest: str) -> list[Task]:
    """Generate the tasks for what stands after `generated:`.

    Raises:
        TaskError: unknown family or parameter (the nearest is named), or a number that makes no sense.
    """
    from tasks.families import NAMES, generate  # only here: other sources need not pay for this import

    family, numbers = read_generated(rest)
    if family not in NAMES:
        raise TaskError(f"{GENERATED}:{rest}: " + unknown_key(family, NAMES, "family"))
    return generate(family, numbers["n"], numbers["seed"])


def read_generated(rest: str) -> tuple[str, dict[str, int]]:
    """Return the family and the parameters (those of `DEFAULTS`) of what stands after `generated:`.

    Raises:
        TaskError: unknown parameter, or a number that makes no sense; whether there is such a family is not looked at.
    """
    family, _, query = rest.partition("?")
    return family, _parse(query, f"{GENERATED}:{rest}")


def _parse(query: str, spec: str) -> dict[str, int]:
    numbers = dict(DEFAULTS)
    seen: set[str] = set()
    for item in query.split("&") if query else ():
        name, _, value = item.partition("=")
        if name not in DEFAULTS:
            raise TaskError(f"{spec}: " + unknown_key(name, DEFAULTS, "parameter"))
        if name in seen:
            raise TaskError(f"{spec}: '{name}' is given twice")
        seen.add(name)
        try:
            numbers[name] = int(value)
        except ValueError:
            raise TaskError(f"{spec}: {name}='{value}' is no whole number") from None
    if numbers["n"] < 1:
        raise TaskError(f"{spec}: n={numbers['n']} asks for no tasks: n must be at least 1")
    return numbers


# -- Where tasks come from: library, families, YAML files, upstream ClawGym folders, field notes, question sets -------

Spec = str | Path | Sequence[str | Path]
"""What `load_tasks` takes."""

SETS = {"gsm8k": "gsm8k:load", "math": "math:load", "ifeval": "ifeval:load", "ifbench": "ifeval:load_ifbench"}
"""Question sets: module and function of this package, imported when asked for (their verifiers cost time to import)."""


def load_tasks(spec: Spec) -> list[Task]:
    """Load the tasks that `spec` names, in a fixed order.

    Args:
        spec: One of the following, a list of them, or several in one text with commas between:

            * ``library``: all tasks that ship but those of shelves; ``library:turns``: those that need turns;
              ``library:dialogues``: those with a user; ``library:ID``: one of any.
            * ``generated:FAMILY?n=100&seed=0``: `n` tasks of a procedural family (or of ``quickstart``, the mix).
            * ``clawgym:PATH``: upstream ClawGym tasks, a folder or a tar archive; ``?ids=A,B&prefix=TEXT`` may follow.
            * ``harbor:PATH``: Harbor task folders, one or a folder of them; ``?ids=A,B&unfit=skip`` may follow.
            * ``fieldnotes:FILE``: a JSONL file of field-notes records.
            * ``gsm8k:``, ``math:``, ``ifeval:`` or ``ifbench:`` and ``sample`` (problems of ours), ``PATH`` (a file or
              folder in the public layout) or ``hub``; ``?split=test&limit=100`` may follow.
            * What an installed package adds under the entry-point group ``turngym.tasks``: ``SCHEME:REST``.
            * A YAML file, or a folder: every ``*.yaml`` and ``*.yml`` in it and below. Folders of ClawGym and
              Harbor tasks, archives of ClawGym tasks and a ``.jsonl`` file are known by their shape.

    Returns:
        At least one task; no two share an id. A task that two specs name is listed once.

    Raises:
        TaskError: no such source, or broken files; every problem of every file is listed.
    """
    parts = specs(spec)
    if not parts:
        raise TaskError("no tasks named: give library, generated:FAMILY, a YAML file or a folder")
    tasks: dict[str, Task] = {}
    came_from: dict[str, str | Path] = {}
    errors: list[TaskError] = []
    for part in parts:
        try:
            loaded = _load(part)
        except TaskError as error:
            errors.append(error)
            continue
        for task in loaded:
            other, first = tasks.setdefault(task.id, task), came_from.setdefault(task.id, part)
            if other is not task and other.content_hash != task.content_hash:
                message = f"the id '{task.id}' names two different tasks: rename it, or the one in "
                message += _file_of(task.id, first)
                errors.append(TaskError(Problem(message, _file_of(task.id, part), key="id")))
    if errors:
        raise collected(errors)
    return list(tasks.values())


def _file_of(task_id: str, part: str | Path) -> str:
    """The task file of a source that holds a task; the source itself where it has no such files."""
    path = Path(part).expanduser()
    if (isinstance(part, str) and is_spec(part)) or not path.exists() or is_clawgym(path):
        return str(part)
    files = task_files(path) if path.is_dir() or path.suffix.lower() in SUFFIXES else []
    return next((str(file) for file in files if any(task.id == task_id for task in load_file(file))), str(part))


def specs(spec: Spec) -> list[str | Path]:
    """Return the parts of what `load_tasks` takes: one source each."""
    return [spec] if isinstance(spec, Path) else [*_several(spec)] if isinstance(spec, str) else list(spec)


_NAMED = re.compile(r"(?:^|,)\s*([a-z][a-z0-9_]*)=")
_TAKEN = ("unseen", "confirm", "sampled", "greedy", "eval", "held_out")
"""Words that figures and sides of a split begin with already."""


class HeldOutSources(NamedTuple):
    """What is only measured on: the source without a name (empty where there is none), and the others by name."""

    main: str
    sets: Mapping[str, str]


def held_out_sources(spec: str) -> HeldOutSources:
    """Take `SOURCE,NAME=SOURCE,..` apart; what is there as a file is one source.

    Raises:
        TaskError: A name that is taken or given twice, or a set without a source.
    """
    main, *named = [spec] if _is_there(Path(spec)) else _NAMED.split(spec)
    sets: dict[str, str] = {}
    for name, source in zip(named[::2], map(str.strip, named[1::2]), strict=True):
        if name.startswith(_TAKEN):
            raise TaskError(f"held_out: {name}={source}: figures begin with this word already; name the set otherwise")
        if name in sets:
            raise TaskError(f"held_out: {name}= is given twice; each set has a name of its own")
        if source in ("", "split", "none"):
            raise TaskError(f"held_out: {name}={source}: name a source of tasks, as in {name}=library")
        sets[name] = source
    main = main.strip()
    return HeldOutSources("" if sets and main == "none" else main, sets)


def schemes() -> dict[str, Callable[[str], Sequence[Task]]]:
    """Return what can stand before the colon of a spec, with what loads the rest; installed plug-ins come last.

    Raises:
        TaskError: two packages offer the same scheme, or one takes a name of ours.
    """
    own: dict[str, Callable[[str], Sequence[Task]]] = {
        LIBRARY: load_library,
        GENERATED: load_generated,
        CLAWGYM: load_clawgym,
        FIELDNOTES: load_records,
        HARBOR: load_harbor,
        **{name: partial(_from_set, name) for name in SETS},
    }
    foreign = plugins(TASKS)
    for name in foreign:
        if name in own:
            raise TaskError(f"the task source '{name}' of {foreign[name].value} has the name of one of ours")
    return {**own, **{name: partial(_from_plugin, entry) for name, entry in foreign.items()}}


def is_spec(spec: str) -> bool:
    """Whether `spec` starts with a known scheme, and so is no path, whatever files there are."""
    scheme, colon, _ = spec.partition(":")
    return scheme == LIBRARY or (bool(colon) and scheme in schemes())


def _several(spec: str) -> list[str]:
    """The specs of a text: a comma parts two of them where what follows it is a spec, or a path that is there.

    Commas inside a spec (``clawgym:PATH?ids=A,B``), and in the name of a file that stands alone, part nothing; a file
    with a comma in its name among others wants the list form.
    """
    if _is_there(Path(spec)):
        return [spec]
    parts: list[str] = []
    for piece in spec.split(","):
        starts = is_spec(piece.strip()) or (piece.strip() and _is_there(Path(piece.strip())))
        if parts and not starts:
            parts[-1] += f",{piece}"
        else:
            parts.append(piece.strip() if starts else piece)
    return parts


def _load(spec: str | Path) -> Sequence[Task]:
    known = schemes()
    if isinstance(spec, str):
        scheme, colon, rest = spec.partition(":")
        if scheme == LIBRARY:
            return load_library(rest if colon else None)
        if scheme in (GENERATED, *SETS) or (colon and scheme in known):
            return known[scheme](rest)
    path = Path(spec).expanduser()
    if not _is_there(path):
        guess = nearest(str(spec).partition(":")[0], known)
        hint = f"did you mean '{guess}'? " if guess else ""
        raise TaskError(
            f"no tasks at '{spec}': {hint}there is no such file or folder, and it is neither library, library:ID, "
            f"generated:FAMILY?n=100&seed=0, clawgym:PATH, harbor:PATH, fieldnotes:FILE, nor a question set such as "
            "gsm8k:sample"
        )
    try:
        is_upstream = is_clawgym(path)
    except PermissionError as error:
        raise unreadable(path, error) from error
    if is_upstream:
        return load_clawgym(path)
    if is_harbor(path):
        return load_harbor(path)
    if path.is_file() and path.suffix.lower() == RECORDS:
        return load_records(path)
    return load_yaml(path)


def _is_there(path: Path) -> bool:
    """Whether something is at a path.

    Raises:
        TaskError: a folder on the way to it may not be looked into.
    """
    try:
        return path.expanduser().exists()
    except PermissionError as error:
        raise unreadable(path, error) from error
    except OSError:  # too long for a name: several sources with commas between are
        return False


def _from_set(name: str, rest: str) -> Sequence[Task]:
    module, _, function = SETS[name].partition(":")
    loaded: Sequence[Task] = getattr(import_module(f"tasks.sources.{module}"), function)(rest)
    return loaded


def _from_plugin(entry: EntryPoint, rest: str) -> Sequence[Task]:
    tasks = load_plugin(entry)(rest)
    wrong = [type(task).__name__ for task in tasks if not isinstance(task, Task)]
    if wrong or not tasks:
        what = f"a {wrong[0]} among its tasks" if wrong else "no tasks"
        raise TaskError(f"the source '{entry.name}' ({entry.value}) returned {what} for '{entry.name}:{rest}'")
    return list(tasks)
