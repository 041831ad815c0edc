"""What an instruction is: its arguments, its two readings, and finding words as a reader would."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any

# -- What an instruction is: its arguments, its two readings, and finding words as a reader would ---------------------

# ---------------------------------------------------------------------------------------------------------------------
# One instruction on the form of a text: what it is called, which arguments it takes, and whether a text follows it.


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


Check = Callable[..., bool]
"""Whether a text follows an instruction: takes the text, and the arguments under their official names.

The text is not blank: a blank one follows nothing, which `scoring.follows` sees to. A check takes time linear in the
length of the text, and gives the same answer from any thread.
"""


@dataclass(slots=True, eq=False)
class InstructionType:
    """One official id: which arguments it takes, how it reads in words, and the two readings of it.

    Attributes:
        id: The official id, `family:name`.
        kind: A few words for "these kinds of instruction were not followed: ...". Tells no number and no keyword.
        says: The condition in words, such as "has at least {num_words} words"; arguments stand in it by name.
        fixed: Decides by the wording of the prompt.
        reference: Decides as the published evaluator does; the same check unless `published` says otherwise.
        arguments: Name of each argument, and how it is read. All are needed.
        at_most: Two arguments of which the first must not be more than the second; None where there is no such pair.
        fix: Where and why the readings differ, a clause for the documentation; empty where they do not.
        needs: What must be installed for a verdict (of the fixed reading), for the documentation; mostly nothing.
    """

    id: str
    kind: str
    says: str
    fixed: Check
    reference: Check
    arguments: Mapping[str, Argument]
    at_most: tuple[str, str] | None
    fix: str
    needs: str

    def published(self, check: Check) -> Check:
        """Take a check for the published reading; a decorator."""
        self.reference = check
        return check

    def make(self, kwargs: Mapping[str, Any]) -> Instruction:
        """Read the arguments. Those that are None count as not given, as in the public files.

        Raises:
            InstructionError: an argument is missing, unknown, or of the wrong kind, or two do not fit together.
        """
        given = {name: value for name, value in kwargs.items() if value is not None}
        valid = ", ".join(self.arguments) or "none"
        for name in given:
            if name not in self.arguments:
                raise InstructionError(f"{self.id}: unknown argument '{name}' (valid: {valid})")
        args: dict[str, Any] = {}
        for name, argument in self.arguments.items():
            if name not in given:
                raise InstructionError(f"{self.id}: the argument '{name}' is missing (needed: {valid})")
            try:
                args[name] = argument.read(given[name])
            except ValueError as error:
                raise InstructionError(f"{self.id}: '{name}' must be {error}, not {given[name]!r}") from None
        if self.at_most:
            least, most = self.at_most
            if args[least] > args[most]:
                raise InstructionError(
                    f"{self.id}: '{most}' must be at least '{least}', but {args[most]} is less than {args[least]}"
                )
        return Instruction(self, args)


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction with its arguments. Immutable, so it may be used from any thread.

    Attributes:
        type: Which instruction.
        args: The arguments as read.
    """

    type: InstructionType
    args: dict[str, Any]

    @property
    def id(self) -> str:
        """The official id."""
        return self.type.id

    @property
    def kind(self) -> str:
        """A few words on what is asked, without number and keyword."""
        return self.type.kind

    def follows(self, text: str, semantics: Semantics) -> bool:
        """Return whether a text that is not blank follows the instruction, by one of its readings.

        Raises:
            InstructionError: it needs something that is not installed, or the reference itself cannot judge it.
        """
        check = self.type.reference if semantics is Semantics.REFERENCE else self.type.fixed
        return check(text, **self.args)

    def describe(self) -> str:
        """Return the condition in words, for people, such as "has at least 20 words"."""
        return self.type.says.format(**{name: _listed(value) for name, value in self.args.items()})


def _listed(value: Any) -> Any:
    return ", ".join(f"'{item}'" for item in value) if isinstance(value, tuple) else value


class InstructionSet(dict[str, InstructionType]):
    """The instructions of one benchmark by id.

    A check is added where it is written::

        @ifeval.add("punctuation:no_comma", kind="commas", says="uses no comma")
        def punctuation_no_comma(text: str) -> bool:
            return "," not in text
    """

    def add(
        self,
        id: str,
        *,
        kind: str,
        says: str,
        arguments: Mapping[str, Argument] | None = None,
        at_most: tuple[str, str] | None = None,
        fix: str = "",
        needs: str = "",
    ) -> Callable[[Check], InstructionType]:
        """Decorate the fixed reading of an instruction; see `InstructionType` for the arguments."""

        def taken(check: Check) -> InstructionType:
            self[id] = InstructionType(id, kind, says, check, check, arguments or {}, at_most, fix, needs)
            return self[id]

        return taken


ifeval = InstructionSet()
"""The 25 official ids of IFEval, once the modules that hold their checks are imported."""


AT_LEAST, LESS_THAN = "at least", "less than"
RELATION = choice(AT_LEAST, LESS_THAN)
"""How a count is compared; the official instructions know these two only."""


def compare(count: int, relation: str, bound: int) -> bool:
    """Return whether `count` stands in the relation to `bound`."""
    return count >= bound if relation == AT_LEAST else count < bound


# -- What several instructions share: finding a word or phrase as a reader would, and patterns of the reference -------

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]"
)
"""Letters of scripts that put no blanks between words: Thai, Lao, Burmese, Khmer, Japanese, Chinese."""

NOT_AFTER_LETTER, NOT_BEFORE_LETTER = r"(?<![^\W_])", r"(?![^\W_])"
"""Where a word may start and end: no letter or digit beside it. An underscore is neither."""


@lru_cache(maxsize=1024)
def whole_word(phrase: str) -> re.Pattern[str]:
    """Return a pattern that finds the phrase, in any case, where it is no part of a longer word.

    Nothing in the phrase has a special meaning, and a line break counts as a blank. An underscore, as Markdown puts it
    around words, is no part of a word: "cat" is in "_cat_".
    """
    parts = phrase.split()
    start = NOT_AFTER_LETTER if bounded(parts[0][0]) else ""
    end = NOT_BEFORE_LETTER if bounded(parts[-1][-1]) else ""
    return re.compile(start + r"\s+".join(re.escape(part) for part in parts) + end, re.IGNORECASE)


def bounded(character: str) -> bool:
    """Return whether words end at the character: a letter, digit or underscore of a script with blanks."""
    return re.match(r"\w", character) is not None and not _UNSPACED.match(character)


@lru_cache(maxsize=1024)
def reference_pattern(pattern: str, flags: int = re.IGNORECASE) -> re.Pattern[str]:
    """Compile what the reference takes as a pattern although it is a plain word.

    Raises:
        InstructionError: the word is no valid pattern: the reference itself cannot judge it.
    """
    try:
        return re.compile(pattern, flags)
    except re.error as error:
        raise InstructionError(
            f"the reference reads {pattern!r} as a regular expression, which it is not ({error}); "
            f"semantics: fixed takes it literally"
        ) from None
