"""What question sets share: the spec's parameters, rows from a file, a folder or the hub, and the gold self-test."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandboxes.guard import missing_extra
from tasks.assertions.base import Outcome
from tasks.assertions.grade import Grade, grade
from tasks.model import Problem, TaskError, unknown_key
from tasks.task import Task

# ---------------------------------------------------------------------------------------------------------------------
# What the sources of public question sets share: the spec's parameters, and rows from a file, a folder or the hub.
#
# A spec reads `SCHEME:WHERE?key=value&key=value`. WHERE is `sample` (ours, packaged), `hub` or `hub/OWNER/NAME`
# (fetched with `datasets`, only when asked for by name), or the path of a file or folder.

SAMPLE, HUB = "sample", "hub"
SAMPLES = Path(__file__).resolve().parent.parent / "samples"
"""Our own problems, one JSONL file for each set; a plain folder in the wheel too."""
SUFFIXES = (".jsonl", ".json", ".parquet")
"""Files that hold rows: one JSON object a line, one JSON object or list of them, a Parquet table."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a set, and where it stands.

    Attributes:
        data: The row's keys and values.
        file: The file, or `hub:OWNER/NAME[SPLIT]`.
        line: Its line (JSONL) or its number in the table, from 1.
    """

    data: Mapping[str, Any]
    file: str
    line: int

    def text(self, key: str) -> str:
        """Return the text under `key`.

        Raises:
            TaskError: the key is missing, or holds something else; the message names file, line and key.
        """
        if key not in self.data:
            keys = ", ".join(self.data) or "none"
            raise TaskError(Problem(f"is missing: a row of this set has it (keys here: {keys})", *self._at(key)))
        value = self.data[key]
        if not isinstance(value, str):
            raise TaskError(Problem(f"must be a text, not {json.dumps(value, default=str)[:60]}", *self._at(key)))
        return value

    def problem(self, message: str, key: str = "") -> Problem:
        """Return a problem that names this row."""
        return Problem(message, *self._at(key))

    def _at(self, key: str) -> tuple[str, int, str]:
        return self.file, self.line, key


def split_spec(rest: str, scheme: str, allowed: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Split what stands after `SCHEME:` into where the rows are and the parameters.

    A file or folder may have a `?` in its name: what exists as a path is one.

    Raises:
        TaskError: an unknown parameter (the nearest is named), one given twice or without a value, or no WHERE.
    """
    names, spec = tuple(allowed), f"{scheme}:{rest}"
    where, _, query = (rest, "", "") if "?" in rest and _exists(rest) else rest.partition("?")
    if not where:
        raise TaskError(f"{spec}: names no rows: {ways(scheme)}")
    params: dict[str, str] = {}
    for item in query.split("&") if query else ():
        name, equals, value = item.partition("=")
        if name not in names:
            raise TaskError(f"{spec}: " + unknown_key(name, names, "parameter"))
        if not equals or not value:
            raise TaskError(f"{spec}: '{name}' needs a value, as in {name}=VALUE")
        if name in params:
            raise TaskError(f"{spec}: '{name}' is given twice")
        params[name] = value
    if where == SAMPLE and "split" in params:
        raise TaskError(f"{spec}: our sample has no splits: leave split= out")
    return where, params


def ways(scheme: str) -> str:
    """Name the ways to get rows, for messages."""
    return (
        f"give {scheme}:PATH (a file or folder that holds the set), {scheme}:hub or {scheme}:hub/OWNER/NAME (fetched "
        f"with `datasets`), or {scheme}:sample (a few problems that ship)"
    )


def whole_number(params: Mapping[str, str], name: str, spec: str, default: int | None = None) -> int | None:
    """Return a parameter that must be a whole number of at least 1, or the default.

    Raises:
        TaskError: it is something else.
    """
    if name not in params:
        return default
    value = params[name]
    if not (value.isascii() and value.isdigit() and int(value) >= 1):
        raise TaskError(f"{spec}: {name}='{value}' must be a whole number of at least 1")
    return int(value)


def weight(params: Mapping[str, str], name: str, spec: str, default: float = 0.0) -> float:
    """Return a parameter that must be a number of at least 0, or the default.

    Raises:
        TaskError: it is something else.
    """
    if name not in params:
        return default
    try:
        value = float(params[name])
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TaskError(f"{spec}: {name}='{params[name]}' must be a number of at least 0")
    return value


