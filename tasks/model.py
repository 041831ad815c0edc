"""The base of every task model (frozen, strict), the types they share, and the words for what is wrong."""

from __future__ import annotations

import difflib
import posixpath
import re
from collections.abc import Iterable
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

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


def _octal(mode: str) -> str:
    if not re.fullmatch(r"0?[0-7]{3}", mode):
        raise fault(f"mode '{mode}' is not three octal digits: write for example mode: \"0755\"")
    return mode.rjust(4, "0")


Mode = Annotated[str, AfterValidator(_octal)]
"""Permission bits as octal text of four digits; three may be written."""
