"""One instruction on the form of a text: what it is called, which arguments it takes, and whether a text follows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Semantics(StrEnum):
    """Which reading of an instruction decides."""

    FIXED = "fixed"
    """By the wording of the prompt. The default, for rewards."""
    REFERENCE = "reference"
    """As the published evaluator decides, defects included. For numbers that are compared with published ones."""


class InstructionError(ValueError):
    """An id or an argument that no check can be made of. Becomes the verdict error: never a pass and never a fail."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an instruction.

    Attributes:
        read: Returns the value as the instruction uses it; raises ValueError with a reason that follows "must be".
    """

    read: Callable[[Any], Any]


def _whole(minimum: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, float) and value.is_integer():  # the public files write 2 as 2.0
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"a whole number of {minimum} or more")
        return value

    return read


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not blank")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("a list of texts with at least one")
    try:
        return tuple(_text(item) for item in value)
    except ValueError:
        raise ValueError("a list of texts of which none is blank") from None


def whole(minimum: int = 0) -> Argument:
    """Return an argument that is a whole number; `2.0` is read as `2`."""
    return Argument(_whole(minimum))


def choice(*values: str) -> Argument:
    """Return an argument that is one of the given texts."""

    def read(value: Any) -> str:
        if value not in values:
            raise ValueError("one of " + ", ".join(repr(item) for item in values))
        return str(value)

    return Argument(read)


TEXT = Argument(_text)
"""A text that is not blank, kept as it is."""
TEXTS = Argument(_texts)
"""A list of texts, read as a tuple."""


class Instruction(ABC):
    """An instruction with its arguments. Immutable after it is made, so it may be used from any thread.

    A subclass states `id`, `kind` and `arguments`, and finds the arguments in `self.args` under their names::

        class NoComma(Instruction):
            id = "punctuation:no_comma"
            kind = "commas"

            def follows(self, text: str, semantics: Semantics) -> bool:
                return "," not in text

            def describe(self) -> str:
                return "uses no comma"

    Every module of instructions ends with `ALL`, the tuple of its classes; `registry.INSTRUCTIONS` is made of them.

    Attributes:
        id: The official id, `family:name`.
        kind: A few words for "these kinds of instruction were not followed: ...". Tells no number and no keyword.
        arguments: Name of each argument, and how it is read. All are needed.
        args: The arguments as read.
    """

    id: ClassVar[str]
    kind: ClassVar[str]
    arguments: ClassVar[Mapping[str, Argument]] = {}

    def __init__(self, /, **kwargs: Any) -> None:
        """Read the arguments. Those that are None count as not given, as in the public files.

        Raises:
            InstructionError: an argument is missing, unknown, or of the wrong kind.
        """
        given = {name: value for name, value in kwargs.items() if value is not None}
        valid = ", ".join(self.arguments) or "none"
        for name in given:
            if name not in self.arguments:
                raise InstructionError(f"{self.id}: unknown argument '{name}' (valid: {valid})")
        self.args: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            if name not in given:
                raise InstructionError(f"{self.id}: the argument '{name}' is missing (needed: {valid})")
            try:
                self.args[name] = argument.read(given[name])
            except ValueError as error:
                raise InstructionError(f"{self.id}: '{name}' must be {error}, not {given[name]!r}") from None
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - most instructions have nothing to prepare
        """Compute once what every check needs, from `self.args`.

        Raises:
            InstructionError: the arguments do not fit together.
        """

    @abstractmethod
    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether the text follows the instruction.

        Args:
            text: Not blank: a blank text follows nothing, which `scoring.follows` sees to.
            semantics: Which reading decides.

        Must take time linear in the length of the text, and give the same answer from any thread.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return the condition in words, for people, such as "has at least 20 words"."""


AT_LEAST, LESS_THAN = "at least", "less than"
RELATION = choice(AT_LEAST, LESS_THAN)
"""How a count is compared; the official instructions know these two only."""


def compare(count: int, relation: str, bound: int) -> bool:
    """Return whether `count` stands in the relation to `bound`."""
    return count >= bound if relation == AT_LEAST else count < bound
