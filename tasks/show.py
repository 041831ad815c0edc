"""A task for people, as `python -m tasks show` prints it: as plain text, or with colours on a terminal."""

from __future__ import annotations

import json
from typing import IO

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.judges import REMEDY, JudgeUse
from tasks.oracle import Saying, Step, command_of
from tasks.task import HAND_WRITTEN, Task
from tasks.user import User

# -- A task in words: what `python -m tasks show` prints where there is no terminal -----------------------------------

SHOWN_LINES = 40
"""Lines of one file that are shown."""


def describe(task: Task) -> str:
    """Write a task for people: what the agent is asked and finds, how it is judged, and how it can be done."""
    lines = [f"{task.id}  ({task.family or HAND_WRITTEN}, {task.difficulty})  hash {task.content_hash[:12]}"]
    lines += [*(f"  {line}" for line in metadata_lines(task)), ""]
    if task.persona is not None:
        context = f": {task.persona.context}" if task.persona.context else ""
        lines.append(f"Asked by a {task.persona.role}{context}")
    lines += ["Request", *_indent(task.intent), "", "Workspace"]
    entries = task.files()
    lines += [f"  {listed(path, entry)}" for path, entry in entries.items()] or ["  (empty)"]
    for path, entry in entries.items():
        if entry.kind is EntryKind.FILE:
            lines += ["", f"  --- {path}", *content_lines(entry)]
    place = place_lines(task)
    lines += ["", "Place", *(f"  {line}" for line in place)] if place else []
    budget = task.budget
    lines += ["", f"Budget  {budget.max_turns} turns, {budget.command_seconds:g} s a command, "]
    lines[-1] += f"{budget.turn_tokens} tokens a turn"
    lines[-1] += f", {budget.episode_seconds:g} s an episode" if budget.episode_seconds else ""
    lines += [f"Needs   {task.turns} turns at least"] if task.turns else []
    if task.user is not None:
        lines += ["", "User", *_indent("\n".join(spoken(task.user)))]
    lines += ["", "Judged by (all must hold)"]
    for assertion in task.assertions:
        weight = f"  (weight {assertion.weight:g})" if assertion.weight not in (0, 1) else ""
        weight = weight or ("  (only shown)" if not assertion.weight else "")
        name = "" if assertion.name == assertion.default_name() else f"{assertion.name}: "
        lines.append(f"  {name}{assertion.kind}: {assertion.describe()}{weight}")
    lines += [f"  {line}" for line in judge_lines(task)]
    lines += ["", "Oracle"]
    if task.oracle is None:
        lines.append("  none: the task cannot be proven")
    else:
        for way, commands in enumerate(task.oracle.ways):
            lines += [f"  another way ({way})"] if way else []
            for number, command in enumerate(commands, start=1):
                first, *rest = command_of(command).rstrip("\n").split("\n")
                mark = ">" if isinstance(command, Saying) else "$"
                lines += [f"  {number}{mark} {first}", *(f"     {line}" for line in rest)]
                lines += [f"     {line}" for line in _reads(command)]
        if task.oracle.answer is not None:
            lines += ["  answer:", *_indent(task.oracle.answer)]
    return "\n".join(lines) + "\n"


def place_lines(task: Task) -> list[str]:
    """Return what makes the start of a task beside its files; mostly nothing."""
    limits = ", ".join(f"{name} {value}" for name, value in task.limits.model_dump(exclude_none=True).items())
    lines = [f"image {task.image}"] if task.image is not None else []
    lines += [f"Dockerfile| {line}" for line in task.dockerfile.text.splitlines()] if task.dockerfile else []
    lines += [f"limits {limits}"] if limits else []
    lines += [f"{name}={value!r}" for name, value in task.environment.items()]
    lines += [f"setup$ {line}" for command in task.setup for line in command.rstrip("\n").split("\n")]
    for service in task.services:
        lines += [f"service {service.name}$ {line}" for line in service.command.rstrip("\n").split("\n")]
        lines.append(f"  ready within {service.ready_seconds:g} s: {service.ready}")
    return lines


def _reads(step: Step) -> list[str]:
    """Say what a command of an oracle reads, a line each."""
    if isinstance(step, str):
        return []
    request = [] if step.request is None else [f"for the request {step.request}"]
    return [*request, *(f"reads {name}: {pattern}" for name, pattern in step.reads.items())]


def spoken(user: User) -> list[str]:
    """Say what a task's user says when, a line for each rule."""
    lines = []
    for rule in user.rules:
        when = rule.when.model_dump(exclude_none=True)
        marks = [mark for mark, on in (("request", rule.request), ("again", rule.again)) if on]
        head = " ".join(filter(None, [rule.name, *(f"({mark})" for mark in marks)]))
        conditions = ", ".join(f"{key} {value}" for key, value in when.items())
        lines.append(f"{f'{head}: ' if head else ''}when {conditions}: {rule.say}")
    return [*lines, f"otherwise: {user.otherwise}"]


def metadata_lines(task: Task) -> list[str]:
    """Return what the author wrote under `metadata`, a line each; what is no text as JSON."""
    return [
        f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for key, value in task.metadata.items()
    ]


def judge_lines(task: Task) -> list[str]:
    """Return what is to be known of a judge that runs the agent's code in its own process; mostly nothing."""
    found = [f"in-process judge: {f}" for f in task.judge_findings if f.use is JudgeUse.IN_PROCESS]
    return [*found, f"{REMEDY}."] if found else []


