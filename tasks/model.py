"""The base of task models, the words for what is wrong with a task, and files that appear whole or not at all."""

from __future__ import annotations

import difflib
import math
import os
import posixpath
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TextIO, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

# -- What is wrong with task files: one line per problem, with file, line, key and remedy, all of them in one error ---

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        message: What is wrong and what to do.
        file: Where; empty if the task came from no file.
        line: Line in the file, from 1; None if unknown.
        key: Key in the file, such as `assertions[1].path`; empty if the whole file is meant.
    """

    message: str
    file: str = ""
    line: int | None = None
    key: str = ""

    def __str__(self) -> str:
        """Return `file:line: key: message`, without the parts that are unknown."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return ": ".join(part for part in (place, self.key, self.message) if part)


class TaskError(ValueError):
    """Tasks could not be loaded. The text lists every problem, one a line.

    Attributes:
        problems: The same as data.
    """

    def __init__(self, *problems: Problem | str) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            item if isinstance(item, Problem) else Problem(item) for item in problems
        )
        super().__init__("\n".join(str(problem) for problem in self.problems))


def collected(errors: Sequence[TaskError]) -> TaskError:
    """Merge errors into one that lists the problems of all."""
    return TaskError(*(problem for error in errors for problem in error.problems))


def each(items: Iterable[Item], make: Callable[[Item], Made]) -> list[Made]:
    """Return what `make` makes of each item; one that is broken does not hide the problems of the others.

    Raises:
        TaskError: the problems of all that are broken.
    """
    made: list[Made] = []
    errors: list[TaskError] = []
    for item in items:
        try:
            made.append(make(item))
        except TaskError as error:
            errors.append(error)
    if errors:
        raise collected(errors)
    return made


def counted(number: int, what: str) -> str:
    """Write a number with its noun: `1 problem`, `2 problems`."""
    return f"{number} {what}" + ("" if number == 1 else "s")


def table(rows: Iterable[Sequence[str]]) -> str:
    """Lay out rows in columns, two spaces apart; the last column is not padded."""
    cells = [list(row) for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    lines = (
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]) for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


# -- The base of every task model (frozen, strict), the types they share, and the words for what is wrong -------------

T = TypeVar("T")

BAD_SCALAR = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError)
"""What PyYAML raises for scalars that are not what their tag says; it checks them by using them."""
MAX_NUMBER = 400
"""Characters of a number, date or the like; YAML's reading of long ones takes time that grows with their square."""


class StrictModel(BaseModel):
    """Frozen; no value is coerced to another type; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def fault(message: str, *at: str | int) -> PydanticCustomError:
    """Build a validation error whose text is `message`; `at` leads from the model that raises it to the faulty key."""
    return PydanticCustomError("task", "{message}", {"message": message, "at": at})


def faults(found: Iterable[tuple[str, tuple[str | int, ...]]]) -> ValidationError:
    """Build one validation error of several: the text of each, and what leads from the model to its faulty key."""
    errors = [InitErrorDetails(type=fault(message, *at), input=None) for message, at in found]
    return ValidationError.from_exception_data("task", errors)


def not_json(value: object, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield what in a value JSON cannot hold, and where: dates, numbers that are none, keys that are no text."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from not_json(item, (*at, key))
            else:
                yield f"the key {key!r} is no text: put it in quotes", at
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from not_json(item, (*at, number))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"the number {value} has no form in JSON: write it as text, in quotes", at
    elif value is not None and not isinstance(value, str | bool | int | float):
        yield f"{value} is a {type(value).__name__}, which JSON cannot hold: write it as text, in quotes", at


def path_and_query(scheme: str, rest: str, parameters: Mapping[str, str], example: str) -> tuple[Path, dict[str, str]]:
    """Split the `PATH?name=VALUE&...` behind a scheme; a `?` with no `name=` after it belongs to the path.

    Args:
        scheme: Of the source, for messages.
        rest: What stands behind it.
        parameters: Names that there are, with what they are where they are not given.
        example: A path, for who names none.

    Returns:
        The path, and a value for each parameter.

    Raises:
        TaskError: No path, or an unknown parameter; the nearest one is named.
    """
    text, mark, query = rest.rpartition("?")
    if not mark or "=" not in query:
        text, query = rest, ""
    if not text:
        raise TaskError(f"{scheme}:{rest}: name {example}")
    found = dict(parameters)
    for item in query.split("&") if query else ():
        name, _, value = item.partition("=")
        if name not in found:
            raise TaskError(f"{scheme}:{rest}: " + unknown_key(name, found, "parameter"))
        found[name] = value
    return Path(text).expanduser(), found


def listed(text: str) -> tuple[str, ...]:
    """The values of a parameter like `ids=A,B`."""
    return tuple(item for item in text.split(",") if item)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that `word` most likely meant, or None."""
    known = list(choices)
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.55)
    if close:
        return close[0]
    return next((choice for choice in known if len(word) > 2 and (word in choice or choice in word)), None)


