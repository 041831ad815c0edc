"""`parameters`: a task file that has them is a template of a family of tasks, one for each choice of values."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, product
from typing import Annotated, Any

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator, model_validator

from tasks.document import Document, Place
from tasks.model import Problem, StrictModel, fault, unknown_key
from tasks.oracle import NAME, Name, references, resolve

# -- What a file says under `parameters` ------------------------------------------------------------------------------

Value = str | int | float
"""What stands for a name in one task."""


LARGEST = 10**15
"""Largest number of a range: up to here whole numbers stay exact in JSON, CSV and floating point."""


class Range(StrictModel):
    """Whole numbers.

    Attributes:
        min: The smallest.
        max: The largest.
    """

    min: int = Field(ge=-LARGEST, le=LARGEST)
    max: int = Field(ge=-LARGEST, le=LARGEST)

    @model_validator(mode="after")
    def _holds_a_number(self) -> Range:
        if self.max < self.min:
            raise fault(f"max is {self.max}, less than min: {self.min}: swap them", "max")
        return self


def _choice(given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Take a list of texts and numbers, or a range."""
    if isinstance(given, dict | Range):
        return Range.model_validate(given)
    if not isinstance(given, list | tuple):
        raise fault("needs a list of values, or whole numbers as {min: 1, max: 9}")
    if not given:
        raise fault("is empty: give at least one value")
    for number, value in enumerate(given):
        if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
            raise fault("is neither a text nor a number: put it in quotes if it is text", number)
        if value in given[:number]:
            raise fault(f"{value!r} stands twice: remove one", number)
    return tuple(given)


class Parameters(StrictModel):
    """How many tasks a template makes, and of what.

    Attributes:
        n: Tasks to make.
        seed: Which choices of values, in which order. A smaller `n` gives the beginning of a larger one.
        values: For each name what `{{name}}` may stand for: a list of texts and numbers, or a range of whole numbers.
    """

    n: int = Field(ge=1, le=9999)
    seed: int = Field(default=0, ge=0)
    values: dict[Name, Annotated[tuple[Value, ...] | Range, WrapValidator(_choice)]]

    @field_validator("values")
    @classmethod
    def _some(cls, values: dict[str, Any]) -> dict[str, Any]:
        if not values:
            raise fault("is empty: name at least one parameter and its values")
        return values

    def spellings(self, text: str) -> Iterator[str]:
        """Yield what a text may become, at most `MOST` of them."""
        names = [name for name in references(text) if name in self.values]
        for drawn in islice(product(*(_values(self.values[name]) for name in names)), MOST):
            yield resolve(text, dict(zip(names, map(str, drawn), strict=True)))

    def draws(self) -> Iterator[dict[str, Value]]:
        """Yield choices of one value for each name, no choice twice, until there are no more."""
        choices = [_values(choice) for choice in self.values.values()]
        every = math.prod(len(choice) for choice in choices)
        chance = random.Random(self.seed)
        seen: set[int] = set()
        while len(seen) < every:
            number = chance.randrange(every)
            if number in seen:
                continue
            seen.add(number)
            drawn: dict[str, Value] = {}
            for name, choice in zip(self.values, choices, strict=True):
                number, position = divmod(number, len(choice))
                drawn[name] = choice[position]
            yield drawn


def _values(choice: tuple[Value, ...] | Range) -> Sequence[Value]:
    return range(choice.min, choice.max + 1) if isinstance(choice, Range) else choice


MOST = 10_000
"""Spellings of one text that are looked at."""


class Heading(StrictModel):
    """The part of a template that is no part of its tasks."""

    model_config = {**StrictModel.model_config, "extra": "ignore"}
    parameters: Parameters


# -- From a template to the document of one task ----------------------------------------------------------------------

_ALONE = re.compile(r"\{\{ *(" + NAME + r") *\}\}")
_ORACLE = ("commands", "alternatives", "answer")


