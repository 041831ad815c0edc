"""A person who answers (`user:` of a task): what they know, when they speak, and whether they were asked.

A task's user is a list of rules. A rule with `says` answers a message of the agent's; one without speaks up by itself.

1. A message is answered by the first rule with `says` whose conditions all hold; without one, by `otherwise`.
2. After every turn (message, command or malformed reply) each rule without `says` whose conditions hold speaks, too.
3. A submission counts as the turn that every `turn` waits for: whatever the user was going to say is said before the
   submission is taken, and where anybody speaks it is not taken. So nobody gets around a request by being early.
4. A rule speaks once. With `again` it answers as often as it is asked, and holds no submission up for a second time.

Equal replies, equal answers: nothing is drawn, and no clock is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, Field, field_validator, model_validator

from sandboxes.sandbox import FileEntry
from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, Outcome, cut_short, leaves
from tasks.assertions.on_files import Pattern, TooSlow, find, search, stands_at
from tasks.model import Items, StrictModel, WorkspacePath, fault, unknown_key
from tasks.oracle import Oracle, Saying, request_of

# -- What the person knows: the key `user` of a task ------------------------------------------------------------------

READ = 4000
"""Characters of a message that a person reads, and most that they say; what stands behind them is not answered."""


def _spoken(text: str) -> str:
    if not text.strip():
        raise fault("is blank: write what the person says")
    if len(text) > READ:
        raise fault(f"has {len(text)} characters: nobody says more than {READ} at a time")
    return text.strip()


Words = Annotated[str, AfterValidator(_spoken)]
"""What a person says."""

RuleName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=60)]
"""What a rule is called by `heard` and by an oracle."""


class When(StrictModel):
    """When a rule speaks: all conditions that are given must hold.

    Attributes:
        says: Found in the agent's message (syntax of `file_matches`). A rule without it speaks up by itself.
        turn: From this turn of the agent on.
        file: Something stands at this path after the turn.
        no_file: Nothing stands at this path after the turn.
    """

    says: Pattern | None = None
    turn: int | None = Field(default=None, ge=1, le=1000)
    file: WorkspacePath | None = None
    no_file: WorkspacePath | None = None

    @model_validator(mode="after")
    def _says_when(self) -> When:
        if not self.model_dump(exclude_none=True):
            raise fault("has no condition: give one of says, turn, file, no_file")
        if self.file is not None and self.file == self.no_file:
            raise fault("file and no_file name the same path, so the rule never speaks: remove one", "no_file")
        return self

    def holds(self, turn: int | None, files: Mapping[str, FileEntry]) -> bool:
        """Whether all conditions but `says` hold; `turn` is `None` where the agent submits."""
        if self.turn is not None and turn is not None and turn < self.turn:
            return False
        if self.file is not None and find(files, self.file).entry is None:
            return False
        return self.no_file is None or (not cut_short(files) and stands_at(files, self.no_file).entry is None)


class Rule(StrictModel):
    """One thing that the user says.

    Attributes:
        when: Conditions.
        say: Words.
        name: What it is called by `heard` and by `request` of an oracle's step.
        request: It asks for more work. The oracle marks the steps that do it; a proof tries what happens without them.
        again: It answers every time, not once.
    """

    when: When
    say: Words
    name: RuleName | None = None
    request: bool = False
    again: bool = False

    @model_validator(mode="after")
    def _fits(self) -> Rule:
        if self.request and self.name is None:
            raise fault("a request needs a name: an oracle's steps and `heard` call it by that", "request")
        if self.request and self.when.says is not None:
            raise fault(
                "a request must reach whoever does not ask: leave `says` out of `when`, and it is made before the "
                "work is taken at the latest",
                "request",
            )
        if self.again and self.when.says is None:
            raise fault("only an answer is given again: the rule has no `says` in its `when`", "again")
        return self


class User(StrictModel):
    """The person who gave the task, and answers.

    Attributes:
        rules: What they say when, in order.
        otherwise: The answer to a message that no rule answers.
    """

    rules: Items[Rule] = Field(min_length=1)
    otherwise: Words = "I do not know."

    @field_validator("rules")
    @classmethod
    def _own_names(cls, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        taken: dict[str, int] = {}
        for number, rule in enumerate(rules):
            if rule.name is not None and rule.name in taken:
                first = taken[rule.name] + 1
                raise fault(f"two rules are named '{rule.name}' (rule {first}, too): rename one", number, "name")
            taken[rule.name or ""] = number
        return rules

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its rules."""
        return tuple(rule.name for rule in self.rules if rule.name is not None)

    @property
    def requests(self) -> tuple[str, ...]:
        """Names of the rules that ask for more work."""
        return tuple(rule.name for rule in self.rules if rule.name is not None and rule.request)


# -- What was said is checked at the end: the assertion `heard` -------------------------------------------------------


