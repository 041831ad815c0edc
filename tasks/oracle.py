"""The oracle of a task: commands that solve it, and what a later one takes from what an earlier one printed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    Field,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from tasks.assertions.on_files import Pattern, first_group, groups
from tasks.model import Items, StrictModel, Text, bash_problem, fault, unknown_key

# -- `{{name}}`: a text that an earlier observation gave --------------------------------------------------------------

NAME = "[A-Za-z_][A-Za-z0-9_]*"
"""What a name between the braces looks like."""

_REFERENCE = re.compile(r"\{\{ *(" + NAME + r") *\}\}")


def references(text: str) -> tuple[str, ...]:
    """Return the names that stand as `{{name}}` in a text, in order, none twice."""
    return tuple(dict.fromkeys(_REFERENCE.findall(text)))


def resolve(text: str, known: Mapping[str, str]) -> str:
    """Put what is known in the place of each `{{name}}`; a name that is not known stays as it is written."""
    return _REFERENCE.sub(lambda match: known.get(match[1], match[0]), text)


def _name(name: str) -> str:
    if not re.fullmatch(NAME, name):
        raise fault(f"'{name}' is no name: use letters, digits and '_', not starting with a digit")
    return name


Name = Annotated[str, AfterValidator(_name)]
"""What may stand between the braces."""


def _one_group(pattern: str) -> str:
    if groups(pattern) != 1:
        raise fault(
            f"the pattern needs exactly one group, around what is read, but has {groups(pattern)}: "
            r"write for example 'refused (\S+)', and (?:...) for other brackets"
        )
    return pattern


class NotRead(ValueError):
    """A command printed nothing that the pattern of a name finds; the text names both."""


class _More(StrictModel):
    """What a step may have beside its text.

    Attributes:
        reads: Names for parts of what is then shown (stdout, stderr, words of the user): each has a regular expression
            with one group, searched as `file_matches` does. Later steps, and the answer, write `{{name}}` for what was
            found.
        request: Name of the user's request that this step is for: nobody does it who has not heard that.
    """

    reads: dict[Name, Annotated[Pattern, AfterValidator(_one_group)]] = Field(default_factory=dict)
    request: str | None = None


class Reading(_More):
    """A command whose output a later one needs, or that does what the task's user asked for on the way.

    Attributes:
        run: The command.
    """

    run: Text

    @model_validator(mode="after")
    def _has_more(self) -> Reading:
        if not self.reads and self.request is None:
            if "reads" in self.model_fields_set:
                raise fault("is empty: name what is read, or write the command as plain text", "reads")
            raise fault("has neither reads nor request: write the command as plain text")
        return self


class Saying(_More):
    """A message to the task's user.

    Attributes:
        say: Words.
    """

    say: Text

    @field_validator("say")
    @classmethod
    def _no_command(cls, say: str) -> str:
        if "```" in say or "~~~" in say:
            raise fault("holds a block, and a reply with a block is a command: write it as `run`")
        return say


def _step(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Tell the forms of a step apart, so that each mistake has one complaint."""
    if isinstance(value, Reading | Saying):
        return value
    if isinstance(value, dict) and "say" in value:
        return Saying.model_validate(value)
    if isinstance(value, dict) and value.keys() & {"run", "reads", "request"}:
        return Reading.model_validate(value)
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return handler(value)


Step = Annotated[str | Reading | Saying, WrapValidator(_step)]
"""One turn: a command as plain text, one with what is read from what it prints, or a message to the user."""


def command_of(step: Step) -> str:
    """Return the command of a step, or the words of a message, its `{{name}}`s as they are written."""
    return step.run if isinstance(step, Reading) else step.say if isinstance(step, Saying) else step


def names_of(step: Step) -> tuple[str, ...]:
    """Return the names that a step reads."""
    return () if isinstance(step, str) else tuple(step.reads)


def request_of(step: Step) -> str | None:
    """Return the name of the request that a step is for."""
    return None if isinstance(step, str) else step.request


def at_once(way: Sequence[Step]) -> list[str]:
    """Return the commands that an agent could give before anybody has said anything, as one, if there are any."""
    commands = [command_of(step) for step in way if not isinstance(step, Saying) and request_of(step) is None]
    return ["\n".join(commands)] if commands else []


def read(step: Step, printed: str) -> dict[str, str]:
    """Return what each name of a step stands for, given what its command printed.

    Raises:
        NotRead: A pattern finds nothing.
        TooSlow: A pattern takes too long.
    """
    found: dict[str, str] = {}
    for name, pattern in () if isinstance(step, str) else step.reads.items():
        text = first_group(pattern, printed)
        if text is None:
            raise NotRead(f"printed nothing that the pattern '{pattern}' of '{name}' finds")
        found[name] = text
    return found


# -- The replies that reading forces ----------------------------------------------------------------------------------


