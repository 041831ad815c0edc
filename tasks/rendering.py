"""A task on a terminal: the same as `description.describe`, with colours, a box per part and highlighted files."""

from __future__ import annotations

from typing import IO

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.description import HAND_WRITTEN, SHOWN_LINES, content_lines, judge_lines, listed
from tasks.task import Task


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
    asked = f"{task.persona.role}{': ' if task.persona.context else ''}{task.persona.context}" if task.persona else None
    console.print(
        Panel(
            Text(_printable(task.intent)), title="request", subtitle=Text(asked) if asked else None, title_align="left"
        )
    )
    console.print(Panel(_workspace(task), title="workspace", title_align="left"))
    console.print(_assertions(task))
    for line in judge_lines(task):
        console.print(Text(_printable(line), "yellow"))
    budget = task.budget
    spends = f"{budget.max_turns} turns, {budget.command_seconds:g} s a command, {budget.turn_tokens} tokens a turn"
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
        parts += [
            Syntax(_printable(command.rstrip("\n")), "bash", background_color="default", word_wrap=True)
            for command in commands
        ]
    if task.oracle.answer is not None:
        parts.append(Text(_printable(f"answer: {task.oracle.answer}")))
    return Group(*parts)


def _printable(text: str) -> str:
    """Replace control characters, which a terminal would obey."""
    return "".join(character if character in "\n\t" or ord(character) >= 32 else "\ufffd" for character in text)
