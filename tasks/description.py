"""A task in words: what `python -m tasks show` prints where there is no terminal."""

from __future__ import annotations

from sandboxes.sandbox import EntryKind, FileEntry
from tasks.judges import REMEDY, JudgeUse
from tasks.task import Task

HAND_WRITTEN = "hand-written"
"""What stands for the family of a task that has none."""

SHOWN_LINES = 40
"""Lines of one file that are shown."""


def describe(task: Task) -> str:
    """Write a task for people: what the agent is asked and finds, how it is judged, and how it can be done."""
    lines = [f"{task.id}  ({task.family or HAND_WRITTEN}, {task.difficulty})  hash {task.content_hash[:12]}", ""]
    if task.persona is not None:
        context = f": {task.persona.context}" if task.persona.context else ""
        lines.append(f"Asked by a {task.persona.role}{context}")
    lines += ["Request", *_indent(task.intent), "", "Workspace"]
    entries = task.files()
    lines += [f"  {listed(path, entry)}" for path, entry in entries.items()] or ["  (empty)"]
    for path, entry in entries.items():
        if entry.kind is EntryKind.FILE:
            lines += ["", f"  --- {path}", *content_lines(entry)]
    budget = task.budget
    lines += ["", f"Budget  {budget.max_turns} turns, {budget.command_seconds:g} s a command, "]
    lines[-1] += f"{budget.turn_tokens} tokens a turn"
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
                first, *rest = command.rstrip("\n").split("\n")
                lines += [f"  {number}$ {first}", *(f"     {line}" for line in rest)]
        if task.oracle.answer is not None:
            lines += ["  answer:", *_indent(task.oracle.answer)]
    return "\n".join(lines) + "\n"


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