def replies(way: Sequence[Step]) -> list[list[int]]:
    """Part commands, in their order, into as few replies as their reads allow: positions of the commands of each.

    A command that needs what another one printed cannot stand in the same reply, and no command beside a message.
    """
    parts: list[list[int]] = []
    fresh: set[str] = set()
    for position, step in enumerate(way):
        alone = any(isinstance(item, Saying) for item in way[max(0, position - 1) : position + 1])
        if not parts or alone or fresh & set(references(command_of(step))):
            parts.append([])
            fresh = set()
        parts[-1].append(position)
        fresh |= set(names_of(step))
    return parts


def layers(way: Sequence[Step]) -> list[list[int]]:
    """The same, but each command stands as early as its own reads allow, whatever the order. For ways of commands."""
    read_in: dict[str, int] = {}
    parts: list[list[int]] = []
    for position, step in enumerate(way):
        at = max((read_in[name] + 1 for name in references(command_of(step)) if name in read_in), default=0)
        parts += [[] for _ in range(at + 1 - len(parts))]
        parts[at].append(position)
        read_in |= dict.fromkeys(names_of(step), at)
    return parts


def answer_waits(way: Sequence[Step], parts: Sequence[Sequence[int]], answer: str | None) -> bool:
    """Whether the answer needs what a command of the last reply prints, and so a reply of its own."""
    last = {name for position in parts[-1] for name in names_of(way[position])} if parts else set()
    return bool(last & set(references(answer or "")))


# -- The oracle -------------------------------------------------------------------------------------------------------


class Oracle(StrictModel):
    """One way to solve the task, or several.

    Attributes:
        commands: What to run, and to say to the task's user, each one turn.
        answer: What to say when submitting, for tasks that judge the answer too.
        alternatives: Other lists of commands that solve the task as well, each with the same answer; a proof plays all.
        may_survive: What may pass although a proof calls it wrong (such as `notes.txt: junk appended`), and why.
    """

    commands: Items[Step] = ()
    answer: Text | None = None
    alternatives: Items[Items[Step]] = ()
    may_survive: dict[Text, Text] = Field(default_factory=dict)

    @field_validator("commands")
    @classmethod
    def _plain_lines(cls, commands: tuple[Step, ...]) -> tuple[Step, ...]:
        for number, command in enumerate(commands):
            if problem := bash_problem(command_of(command)):
                raise fault(f"oracle command {number + 1} {problem}", number)
        return commands

    @field_validator("alternatives")
    @classmethod
    def _each_plain(cls, alternatives: tuple[tuple[Step, ...], ...]) -> tuple[tuple[Step, ...], ...]:
        for which, commands in enumerate(alternatives):
            if not commands:
                raise fault(f"oracle alternative {which + 1} needs at least 1 command", which)
            for number, command in enumerate(commands):
                if problem := bash_problem(command_of(command)):
                    raise fault(f"command {number + 1} of oracle alternative {which + 1} {problem}", which, number)
        return alternatives

    @model_validator(mode="after")
    def _does_something(self) -> Oracle:
        if not self.commands and self.answer is None:
            raise fault("is empty: an oracle needs at least 1 command, or an answer")
        return self

    @property
    def ways(self) -> tuple[tuple[Step, ...], ...]:
        """Every list of commands that solves the task: `commands` first, then the alternatives."""
        return (self.commands, *self.alternatives)

    def reading(self) -> Iterator[tuple[str | int, ...]]:
        """Yield where steps are more than plain text: the place of the key that says so."""
        for place, way in self.placed():
            for number, step in enumerate(way):
                if not isinstance(step, str):
                    key = "say" if isinstance(step, Saying) else "reads" if step.reads else "request"
                    yield (*place, number, key)

    def unread(self) -> Iterator[tuple[str, tuple[str | int, ...]]]:
        """Yield what is wrong with the names, and where: one that no command before reads, or that two read."""
        for place, way in self.placed():
            known: list[str] = []
            for number, step in enumerate(way):
                key = () if isinstance(step, str) else ("say",) if isinstance(step, Saying) else ("run",)
                at = (*place, number, *key)
                yield from (
                    (_nobody_reads(name, known), at) for name in references(command_of(step)) if name not in known
                )
                for name in names_of(step):
                    if name in known:
                        yield (
                            f"'{name}' is read twice: give the second one another name",
                            (*place, number, "reads", name),
                        )
                    known.append(name)
            for name in references(self.answer or ""):
                if name not in known:
                    yield _nobody_reads(name, known), ("answer",)

    def placed(self) -> Iterable[tuple[tuple[str | int, ...], tuple[Step, ...]]]:
        """Yield each way, after its place in the oracle."""
        yield ("commands",), self.commands
        yield from ((("alternatives", which), way) for which, way in enumerate(self.alternatives))


def _nobody_reads(name: str, known: Sequence[str]) -> str:
    if known:
        return unknown_key(name, known, "name")
    return (
        f"no command before reads '{name}': write the one that shows it as "
        f"{{run: ..., reads: {{{name}: 'a pattern with one (group)'}}}}"
    )
