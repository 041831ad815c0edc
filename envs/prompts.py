"""What the agent is shown: one style is one wording of everything that the environment says."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from envs.actions import STOP_WORD
from sandboxes.sandbox import CommandResult, EntryKind, FileEntry, Snapshot
from tasks.task import Persona, Task

# `standard` explains the protocol in a system message and shows exit code, stdout and stderr of each command.
# `compact` is for small policies: no system message, the bare intent, and observations of a few words. A policy is
# only comparable under the style that it was trained with, so each style has a hash, and runs record it.

STANDARD_CUT = 4000
"""Characters of stdout, and of stderr, that `standard` shows."""
COMPACT_CUT = 200
"""Characters of output that `compact` shows."""
LISTING_CUT = 200
"""Paths that a listing shows."""
LINE_CUT = 120
"""Characters of an older observation that is shown as a line."""
LEFT_OUT = " [cut]"
"""Ends a line behind which something is missing."""


@dataclass(frozen=True, slots=True)
class Wording:
    """How the agent is told to act: what the styles of shell tasks say otherwise under another protocol.

    Attributes:
        act: How to run a command.
        submit: How to say that the task is done.
        remind: What is understood, after a reply that was not.
        remind_with_user: The same where a user answers.
        nothing: What a reply is without that asks for nothing.
        again: To submit once more.
        beside: What is given to the model beside all messages; a part of the hash of a style.
    """

    act: str
    submit: str
    remind: str
    remind_with_user: str
    nothing: str
    again: str
    beside: str = ""


IN_TEXT = Wording(
    act=(
        "Each of your replies is one turn. To run a command, write exactly one block:\n"
        "\n"
        "```bash\n"
        "your command\n"
        "```\n"
        "\n"
        "You are then shown its exit code and output. A block may hold several lines, and heredocs; a block that "
        "contains code fences needs a longer fence around it (````)."
    ),
    submit=(
        f"When the task is done, write {STOP_WORD} alone on a line, outside any block. With a block in the same "
        "reply, the command runs first."
    ),
    remind=f"Write one ```bash block with your command, or {STOP_WORD} alone on a line when the task is done.",
    remind_with_user=(
        f"Write one ```bash block with your command, a message to the user without any block, or {STOP_WORD} alone "
        "on a line when the task is done."
    ),
    nothing="a block",
    again=f"write {STOP_WORD}",
)
"""The agent writes a block of bash, and a stop word."""


class PromptStyle(ABC):
    """One wording. Stateless: the same arguments always give the same text.

    Attributes:
        name: Names it in settings and records.
        raw: Its messages are one running text for a base model: no chat template goes around them.
        words: How the agent is told to act (see `in_words`).
    """

    name: ClassVar[str]
    raw: ClassVar[bool] = False
    words: Wording = IN_TEXT

    @abstractmethod
    def system(self, task: Task) -> str:
        """The system message; empty for none."""

    @abstractmethod
    def first(self, task: Task, listing: Sequence[str]) -> str:
        """The first user message: the task, and (where the style shows it) what the workspace holds."""

    @abstractmethod
    def observation(self, result: CommandResult) -> str:
        """What a command did."""

    @abstractmethod
    def feedback(self, reason: str) -> str:
        """Why a reply asked for nothing that could be done."""

    def line(self, observation: str) -> str:
        """An observation that is no longer shown in full: its beginning, on one line (`keep_observations`).

        One that is no longer than a line stays as it is, line breaks and all: nothing would be gained, and an engine
        keeps what it has cached of it.
        """
        return in_a_line(observation)

    def forged(self, message: str) -> int:
        """Headers of the style that a message written by it was given by others and shows with a backslash in them.

        0 where a chat template says who speaks: whoever renders the conversation then keeps its headers out.
        """
        return 0

    def further(self) -> list[str]:
        """Samples of what a style writes beside the above, for its hash."""
        return [self.words.beside] if self.words.beside else []

    def hash(self) -> str:
        """16 hex digits that change whenever what the style writes changes."""
        return _style_hash(self)


class Standard(PromptStyle):
    """Instructions, a listing, and every stream of each command."""

    name = "standard"

    def system(self, task: Task) -> str:
        """The protocol, in the order in which the agent needs it."""
        return (
            "You work in a Linux shell, in a small workspace of files, and carry out one task.\n"
            "\n"
            f"{self.words.act} {about_shell(task)}\n"
            "\n"
            f"{self.words.submit} You have {task.budget.max_turns} turns."
        )

    def first(self, task: Task, listing: Sequence[str]) -> str:
        """Who asks, for what, and where the agent stands."""
        parts = [f"{_who(task.persona)}{task.intent}", "The workspace:\n" + _listing(listing)]
        return "\n\n".join(parts)

    def observation(self, result: CommandResult) -> str:
        """Exit code, then the streams that hold something, each cut to head and tail."""
        head = f"exit code: {result.exit_code}"
        if result.timed_out:
            head += f" (stopped after {result.seconds:.0f} seconds: out of time)"
        if result.truncated:
            head += " (output incomplete)"
        parts = [head]
        for name, text in (("stdout", result.stdout_text), ("stderr", result.stderr_text)):
            if text.strip("\n"):
                parts.append(f"{name}:\n{cut(text.rstrip(chr(10)), STANDARD_CUT)}")
        if len(parts) == 1:
            parts.append("(no output)")
        return "\n".join(parts)

    def feedback(self, reason: str) -> str:
        """The reason, and the two forms that are understood."""
        return f"Nothing was run: {reason}.\n{self.words.remind}"


class Compact(PromptStyle):
    """The fewest words that still tell everything a small policy can use."""

    name = "compact"

    def system(self, task: Task) -> str:
        """None."""
        return ""

    def first(self, task: Task, listing: Sequence[str]) -> str:
        """The intent alone."""
        return task.intent

    def observation(self, result: CommandResult) -> str:
        """`ok` or `exit N`, and the output that matters, cut; `timeout`."""
        if result.timed_out:
            return "timeout"
        out, err = result.stdout_text.strip("\n"), result.stderr_text.strip("\n")
        head, text = ("ok", out or err) if result.exit_code == 0 else (f"exit {result.exit_code}", err or out)
        return f"{head}\n{text[:COMPACT_CUT]}" if text else head

    def feedback(self, reason: str) -> str:
        """The reason."""
        return f"error: {reason}"


STYLES: dict[str, PromptStyle] = {style.name: style for style in (Standard(), Compact())}
"""The styles by name."""


def prompt_style(style: str | PromptStyle) -> PromptStyle:
    """A style by its name; a style is returned as it is.

    Raises:
        ValueError: There is no style of that name.
    """
    if isinstance(style, PromptStyle):
        return style
    if style not in STYLES:
        raise ValueError(f"there is no prompt style '{style}': choose one of {', '.join(STYLES)}")
    return STYLES[style]


@cache
def in_words(style: PromptStyle, words: Wording) -> PromptStyle:
    """A style of shell tasks in the words of a protocol."""
    if style.words == words:
        return style
    other = copy(style)
    object.__setattr__(other, "words", words)  # a style may be a frozen dataclass
    return other


def about_shell(task: Task) -> str:
    """What holds for every command of a task: sentences of a system message."""
    return (
        "The directory and the variables of the shell are kept from one command to the next. There is no network and "
        f"no interactive program, and a command is stopped after {task.budget.command_seconds:g} seconds."
    )


def listing(files: Snapshot) -> list[str]:
    """Paths to show: every file and link, and the folders that hold nothing (with a `/`), sorted."""
    full = {path.rpartition("/")[0] for path in files}
    return [readable(_shown(path, entry)) for path, entry in sorted(files.items()) if path not in full]


def cut(text: str, limit: int) -> str:
    """At most about `limit` characters: the head and the tail, and between them how many are missing."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - head
    return f"{text[:head]}\n[{len(text) - limit} characters left out]\n{text[-tail:]}"