def unknown_key(key: object, valid: Iterable[str], what: str = "key") -> str:
    """Word the complaint about a key (or another name) that is not among `valid`, with the nearest one."""
    choices = list(valid)
    guess = nearest(str(key), choices)
    hint = f"did you mean '{guess}'? " if guess else ""
    return f"unknown {what} '{key}': {hint}(valid: {', '.join(choices)})"


def _as_tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value


Items = Annotated[tuple[T, ...], BeforeValidator(_as_tuple)]
"""A tuple that may be written as a list."""


def clean_path(path: str) -> str:
    """Return a workspace path in its one spelling: relative, no `.` or doubled slashes, no trailing slash.

    Raises:
        PydanticCustomError: the path is empty, absolute, or leaves the workspace.
    """
    if not path.strip():
        raise fault("a path is empty")
    if any(ord(character) < 32 for character in path):
        raise fault(f"path {path!r} holds a control character")
    if path.startswith("/"):
        raise fault(f"path '{path}' is absolute: write it relative to the workspace, for example '{path.strip('/')}'")
    if ".." in path.split("/"):
        raise fault(f"path '{path}' leaves the workspace: '..' is not allowed")
    normal = posixpath.normpath(path)
    if normal == "~" or normal.startswith("~/"):  # of the one spelling, so that it is accepted where it is read again
        raise fault(f"path '{path}' starts at a home folder: write it relative to the workspace")
    if not normal.strip():
        raise fault(f"path '{path}' has only blanks in its name")
    if normal == ".":
        raise fault(f"path '{path}' is the workspace itself: name something in it")
    return normal


WorkspacePath = Annotated[str, AfterValidator(clean_path)]
"""A path inside the workspace, cleaned by `clean_path`."""

Text = Annotated[str, Field(min_length=1)]
"""Text that is not empty."""


BLANK = "is blank"


def bash_problem(command: str) -> str | None:
    """Say why bash cannot run a text, in words that follow its name; None if it can."""
    if "\r" in command:
        return "holds a carriage return: bash would take it as text"
    if "\0" in command:
        return "holds a NUL character, which no command can"
    return None if command.strip() else BLANK


def _bash(command: str) -> str:
    problem = bash_problem(command)
    if problem is not None:
        raise fault(f"{problem}: write a command, or leave it out" if problem == BLANK else problem)
    return command


Bash = Annotated[str, AfterValidator(_bash)]
"""Text that bash runs."""


def _octal(mode: str) -> str:
    if not re.fullmatch(r"0?[0-7]{3}", mode):
        raise fault(f"mode '{mode}' is not three octal digits: write for example mode: \"0755\"")
    return mode.rjust(4, "0")


Mode = Annotated[str, AfterValidator(_octal)]
"""Permission bits as octal text of four digits; three may be written."""


# -- Files that appear whole or not at all, whatever interrupts their writer ------------------------------------------

LONE_SURROGATES = "backslashreplace"
"""How to open a file for JSON (`errors=`): a lone surrogate has no UTF-8, but a form in JSON, and is read back."""
SUFFIX = ".tmp"
"""How the names of unfinished files end; one is left only where its writer was killed."""


@contextmanager
def atomic_file(path: Path, *, sync: bool = True) -> Iterator[TextIO]:
    """A file to write: readers see the old content or the new one, never a part; after an exception the old one.

    Args:
        path: Where it will stand; its folder must be there.
        sync: Wait until it is on the disk, so that it outlives the machine and not only the process.

    Raises:
        OSError: It cannot be written.
    """
    fresh = path.with_name(f"{path.name}.{uuid.uuid4().hex}{SUFFIX}")
    try:
        with open(fresh, "x", encoding="utf-8", errors=LONE_SURROGATES, newline="\n") as file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(fresh, path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def remove_part_files(folder: Path) -> None:
    """Remove what `atomic_file` was writing in a folder when its process was killed."""
    for path in folder.glob(f"*{SUFFIX}"):
        if path.is_file():
            path.unlink()
