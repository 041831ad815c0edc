"""A task: what to do, in which workspace, judged by which kinds of assertion, within which budget."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator, field_validator, model_validator

from sandboxes.boot import WORKSPACE, check_workdir
from sandboxes.sandbox import EntryKind, FileEntry
from tasks.answers.instructions import InstructionFollowed
from tasks.answers.math import MathEquivalent, MathFormat
from tasks.answers.number_equals import NumberEquals, NumberFormat
from tasks.assertions.base import AssertionKind, BaseAssertion, leaves
from tasks.assertions.files import (
    DirExists,
    FileContains,
    FileCount,
    FileEquals,
    FileExists,
    FileMatches,
    FileMode,
    FileNotExists,
    FileUnchanged,
    LineCount,
    Sha256,
)
from tasks.assertions.grade import AllOf, AnyOf, Not
from tasks.assertions.on_files import stands_at
from tasks.assertions.run import Command, GraderAssertion
from tasks.assertions.script import Script
from tasks.assertions.tables import CsvCell, CsvRows, JsonFileValue, YamlFileValue
from tasks.judged_in import JudgedIn
from tasks.judges import Finding, JudgeUse, read_judge, worst
from tasks.model import Bash, Items, StrictModel, TaskError, Text, fault, faults, not_json
from tasks.oracle import Oracle
from tasks.place import PLACE, Dockerfiles, Environment, Image, Needs, Services, prepared
from tasks.plugins import ASSERTIONS, load_plugin, plugins
from tasks.user import Heard, User, misfits
from tasks.workspace import Workspace

# -- Any assertion a task may hold, told apart by `kind`: those that ship, and those of other installed packages ------

_SHIPPED = frozenset(str(kind) for kind in AssertionKind)


def _foreign(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Let another package's kind read what names it; all else goes the ordinary way."""
    if isinstance(value, BaseAssertion) and value.kind not in _SHIPPED:
        return value
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _SHIPPED:
        return handler(value)
    entry = plugins(ASSERTIONS).get(kind)
    if entry is None:
        return handler(value)
    model = load_plugin(entry)
    if not (isinstance(model, type) and issubclass(model, BaseAssertion)):
        raise fault(f"the kind '{kind}' of {entry.value} is no subclass of tasks.assertions.BaseAssertion")
    return model.model_validate(value)


Assertion = Annotated[
    Annotated[
        FileExists
        | FileNotExists
        | FileContains
        | FileMatches
        | FileUnchanged
        | FileEquals
        | DirExists
        | FileCount
        | FileMode
        | LineCount
        | Sha256
        | JsonFileValue
        | YamlFileValue
        | CsvCell
        | CsvRows
        | Command
        | Script
        | NumberEquals
        | NumberFormat
        | MathEquivalent
        | MathFormat
        | InstructionFollowed
        | Heard
        | AnyOf
        | AllOf
        | Not,
        Field(discriminator="kind"),
    ],
    WrapValidator(_foreign),
]
"""Any assertion a task may hold."""

for _model in (AnyOf, AllOf, Not):
    _model.model_rebuild(_types_namespace={"Assertion": Assertion})


