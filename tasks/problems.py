"""What is wrong with task files: one line per problem, with file, line, key and remedy, all of them in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

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