def choice(params: Mapping[str, str], name: str, spec: str, choices: Iterable[str], default: str) -> str:
    """Return a parameter that must be one of `choices`, or the default.

    Raises:
        TaskError: it is something else; the nearest is named.
    """
    value, valid = params.get(name, default), [str(item) for item in choices]
    if value not in valid:
        raise TaskError(f"{spec}: " + unknown_key(value, valid, name))
    return value


def read_rows(where: str, scheme: str, hub: str, split: str | None = None, config: str | None = None) -> list[Row]:
    """Read the rows that a spec names, in the order of the set.

    Args:
        where: `sample`, `hub`, `hub/OWNER/NAME`, or a path.
        scheme: The set, for messages and for the name of its sample file.
        hub: OWNER/NAME that plain `hub` stands for.
        split: Which split of a folder or of the hub. A file is read whole. None takes every row file of a folder, and
            the split `train` of the hub.
        config: Configuration of the hub's data set, where it has several.

    Raises:
        TaskError: nothing there, unreadable files or rows that are no objects; or the hub cannot be reached.
    """
    if where == SAMPLE:
        return list(_from_file(SAMPLES / f"{scheme}.jsonl"))
    if where == HUB or where.startswith(f"{HUB}/"):
        return from_hub(where.removeprefix(HUB).lstrip("/") or hub, scheme, split or "train", config)
    path = Path(where).expanduser()
    if not path.exists():
        raise TaskError(Problem(f"there is no such file or folder: {ways(scheme)}", str(path)))
    files = row_files(path, split, scheme) if path.is_dir() else [path]
    return [row for file in files for row in _from_file(file)]


def row_files(folder: Path, split: str | None, scheme: str) -> list[Path]:
    """Return the files of a folder that hold rows, sorted.

    With a split: `SPLIT.jsonl` (or `.json`, `.parquet`), else `SPLIT-*` and `SPLIT_*` parts (in `data/` too, as the hub
    lays them), else all in a folder of that name and below. Without: all in the folder and below. Hidden ones are left
    out.

    Raises:
        TaskError: there are none; what is there instead is listed.
    """
    if split is None:
        found = _below(folder)
    else:
        # The first layout that is there wins: a set is not read twice because it lies there in two formats.
        looks = [[f"{split}{suffix}"] for suffix in SUFFIXES]
        looks += [[f"{split}-*{suffix}", f"{split}_*{suffix}"] for suffix in SUFFIXES]
        places = [folder, folder / "data", folder / "main"]
        layouts = ([file for name in names for file in place.glob(name)] for place in places for names in looks)
        found = sorted(next(filter(None, layouts), [])) or _below(folder / split)
    if found:
        return found
    there = ", ".join(sorted(item.name for item in folder.iterdir())[:8]) or "nothing"
    wanted = f"split '{split}' (such as {split}.jsonl)" if split else "files of rows (.jsonl, .json, .parquet)"
    raise TaskError(Problem(f"holds no {wanted}; it holds {there}: {ways(scheme)}", str(folder)))


def from_hub(name: str, scheme: str, split: str, config: str | None = None) -> list[Row]:
    """Fetch a data set with `datasets`; what it has in its cache needs no network.

    Raises:
        TaskError: it cannot be had: no such set, split or configuration, or no network. Names the other ways.
    """
    place = f"hub:{name}[{split}]"
    try:
        import datasets  # only here: nothing else needs the half second that this takes
    except ModuleNotFoundError as error:
        raise TaskError(Problem(f"cannot be fetched: {missing_extra(error) or error}", place)) from error
    try:
        table = datasets.load_dataset(name, config, split=split)
        rows = [dict(row) for row in table]
    except Exception as error:  # the library raises what its many parts raise; whatever it is, there are no rows
        reason = f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
        raise TaskError(Problem(f"cannot be fetched ({reason}): {ways(scheme)}", place)) from error
    if not rows:
        raise TaskError(Problem("has no rows", place))
    return [Row(row, place, number) for number, row in enumerate(rows, start=1)]


def _exists(path: str) -> bool:
    try:
        return Path(path).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a name, or no such home folder: not a path, then
        return False


def _below(folder: Path) -> list[Path]:
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix in SUFFIXES
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def _from_file(file: Path) -> Iterator[Row]:
    if file.suffix not in SUFFIXES:
        raise TaskError(Problem("is no file of rows: its name must end in .jsonl, .json or .parquet", str(file)))
    count = 0
    for line, value in _values(file):
        if not isinstance(value, dict):
            raise TaskError(Problem(f"must be a JSON object, not {json.dumps(value)[:60]}", str(file), line))
        count += 1
        yield Row(value, str(file), line)
    if not count:
        raise TaskError(Problem("holds no rows", str(file)))