# -- A task: what to do, in which workspace, judged how, within which budget, and one way to do it --------------------


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a task asks, lays out and checks, in one spelling: two tasks that agree in it are exact twins.

    Who asks (persona), id, budget, oracle, modes of files, and names, weights and order of assertions do not count.

    Attributes:
        intent: In Unicode NFKC, case folded, one blank between words, without punctuation at the end.
        files: Paths of the workspace, each with the kind and a digest of the content, sorted.
        assertions: Canonical forms as JSON, sorted, none twice; what its user says when is among them.
    """

    intent: str
    files: tuple[str, ...]
    assertions: tuple[str, ...]


ID_PATTERN = r"^[a-z0-9][a-z0-9._-]*$"
"""Ids are lower case, so that they can name files and be typed."""


class Difficulty(StrEnum):
    """How hard the author thinks the task is."""

    EASY = "easy"
    """One idea, a few turns."""
    MEDIUM = "medium"
    """Several steps, or one pitfall."""
    HARD = "hard"
    """Several steps and pitfalls that must be found by looking."""


class SplitName(StrEnum):
    """Where a task must go when tasks are split."""

    POOL = "pool"
    """Trained on."""
    HELD_OUT = "held_out"
    """Only measured on."""


class Persona(StrictModel):
    """Who asks. Shown to the agent by prompt styles that want it.

    Attributes:
        role: What the person does, such as "bookkeeper".
        context: A sentence about the situation.
    """

    role: Text
    context: str = ""


class Budget(StrictModel):
    """What one episode may spend.

    Attributes:
        max_turns: Replies of the agent.
        command_seconds: Wall time of one command.
        turn_tokens: Tokens sampled in one turn.
        episode_seconds: Wall time of a whole episode, from the end of its `reset`; None: as long as its turns take.
    """

    max_turns: int = Field(default=12, ge=1, le=1000)
    command_seconds: float = Field(default=10.0, gt=0, le=3600, allow_inf_nan=False)
    turn_tokens: int = Field(default=512, ge=1)
    episode_seconds: float | None = Field(default=None, gt=0, le=86400, allow_inf_nan=False)


VERSION_2: tuple[tuple[str, ...], ...] = (
    ("turns",),
    ("metadata",),
    ("user",),
    *((key,) for key in PLACE),
    ("budget", "episode_seconds"),
)
"""Keys that `schema_version: 2` unlocks."""

HAND_WRITTEN = "hand-written"
"""What stands for the family of a task that has none."""


class Task(StrictModel):
    """One task. Frozen: tasks are shared between threads and named by their content.

    Attributes:
        schema_version: Version of this format.
        id: Unique name, lower case letters, digits, `.`, `_` and `-`.
        intent: What the agent is asked to do, as the user would say it.
        persona: Who asks.
        tags: Free words for selecting.
        difficulty: The author's estimate.
        family: Name of the procedural family that made the task; None for a hand-written one.
        workspace: What the agent finds.
        workdir: Absolute path where the workspace must stand; None leaves it to the sandbox.
        environment: Variables of every command: the agent's, the oracle's, graders', and those of `setup` and services.
        setup: Bash texts that run in the laid workspace before the agent, each from clean state.
        services: Background processes that start after `setup`, and end before the episode is graded.
        image: Image of the container, for the docker sandbox alone.
        dockerfile: How to build one instead.
        limits: What commands may use, instead of what the sandbox was opened with.
        budget: What an episode may spend.
        assertions: How the end is judged; at least one. Unnamed ones are named here, so that every name is unique.
        oracle: One way to solve it; without it a task cannot be proven.
        split: Where the task must go; None lets `split_tasks` decide.
        metadata: What else is to be known: author, source, licence, whatever JSON can hold. Not part of the hashes.
        user: A person who answers (`ClawGym-v1`); None for a task that nobody is asked about.
        turns: It needs at least so many replies, since only what is printed says what to do next; a proof tries it.
    """

    only_in_files: ClassVar[tuple[str, ...]] = ("parameters",)
    """Keys of a task file that are gone once it is read: a template makes tasks without them."""

    schema_version: Literal[1, 2] = 1
    id: str = Field(pattern=ID_PATTERN, max_length=120)
    intent: Text
    persona: Persona | None = None
    tags: Items[Text] = ()
    difficulty: Annotated[Difficulty, Field(strict=False)] = Difficulty.MEDIUM
    family: str | None = None
    workspace: Workspace = Field(default_factory=Workspace)
    workdir: str | None = None
    environment: Environment = Field(default_factory=dict)
    setup: Items[Bash] = ()
    services: Services = ()
    image: Image | None = None
    dockerfile: Dockerfiles | None = None
    limits: Needs = Field(default_factory=Needs)
    budget: Budget = Field(default_factory=Budget)
    assertions: Items[Assertion] = Field(min_length=1)
    oracle: Oracle | None = None
    split: Annotated[SplitName, Field(strict=False)] | None = None
    metadata: dict[Text, Any] = Field(default_factory=dict)
    turns: int | None = Field(default=None, ge=2, le=1000)
    user: User | None = None

    @field_validator("intent")
    @classmethod
    def _says_something(cls, intent: str) -> str:
        if not intent.strip():
            raise fault("the intent is blank: say what the agent is to do")
        return intent.strip()

    @field_validator("workdir")
    @classmethod
    def _mountable(cls, path: str | None) -> str | None:
        if path is not None:
            try:
                return check_workdir(path)
            except ValueError as error:
                raise fault(str(error)) from error
        return path

    @field_validator("metadata")
    @classmethod
    def _plain_data(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        if wrong := list(not_json(metadata)):
            raise faults(wrong)
        return metadata

    @field_validator("assertions")
    @classmethod
    def _named(cls, assertions: tuple[Assertion, ...]) -> tuple[Assertion, ...]:
        if not any(assertion.weight for assertion in assertions):
            raise fault("every assertion has the weight 0, so nothing decides: give one a weight")
        taken: set[str] = set()
        for number, assertion in enumerate(assertions):
            if assertion.name is not None and assertion.name in taken:
                raise fault(f"two assertions are named '{assertion.name}'", number, "name")
            taken.add(assertion.name or "")
        named: list[Assertion] = []
        for assertion in assertions:
            if assertion.name is None:
                name, count = assertion.default_name(), 1
                while name in taken:
                    count += 1
                    name = f"{assertion.default_name()}#{count}"
                taken.add(name)
                assertion = assertion.model_copy(update={"name": name})
            named.append(assertion)
        return tuple(named)

    @model_validator(mode="after")
    def _of_its_version(self) -> Task:
        if self.schema_version == 1:
            newer: list[tuple[str | int, ...]] = [place for place in VERSION_2 if given(self, place)]
            newer += [("oracle", *place) for place in (self.oracle.reading() if self.oracle else ())]
            newer += [
                ("assertions", number, "judged_in")
                for number, item in enumerate(self.assertions)
                if any(isinstance(leaf, Script) and leaf.judged_in != JudgedIn() for leaf in leaves(item))
            ]
            if newer:
                raise faults((newer_key(str(place[-1])), place) for place in newer)
        elif self.oracle is not None and (wrong := list(self.oracle.unread())):
            raise faults((message, ("oracle", *place)) for message, place in dict.fromkeys(wrong))
        if self.turns is not None and self.turns > self.budget.max_turns:
            raise fault(
                f"a task that needs {self.turns} turns cannot be done in max_turns: {self.budget.max_turns}", "turns"
            )
        for folder in (folder for item in self.judged_in for folder in item.folders):
            if f"{self.workdir or WORKSPACE}/".startswith(f"{folder}/"):
                raise fault(f"lies in {folder}, which only the judge has: choose another one", "workdir")
        if self.image is not None and self.dockerfile is not None:
            raise fault("stands beside image, and only one of them can be the task's: leave one out", "dockerfile")
        return self

    @model_validator(mode="after")
    def _of_its_user(self) -> Task:
        if found := list(misfits(self.user, self.assertions, self.oracle, self.budget.max_turns)):
            raise faults(found)
        return self

    @model_validator(mode="after")
    def _comparable(self) -> Task:
        if prepared(self):  # what stands there then is known to a proof alone
            return self
        entries = self.workspace.entries()
        compared = ((number, leaf) for number, item in enumerate(self.assertions) for leaf in leaves(item))
        for number, assertion in compared:
            if isinstance(assertion, FileUnchanged) and stands_at(entries, assertion.path).entry is None:
                raise fault(
                    f"file_unchanged needs a path of the workspace, but '{assertion.path}' is not among files or dirs",
                    "assertions",
                    number,
                    "path",
                )
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Task:
        """Copy the task, with changes that are not checked again; the hashes are those of the copy."""
        copy = super().model_copy(update=update, deep=deep)
        for name in ("content_hash", "problem_hash", "meaning", "meaning_hash", "judge_findings", "judged_in"):
            copy.__dict__.pop(name, None)
        return copy

    def files(self) -> dict[str, FileEntry]:
        """Return the workspace as it goes into a sandbox: sorted paths, folders included."""
        return self.workspace.entries()

    def canonical(self) -> dict[str, Any]:
        """Return what defines the task, JSON-able: all but id, split, family and tags; defaults left out."""
        return {**self._problem(), **self._dump("budget", "difficulty", "oracle", "turns")}

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of the canonical content: equal tasks, equal hashes, whatever their ids."""
        return _digest(self.canonical())

    @cached_property
    def problem_hash(self) -> str:
        """SHA-256 (hex) of what the agent meets and how it is judged; budget, difficulty and oracle do not count.

        Seeded draws of splits and families go by it, so it never changes; `meaning_hash` tells twins.
        """
        return _digest(self._problem())

    @cached_property
    def meaning(self) -> Meaning:
        """What it asks, lays out and checks, in one spelling."""
        files = [[path, entry.kind.value, _content(entry)] for path, entry in self.files().items()]
        files += [[key, json.dumps(value, sort_keys=True)] for key, value in self._dump(*PLACE).items()]
        checks = [_bare(assertion) for assertion in self.assertions]
        checks += [{"user": rule} for rule in self._dump("user").get("user", {}).get("rules", ())]
        return Meaning(_one_spelling(self.intent), _spelt(files), _spelt(checks))

    @cached_property
    def meaning_hash(self) -> str:
        """SHA-256 (hex) of the meaning. Exact twins have the same, and must never stand on both sides of a split."""
        return _digest(asdict(self.meaning))

    @cached_property
    def judge_findings(self) -> tuple[Finding, ...]:
        """Where its graders start or load what may be the agent's, by a static analysis, done when first asked for."""
        graders = [(item.name, leaf) for item in self.assertions for leaf in leaves(item)]
        return tuple(
            replace(finding, file=f"{name}, {finding.file}")
            for name, leaf in graders
            if isinstance(leaf, GraderAssertion)
            for finding in read_judge(leaf.command, leaf.files, safe_path=isinstance(leaf, Script))
        )

    @cached_property
    def judged_in(self) -> tuple[JudgedIn, ...]:
        """In which sandboxes its graders run, one for each."""
        found = (leaf for item in self.assertions for leaf in leaves(item) if isinstance(leaf, GraderAssertion))
        return tuple(leaf.judged_in if isinstance(leaf, Script) else JudgedIn() for leaf in found)

    @property
    def judge_use(self) -> JudgeUse:
        """What its graders do with the agent's code."""
        return worst(self.judge_findings)

    def _problem(self) -> dict[str, Any]:
        return {
            **self._dump("intent", "persona", "workdir", "user", *PLACE),
            "schema_version": self.schema_version,
            "workspace": {path: _fingerprint(entry) for path, entry in self.files().items()},
            "assertions": [assertion.canonical() for assertion in self.assertions],
        }

    def _dump(self, *names: str) -> dict[str, Any]:
        return self.model_dump(mode="json", include=set(names), exclude_defaults=True)