def _indent(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.split("\n")]


def listed(path: str, entry: FileEntry) -> str:
    """Return the line of a path in a listing."""
    if entry.kind is EntryKind.DIR:
        return f"{path}/"
    if entry.kind is EntryKind.SYMLINK:
        return f"{path} -> {entry.target}"
    mode = "" if entry.mode == 0o644 else f", mode {entry.mode:04o}"
    return f"{path}  ({entry.size} bytes{mode})"


def content_lines(entry: FileEntry) -> list[str]:
    """Return what a file holds, a line each, cut after `SHOWN_LINES`; bytes that are no text are only hinted at."""
    content = entry.content or b""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if any(ord(character) < 32 and character not in "\n\t\r" for character in text):
        return [f"  | (no text: {content[:16].hex(' ')}{' ...' if len(content) > 16 else ''})"]
    lines = text.removesuffix("\n").split("\n") if text else []
    shown = [f"  | {line}".replace("\r", "\\r").rstrip() for line in lines[:SHOWN_LINES]]
    if len(lines) > SHOWN_LINES:
        shown.append(f"  | ... {len(lines) - SHOWN_LINES} more lines")
    if text and not text.endswith("\n"):
        shown.append("  | (no newline at the end)")
    return shown or ["  | (empty)"]


# -- A task on a terminal: the same as `description.describe`, with colours, a box per part and highlighted files -----


def render(task: Task, stream: IO[str] | None = None, *, width: int | None = None) -> None:
    """Print a task in full, for people.

    Args:
        task: The task. Its texts are shown as they are: nothing in them is taken for markup or control codes.
        stream: Where to; standard output by default.
        width: Columns; those of the terminal by default.
    """
    console = Console(file=stream, width=width, force_terminal=True if stream is not None else None, highlight=False)
    head = Text.assemble((task.id, "bold"), f"  {task.family or HAND_WRITTEN}, {task.difficulty}")
    head.append(f"  {task.content_hash[:12]}", "dim")
    console.print(head)
    if task.tags:
        console.print(Text(f"tags: {', '.join(task.tags)}", "dim"))
    for line in metadata_lines(task):
        console.print(Text(_printable(line), "dim"))
    asked = f"{task.persona.role}{': ' if task.persona.context else ''}{task.persona.context}" if task.persona else None
    console.print(
        Panel(
            Text(_printable(task.intent)), title="request", subtitle=Text(asked) if asked else None, title_align="left"
        )
    )
    console.print(Panel(_workspace(task), title="workspace", title_align="left"))
    if place := place_lines(task):
        console.print(Panel(Text(_printable("\n".join(place))), title="place", title_align="left"))
    if task.user is not None:
        console.print(Panel(Text(_printable("\n".join(spoken(task.user)))), title="user", title_align="left"))
    console.print(_assertions(task))
    for line in judge_lines(task):
        console.print(Text(_printable(line), "yellow"))
    budget = task.budget
    spends = f"{budget.max_turns} turns, {budget.command_seconds:g} s a command, {budget.turn_tokens} tokens a turn"
    spends += f", {budget.episode_seconds:g} s an episode" if budget.episode_seconds else ""
    console.print(Text(f"budget: {spends}"))
    console.print(Panel(_oracle(task), title="oracle", title_align="left"))


def _workspace(task: Task) -> RenderableType:
    parts: list[RenderableType] = []
    for path, entry in task.files().items():
        parts.append(Text(listed(path, entry), "bold" if entry.kind is EntryKind.FILE else "cyan"))
        if entry.kind is EntryKind.FILE:
            parts.append(_file(path, entry))
    return Group(*parts) if parts else Text("(empty)", "dim")


def _file(path: str, entry: FileEntry) -> RenderableType:
    text = "\n".join(line.removeprefix("  | ") for line in content_lines(entry)[: SHOWN_LINES + 2])
    lexer = Syntax.guess_lexer(path) if "." in path else "text"
    return Syntax(_printable(text), lexer, background_color="default", word_wrap=True)


def _assertions(task: Task) -> Table:
    table = Table(
        "kind", "holds if", "weight", title=f"judged by {len(task.assertions)}, all must hold", title_justify="left"
    )
    for assertion in task.assertions:
        name = "" if assertion.name == assertion.default_name() else f"{assertion.name}: "
        table.add_row(
            Text(str(assertion.kind)), Text(_printable(f"{name}{assertion.describe()}")), f"{assertion.weight:g}"
        )
    return table


def _oracle(task: Task) -> RenderableType:
    if task.oracle is None:
        return Text("none: the task cannot be proven", "yellow")
    parts: list[RenderableType] = []
    for number, commands in enumerate(task.oracle.ways):
        if number:
            parts.append(Text(f"or, another way ({number})", "dim"))
        for step in commands:
            command = _printable(command_of(step).rstrip("\n"))
            if isinstance(step, Saying):
                parts.append(Text(f"> {command}"))
            else:
                parts.append(Syntax(command, "bash", background_color="default", word_wrap=True))
            parts += [Text(_printable(line), "dim") for line in _reads(step)]
    if task.oracle.answer is not None:
        parts.append(Text(_printable(f"answer: {task.oracle.answer}")))
    return Group(*parts)


def _printable(text: str) -> str:
    """Replace control characters, which a terminal would obey."""
    return "".join(character if character in "\n\t" or ord(character) >= 32 else "\ufffd" for character in text)