def _values(file: Path) -> Iterator[tuple[int, Any]]:
    """The rows of a file as they stand there, each with its line."""
    if file.suffix == ".parquet":
        try:
            import pyarrow  # type: ignore[import-untyped]  # ships no types
            import pyarrow.parquet  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise TaskError(Problem(f"cannot be read: {missing_extra(error) or error}", str(file))) from error
        try:
            rows = pyarrow.parquet.read_table(file).to_pylist()
        except (OSError, pyarrow.ArrowException) as error:
            raise TaskError(Problem(f"cannot be read: {error}", str(file))) from error
        yield from enumerate(rows, start=1)
        return
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(Problem(f"cannot be read: {error}", str(file))) from error
    if file.suffix == ".json":
        value = _parsed(text, file, 1)
        yield from enumerate(value, start=1) if isinstance(value, list) else [(1, value)]
        return
    for number, line in enumerate(text.split("\n"), start=1):  # not splitlines, which splits at U+2028 in a text too
        if line.strip():
            yield number, _parsed(line, file, number)


def _parsed(text: str, file: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TaskError(Problem(f"is no JSON: {error}", str(file), line)) from error


# ---------------------------------------------------------------------------------------------------------------------
# The gold self-test of question sets: a right answer must score 1 and no answer 0, or figures on the set would lie.

TESTED = 2000
"""Tasks tested at most; of a larger set, so many spread over it evenly."""
SHOWN = 5
"""Problems named in a text."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the self-test found.

    Attributes:
        questions: Tasks that the answer alone decides; `tested` of them were looked at.
        gold: Tested tasks that know a right answer; on `gold_right` of them it passes.
        empty_right: Tested tasks on which giving no answer scores 0.
        problems: Task and what is wrong, for each task that failed.
    """

    questions: int
    tested: int
    gold: int
    gold_right: int
    empty_right: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing failed."""
        return not self.problems

    @property
    def hopeless(self) -> bool:
        """Nothing can be learned or measured: no right answer passes, or every empty one earns something."""
        return bool(self.tested) and (bool(self.gold) and not self.gold_right or not self.empty_right)

    def text(self) -> str:
        """For people: the coverage, and the first problems, one a line."""
        head = f"gold scores 1 on {self.gold_right}/{self.gold}, empty 0 on {self.empty_right}/{self.tested}"
        if self.tested < self.questions:
            head += f" (of {self.questions} questions, {self.tested} were tested)"
        if self.tested and not self.gold:
            head += " (no task of the set knows a right answer)"
        lines = [head, *self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more")
        return "\n  ".join(lines)


def self_test(tasks: Sequence[Task], most: int = TESTED) -> Coverage | None:
    """Grade the right answer (`oracle.answer`) and no answer, for every task that the answer alone decides.

    Args:
        tasks: Any tasks; those that judge more than the answer are left out.
        most: How many to test; of more, so many spread evenly.

    Returns:
        What was found, `None` where no task is a question. Nothing runs in a sandbox.
    """
    questions = [task for task in tasks if all(item.on_answer for item in task.assertions if item.weight)]
    if not questions:
        return None
    count = min(len(questions), most)
    chosen = [questions[i * len(questions) // count] for i in range(count)]
    problems: list[str] = []
    found: Counter[str] = Counter()
    for task in chosen:
        empty = _grade(task, None)
        if empty.rate == 0:
            found["empty"] += 1
        else:
            problems.append(f"{task.id}: no answer scores {_score(empty)}")
        if task.oracle is None or task.oracle.answer is None:
            continue
        found["gold"] += 1
        gold = _grade(task, task.oracle.answer)
        if gold.passed:
            found["right"] += 1
        else:
            problems.append(f"{task.id}: the right answer scores {_score(gold)}")
    return Coverage(len(questions), count, found["gold"], found["right"], found["empty"], tuple(problems))


def _grade(task: Task, answer: str | None) -> Grade:
    files = task.files()
    return grade(task, Outcome(files, files, answer))


def _score(graded: Grade) -> str:
    if graded.rate is None:
        return "nothing, for it could not be judged: " + "; ".join(f"{e.name}: {e.detail}" for e in graded.errors)
    failed = [f"{r.name}: {r.detail}" for r in graded.deciding if r.score != 1.0]
    return f"{graded.rate:.3g}" + (f" ({'; '.join(failed)})" if failed else "")