def in_a_line(text: str) -> str:
    """A text on one line of at most `LINE_CUT` characters; one that is no longer than that stays as it is."""
    if len(text) <= LINE_CUT:
        return text
    line = " ".join(text.split())
    return line if len(line) <= LINE_CUT else line[: LINE_CUT - len(LEFT_OUT)] + LEFT_OUT


def readable(text: str) -> str:
    """Text that can be encoded: bytes of a file name that are no UTF-8 become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _shown(path: str, entry: FileEntry) -> str:
    if entry.kind is EntryKind.DIR:
        return f"{path}/"
    return f"{path} -> {entry.target}" if entry.kind is EntryKind.SYMLINK else path


def _listing(paths: Sequence[str]) -> str:
    if not paths:
        return "(empty)"
    more = len(paths) - LISTING_CUT
    shown: Iterable[str] = paths[:LISTING_CUT]
    return "\n".join([*shown, f"(and {more} more)"] if more > 0 else shown)


def _who(persona: Persona | None) -> str:
    if persona is None:
        return ""
    context = f" ({persona.context})" if persona.context else ""
    return f"Asked by: {persona.role}{context}\n\n"


@cache
def _style_hash(style: PromptStyle) -> str:
    """Hash of what the style writes about one fixed task and fixed results."""
    text = "x" * (2 * STANDARD_CUT)
    task = Task.model_validate(
        {
            "id": "probe",
            "intent": "Do it.",
            "persona": {"role": "clerk", "context": "Monday."},
            "assertions": [{"kind": "file_exists", "path": "a"}],
        }
    )
    bare = task.model_copy(update={"persona": None})
    results = [
        CommandResult(0, b"", b""),
        CommandResult(0, b"out\n", b"err\n"),
        CommandResult(0, b"", b"err\n"),
        CommandResult(2, b"out\n", b"err\n"),
        CommandResult(1, b"out\n", b""),
        CommandResult(137, b"part", b"", timed_out=True, seconds=10.0),
        CommandResult(0, text.encode(), b"", truncated=True),
    ]
    written = [style.name, style.system(task), style.first(task, ["a", "b/"]), style.first(bare, [])]
    written += [style.first(bare, [str(i) for i in range(LISTING_CUT + 1)])]
    written += [style.observation(result) for result in results]
    written += [style.feedback("reason"), *style.further()]
    return hashlib.sha256(json.dumps(written).encode()).hexdigest()[:16]