class Heard(BaseAssertion):
    """The user has said what a rule says: the agent asked (or worked) until they did.

    Whether the agent asked before it acted is a matter of the rule: with `file: old.csv` in its `when` it speaks only
    as long as the file stands.
    """

    kind: Literal[AssertionKind.HEARD] = AssertionKind.HEARD
    rule: RuleName

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the rule has spoken."""
        return self.passed() if self.rule in outcome.heard else self.failed(f"the user never said '{self.rule}'")

    def default_name(self) -> str:
        """Return `heard:<rule>`."""
        return f"{self.kind}:{self.rule}"

    def describe(self) -> str:
        """Return the condition in words."""
        return f"the user said '{self.rule}'"


def misfits(
    user: User | None, assertions: Sequence[BaseAssertion], oracle: Oracle | None, max_turns: int
) -> Iterator[tuple[str, tuple[str | int, ...]]]:
    """Yield what in a task does not fit its user, and where: each complaint with its place."""
    names, requests = (user.names, user.requests) if user else ((), ())
    for number, item in enumerate(assertions):
        for leaf in leaves(item):
            if isinstance(leaf, Heard) and leaf.rule not in names:
                message = unknown_key(leaf.rule, names, "rule of the user") if names else _NO_RULE
                yield message, ("assertions", number, *(("rule",) if leaf is item else ()))
    for number, rule in enumerate(user.rules if user else ()):
        if rule.when.turn is not None and rule.when.turn >= max_turns:
            message = f"is never heard in time: the agent has {max_turns} turns (budget.max_turns), so give a lower one"
            yield message, ("user", "rules", number, "when", "turn")
    for place, way in oracle.placed() if oracle else ():
        for number, step in enumerate(way):
            at = ("oracle", *place, number)
            if user is None and isinstance(step, Saying):
                yield "nobody is there to hear it: the task has no user", (*at, "say")
            asked = request_of(step)
            if asked is not None and asked not in requests:
                message = unknown_key(asked, requests, "request") if requests else _NO_REQUEST
                yield message, (*at, "request")
        for name in sorted({*requests} - {request_of(step) for step in way}):
            yield f"no step is for the request '{name}': write one as {{run: ..., request: {name}}}", ("oracle", *place)


_NO_RULE = "needs a user with a rule of this name: give one of user.rules a name"
_NO_REQUEST = "needs a user who asks for it: a rule of this name with `request: true`"


# -- One conversation: who said what, and which rules are used up -----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Said:
    """Something that the user said.

    Attributes:
        turn: After which turn of the agent, from 1.
        text: Words.
        rule: Position of the rule among those of the task, from 0; `None` where no rule answered.
    """

    turn: int
    text: str
    rule: int | None = None

    def record(self) -> dict[str, Any]:
        """JSON-able; `Said(**record)` gives it back."""
        return {"turn": self.turn, "text": self.text, "rule": self.rule}


@dataclass(frozen=True, slots=True)
class Line:
    """A message between the two.

    Attributes:
        speaker: Who said it.
        text: Words.
    """

    speaker: Literal["agent", "user"]
    text: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A message that waits for an answer.

    Attributes:
        intent: What the person wanted first.
        user: The person.
        open: Positions of the rules that may answer: their conditions hold, whatever the message says.
        past: What the two have said, the message last.
        turn: Of the agent, from 1.
        seed: Of the episode.
    """

    intent: str
    user: User
    open: tuple[int, ...]
    past: tuple[Line, ...]
    turn: int
    seed: int


class Speaker(Protocol):
    """Who answers messages in the place of patterns, such as a model. Words of rules, and requests, stay the task's."""

    @property
    def label(self) -> str:
        """What stands for it in records."""

    def answer(self, asked: Asked) -> Said:
        """The answer to a message; `rule` is one of `asked.open`, or `None`.

        Raises:
            SandboxError: Nobody could answer: the machinery failed.
        """


@dataclass(slots=True)
class Dialogue:
    """One conversation with a task's user.

    Attributes:
        user: Of the task.
        intent: Of the task.
        speaker: Answers messages in the place of the patterns; `None`: the patterns do.
        seed: Of the episode.
        said: Everything that the user said, in order.
    """

    user: User
    intent: str = ""
    speaker: Speaker | None = None
    seed: int = 0
    said: list[Said] = field(default_factory=list)
    _lines: list[Line] = field(default_factory=list)

    @property
    def spent(self) -> frozenset[int]:
        """Positions of the rules that have spoken."""
        return frozenset(item.rule for item in self.said if item.rule is not None)

    @property
    def heard(self) -> frozenset[str]:
        """Names of the rules that have spoken."""
        return frozenset(name for rule in self.spent if (name := self.user.rules[rule].name) is not None)

    def after(
        self, turn: int, files: Mapping[str, FileEntry], message: str | None = None, *, submits: bool = False
    ) -> tuple[Said, ...]:
        """What the user says after a turn of the agent.

        Args:
            turn: Which, from 1.
            files: The workspace after it.
            message: What the agent said to the user; `None` where it said nothing.
            submits: The agent says that it is done.

        Raises:
            SandboxError: The speaker failed.
        """
        due = None if submits else turn
        new: list[Said] = []
        if message is not None:
            self._lines.append(Line("agent", message[:READ]))
            answer = self._answer(turn, due, files)
            if answer.rule is not None or not submits:
                new.append(answer)
        for number, rule in enumerate(self.user.rules):
            if rule.when.says is None and number not in self.spent and rule.when.holds(due, files):
                new.append(Said(turn, rule.say, number))
        self.said += new
        self._lines += [Line("user", item.text) for item in new]
        return tuple(new)

    def _answer(self, turn: int, due: int | None, files: Mapping[str, FileEntry]) -> Said:
        spent = self.spent
        open_rules = tuple(
            number
            for number, rule in enumerate(self.user.rules)
            if rule.when.says is not None
            and (number not in spent or (rule.again and due is not None))
            and rule.when.holds(due, files)
        )
        if due is None and not open_rules:
            return Said(turn, self.user.otherwise)  # nobody need be asked
        if self.speaker is not None:
            return self.speaker.answer(Asked(self.intent, self.user, open_rules, tuple(self._lines), turn, self.seed))
        message = self._lines[-1].text
        for number in open_rules:
            rule = self.user.rules[number]
            if rule.when.says is not None and _found(rule.when.says, message):
                return Said(turn, rule.say, number)
        return Said(turn, self.user.otherwise)


def _found(pattern: str, message: str) -> bool:
    """Whether a pattern is found in a message. One on which it runs out of time is not understood."""
    try:
        return search(pattern, message)
    except TooSlow:
        return False
