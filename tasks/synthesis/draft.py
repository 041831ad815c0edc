"""What a model is asked for, and what of its reply may become a task. Replies are hostile: nothing here runs them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Any, TypeVar

import yaml
from pydantic import Field, ValidationError

from tasks.assertions.base import leaves
from tasks.assertions.run import GraderAssertion
from tasks.document import parse
from tasks.endpoints.chat import Reply
from tasks.judged_in import JudgedIn
from tasks.judges import JudgeUse, in_process_line
from tasks.model import Items, Problem, StrictModel, TaskError, Text, counted
from tasks.proof import Fault
from tasks.task import Persona, Task
from tasks.yaml import dump_task, explain, load_task, parse_task

# -- What is asked for: a persona, a skill, and the prompt made of them -----------------------------------------------

HERE = Path(__file__).resolve().parent
PERSONAS, SKILLS = HERE / "personas.yaml", HERE / "skills.yaml"
"""The tables that ship."""
EXAMPLE = HERE.parent / "library" / "dunning.yaml"
"""The task that the prompt shows."""

NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"


class PersonaRow(Persona):
    """Who asks; `name` stands in ids of tasks."""

    name: str = Field(pattern=NAME, max_length=40)


class SkillRow(StrictModel):
    """What a task is about; `name` stands in ids and tags of tasks, `what` says it in words."""

    name: str = Field(pattern=NAME, max_length=40)
    what: Text


class Personas(StrictModel):
    """A file of personas."""

    personas: Items[PersonaRow] = Field(min_length=1)


class Skills(StrictModel):
    """A file of skills."""

    skills: Items[SkillRow] = Field(min_length=1)


Table = TypeVar("Table", Personas, Skills)


def load_table(path: Path, table: type[Table]) -> Table:
    """Read a table.

    Raises:
        TaskError: It cannot be read, or is none; every problem is listed.
    """
    try:
        document = parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(Problem(f"cannot be read: {error}", str(path))) from error
    if document.problems:
        raise TaskError(*document.problems)
    try:
        return table.model_validate(document.data)
    except ValidationError as error:
        raise TaskError(*explain(error, document, table)) from error


@dataclass(frozen=True, slots=True)
class Order:
    """One draft that is to be written.

    Attributes:
        index: Of all drafts, from 0.
        persona: Who asks.
        skill: What it is about.
        seed: Of the model's sampling.
    """

    index: int
    persona: PersonaRow
    skill: SkillRow
    seed: int

    @property
    def task_id(self) -> str:
        """What the task is called, and its file: nothing of the reply decides it."""
        return f"synth-{self.persona.name}-{self.skill.name}-{self.index:04d}"


def orders(personas: Sequence[PersonaRow], skills: Sequence[SkillRow], seed: int) -> Iterator[Order]:
    """Yield orders without end: all pairs in an order drawn by the seed, then all again in another one."""
    draw = random.Random(f"synthesis {seed}")
    index = 0
    while True:
        pairs = [(persona, skill) for persona in personas for skill in skills]
        draw.shuffle(pairs)
        for persona, skill in pairs:
            sampled = hashlib.sha256(f"{seed} {index}".encode()).digest()
            yield Order(index, persona, skill, int.from_bytes(sampled[:4], "big") >> 1)
            index += 1


def example() -> Task:
    """The task that every prompt shows; a copy of it is no new task."""
    return load_task(EXAMPLE).model_copy(update={"id": "draft", "persona": None, "tags": ()})


def prompter() -> Template:
    """The prompt, with the example in it and places for persona and skill; see `prompt_of`."""
    text = (HERE / "prompt.md").read_text(encoding="utf-8")
    return Template(Template(text).safe_substitute(example=dump_task(example()).replace("$", "$$")))


def prompt_of(template: Template, order: Order) -> str:
    """What the model is asked."""
    persona, skill = order.persona, order.skill
    return template.substitute(role=persona.role, context=persona.context, skill=skill.name, what=skill.what)


# -- What of a reply may become a task --------------------------------------------------------------------------------

MAX_CHARACTERS = 64 * 1024
"""Of a draft."""
MAX_BYTES = 1024 * 1024
"""Of all files that it lays by `size`."""
MAX_ENTRIES, MAX_ASSERTIONS, MAX_STEPS = 200, 60, 60
"""Files, assertions, and commands of all ways of the oracle together."""
MAX_PATH = 500
"""Characters of a path in the workspace."""
MAX_SECONDS = 60.0
"""Of one command."""

KEYS = frozenset(
    {
        *("schema_version", "id", "intent", "persona", "tags", "difficulty", "workspace", "budget", "assertions"),
        *("oracle", "turns", "user"),
    }
)
"""Keys of a task that a draft may have; the others say where it runs, or belong to whoever keeps tasks."""


class Reason(StrEnum):
    """Why a draft is refused before and after its proof; a proof's own reasons are those of `tasks.proof.Fault`."""

    REPLY = "reply"
    """It holds no draft, or is cut or withheld."""
    YAML = "yaml"
    """It is not plain YAML."""
    BOUNDS = "bounds"
    """It asks for more than a draft may have."""
    SCHEMA = "schema"
    """It is no task."""
    TWIN = "twin"
    """It is like another task."""
    SANDBOX = "sandbox"
    """The sandbox failed twice: nothing was found out."""
    PROCESS = "process"
    """It ended or outlasted the process that was to read and prove it."""