def newer_key(key: str) -> str:
    """Word the complaint about a key that version 1 does not know."""
    return f"unknown key '{key}' in version 1: write schema_version: 2"


def given(model: StrictModel, place: tuple[str, ...]) -> bool:
    """Whether a key, at a place that leads through models, has another value than its default."""
    value = getattr(model, place[0])
    if len(place) > 1:
        return value is not None and given(value, place[1:])
    return bool(value != type(model).model_fields[place[0]].get_default(call_default_factory=True))


def _fingerprint(entry: FileEntry) -> list[str]:
    mode = [] if entry.kind is EntryKind.SYMLINK else [f"{entry.mode:04o}"]
    return [entry.kind.value, *mode, _content(entry)]


def _content(entry: FileEntry) -> str:
    if entry.kind is EntryKind.SYMLINK:
        return entry.target or ""
    return hashlib.sha256(entry.content).hexdigest() if entry.content is not None else ""


def _one_spelling(intent: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", intent).casefold().split())
    end = len(text)
    while end and (text[end - 1] == " " or unicodedata.category(text[end - 1]).startswith("P")):
        end -= 1
    return text[:end] or text  # an intent of punctuation alone stays


def _bare(assertion: BaseAssertion) -> dict[str, Any]:
    """Return the canonical form without names and weights, and without the order of those that stand in it."""
    kept = {key: value for key, value in assertion.canonical().items() if key not in ("name", "weight")}
    if assertion.inner:
        kept["of"] = sorted((_bare(item) for item in assertion.inner), key=_json)
    return kept


def _spelt(items: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted({_json(item) for item in items}))


def _json(content: Any) -> str:
    return json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(_json(content).encode("utf-8")).hexdigest()


__all__ = ["Budget", "Difficulty", "Meaning", "Oracle", "Persona", "SplitName", "Task", "TaskError", "Workspace"]