@dataclass(frozen=True)
class Template:
    """A document whose texts, paths and keys hold `{{name}}`.

    Attributes:
        document: The file, without `parameters`.
        parameters: What the names may stand for.
    """

    document: Document
    parameters: Parameters

    def problems(self) -> list[Problem]:
        """What is wrong with its names: unknown ones, some that mean two things, some that nothing uses."""
        values, complain = self.parameters.values, self.document.complain
        reads = dict(_reads(self.document.data))
        found = [
            complain(f"'{name}' is a parameter, too: give what is read another name", place)
            for name, place in reads.items()
            if name in values
        ]
        used: set[str] = set()
        for place, text in _texts(self.document.data, ()):
            names = references(text)
            used.update(names)
            if place in (("id",), ("family",)) and names:
                found.append(
                    complain("is given by the template, so it takes no parameter: each task gets a number", place)
                )
            in_oracle = len(place) > 1 and place[0] == "oracle" and place[1] in _ORACLE
            for name in names:
                if name not in values and not (in_oracle and name in reads):
                    known = [*values, *(reads if in_oracle else ())]
                    found.append(complain(unknown_key(name, known, "parameter"), place))
        if "family" in self.document.data:
            found.append(complain("the family of a template's tasks is the template's id: leave it out", ("family",)))
        return found or [  # where a name is unknown, an unused one is most likely its other half
            complain(f"nothing holds {{{{{name}}}}}: use it, or remove it", ("parameters", "values", name))
            for name in values
            if name not in used
        ]

    @cached_property
    def numbers(self) -> frozenset[Place]:
        """Where a text is nothing but the `{{name}}` of a parameter: a number stands there as a number."""
        return frozenset(place for place, text in _texts(self.document.data, ()) if _ALONE.fullmatch(text))

    def filled(self, values: Mapping[str, Value], number: int, as_text: Collection[Place]) -> Document:
        """Return the document of one task.

        Args:
            values: What each name stands for.
            number: Which task of the template, from 1.
            as_text: Places of `numbers` whose keys take text, even if it looks like a number.
        """
        origin: dict[Place, Place] = {}
        problems = list(self.document.problems)
        words = {name: str(value) for name, value in values.items()}

        def fill(node: Any, place: Place, written: Place) -> Any:
            if place != written:
                origin[place] = written
            if isinstance(node, str):
                alone = _ALONE.fullmatch(node)
                if alone and written not in as_text and alone[1] in values:
                    return values[alone[1]]
                return resolve(node, words)
            if isinstance(node, list):
                return [fill(item, (*place, index), (*written, index)) for index, item in enumerate(node)]
            if not isinstance(node, dict):
                return node
            made: dict[str, Any] = {}
            for key, value in node.items():
                name = resolve(key, words)
                if name in made:
                    problems.append(self.document.complain(f"two keys become '{name}': rename one", (*written, key)))
                made[name] = fill(value, (*place, name), (*written, key))
            return made

        data = fill(self.document.data, (), ())
        if isinstance(data.get("id"), str):
            data["family"], data["id"] = data["id"], f"{data['id']}-{number:04d}"
        return replace(self.document, data=data, origin=origin, problems=problems)


def _texts(node: Any, place: Place) -> Iterator[tuple[Place, str]]:
    """Yield every text of a document with its place; for a key that of its value."""
    if isinstance(node, str):
        yield place, node
    elif isinstance(node, list):
        for index, item in enumerate(node):
            yield from _texts(item, (*place, index))
    elif isinstance(node, dict):
        for key, value in node.items():
            yield (*place, key), key
            yield from _texts(value, (*place, key))


def _reads(data: Any) -> Iterator[tuple[str, Place]]:
    """Yield the names that commands of the oracle read, as far as they are well formed."""
    oracle = data.get("oracle")
    ways: list[tuple[Place, Any]] = []
    if isinstance(oracle, dict):
        ways.append((("oracle", "commands"), oracle.get("commands")))
        others = oracle.get("alternatives")
        ways += [
            (("oracle", "alternatives", n), way) for n, way in enumerate(others if isinstance(others, list) else ())
        ]
    for place, way in ways:
        for number, step in enumerate(way if isinstance(way, list) else ()):
            reads = step.get("reads") if isinstance(step, dict) else None
            yield from ((name, (*place, number, "reads", name)) for name in (reads if isinstance(reads, dict) else ()))