class Refused(Exception):
    """A draft is not kept.

    Attributes:
        reason: Why, in one word.
        details: Why, in full.
    """

    def __init__(self, reason: Reason | Fault, *details: str) -> None:
        super().__init__(*details)
        self.reason, self.details = reason, details


def read_draft(reply: Reply, order: Order) -> Task:
    """Make the task of a reply, under the id, persona and tags of its order.

    Raises:
        Refused: It cannot be one.
    """
    if reply.problem:
        raise Refused(Reason.REPLY, f"the reply is not whole: {reply.problem}")
    text = _block(reply.text)
    if len(text) > MAX_CHARACTERS:
        raise Refused(Reason.BOUNDS, f"has {len(text)} characters: a draft may have {MAX_CHARACTERS}")
    _refuse_anchors(text)
    document = parse(text, "draft")
    problems = [str(problem) for problem in document.problems]
    if problems or not isinstance(document.data, dict):
        raise Refused(Reason.YAML, *(problems or ["is no mapping of keys to values"]))
    if wrong := list(_beyond(document.data)):
        raise Refused(Reason.BOUNDS, *wrong)
    try:
        task = parse_task(text, "draft")
    except TaskError as error:
        raise Refused(Reason.SCHEMA, *map(str, error.problems)) from error
    _refuse_unsafe(task)
    persona = Persona(role=order.persona.role, context=order.persona.context)
    task = task.model_copy(update={"id": order.task_id, "persona": persona, "tags": ("synthesised", order.skill.name)})
    if parse_task(dump_task(task), order.task_id) != task:
        raise Refused(Reason.SCHEMA, "does not come back from YAML as it was")
    return task


_THOUGHTS_END = "</think>"
_FENCE = "```"


def _block(reply: str) -> str:
    """The one fenced block of a reply."""
    blocks: list[list[str]] = []
    inside = False
    for line in reply.rpartition(_THOUGHTS_END)[2].replace("\r\n", "\n").split("\n"):
        if not inside and line.startswith(_FENCE):
            inside = True
            blocks.append([])
        elif inside and line.rstrip() == _FENCE:
            inside = False
        elif inside:
            blocks[-1].append(line)
    if len(blocks) != 1 or inside:
        which = "a block that does not end" if inside else counted(len(blocks), "block")
        raise Refused(Reason.REPLY, f"holds {which}, and one block of YAML is asked for")
    return "\n".join(blocks[0]) + "\n"


def _refuse_anchors(text: str) -> None:
    """An alias costs nothing to write, and each use of it may be a copy later."""
    try:
        for token in yaml.scan(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(token, yaml.AnchorToken | yaml.AliasToken):
                line = token.start_mark.line + 1
                raise Refused(Reason.YAML, f"draft:{line}: anchors and aliases are not taken: write it out")
    except (yaml.YAMLError, UnicodeEncodeError):
        pass  # `parse` says what is wrong, and where


def _beyond(data: dict[str, Any]) -> Iterator[str]:
    """Yield what a draft may not have, as far as it must be known before a task is made of it."""
    for key in sorted((Task.model_fields.keys() | {*Task.only_in_files}) & data.keys() - KEYS):
        yield f"{key}: not taken in a draft"
    oracle, workspace = data.get("oracle"), data.get("workspace")
    if isinstance(oracle, dict) and "may_survive" in oracle:
        yield "oracle.may_survive: a draft cannot excuse itself"
    workspace = workspace if isinstance(workspace, dict) else {}
    files, dirs = workspace.get("files"), workspace.get("dirs")
    files = files if isinstance(files, dict) else {}
    sizes = (spec["size"] for spec in files.values() if isinstance(spec, dict) and isinstance(spec.get("size"), int))
    if (size := sum(max(0, size) for size in sizes)) > MAX_BYTES:
        yield f"workspace.files: {size} bytes by size, and {MAX_BYTES} are taken"
    paths = [*files, *(path for path in dirs if isinstance(path, str))] if isinstance(dirs, list) else [*files]
    if any(len(path) > MAX_PATH for path in paths):
        yield f"workspace: a path has more than {MAX_PATH} characters"


def _refuse_unsafe(task: Task) -> None:
    """Refuse what cannot be proven in bounded time, or not be trusted whatever a proof says.

    Raises:
        Refused: It is one of these.
    """
    if task.oracle is None:
        raise Refused(Fault.ORACLE, "has no oracle, so nobody knows whether it can be done")
    checks = [leaf for item in task.assertions for leaf in leaves(item)]
    seconds = [task.budget.command_seconds, *(leaf.timeout for leaf in checks if isinstance(leaf, GraderAssertion))]
    found = [
        f"{what}: {number:g}, and {most:g} are taken"
        for what, number, most in (
            ("paths of the workspace", len(task.files()), MAX_ENTRIES),
            ("assertions", len(checks), MAX_ASSERTIONS),
            ("commands of the oracle", sum(map(len, task.oracle.ways)), MAX_STEPS),
            ("seconds of a command", max(seconds), MAX_SECONDS),
        )
        if number > most
    ]
    if any(judged_in != JudgedIn() for judged_in in task.judged_in):
        found.append("judged_in: not taken in a draft")
    if found:
        raise Refused(Reason.BOUNDS, *found)
    if task.judge_use is JudgeUse.IN_PROCESS:
        raise Refused(Fault.JUDGE, in_process_line(task.judge_findings))
