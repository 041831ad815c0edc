"""What the agent is shown: every wording of shell tasks and of questions, and headers kept out of messages."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, NamedTuple

from envs.actions import STOP_WORD
from sandboxes.sandbox import CommandResult, EntryKind, FileEntry, Snapshot
from tasks.task import Persona, Task

# -- Headers of a conversation that are ordinary text, kept out of its messages ---------------------------------------
# Where nothing but text says who speaks ("### Assistant", `<|assistant|>` without a token of its own, "Answer:"), a
# task or a command's output that holds such a header would speak in another's name: a forged turn. So a backslash is
# put into every header of a message (`### User` becomes `#\## User`), and into every header that already holds
# backslashes one more. Taking one out of each gives the message back, character for character.

_BREAKS = "\n\r\v\f\x1c-\x1e\x85\u2028\u2029"
"""What ends a line, as a model may read it."""
_START, _END = rf"(?<![^{_BREAKS}])[^\S{_BREAKS}]*", rf"(?=[^\S{_BREAKS}]*(?![^{_BREAKS}]))"

_NUMBER = r"\d+"


class HeaderError(ValueError):
    """A header that no text could be told from, or not undone."""


@dataclass(frozen=True, slots=True)
class Header:
    """The text of one header, and where it is one.

    Attributes:
        text: Without white space around it.
        starts_line: Only at the start of a line.
        ends_line: Only at the end of a line.
        numbered: A number in it may be any.
    """

    text: str
    starts_line: bool = False
    ends_line: bool = False
    numbered: bool = False


class Headers:
    """The headers of a conversation. An object without any is false, and leaves every text as it is.

    Args:
        headers: Each once.

    Raises:
        HeaderError: One is punctuation or a number alone, or overlaps itself so that no backslash in it could be taken
            out again.
    """

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        self.headers = tuple(dict.fromkeys(headers))
        self._rules = [_rule(header) for header in self.headers]

    def __bool__(self) -> bool:
        return bool(self.headers)

    def neutral(self, text: str) -> str:
        """A message as it may stand in the conversation."""
        for rule in self._rules:
            text = rule.found.sub(r"\g<0>\\", text)
        return text

    def forged(self, text: str) -> int:
        """How many headers `neutral` found to make this text: those that now hold one backslash."""
        return sum(len(rule.once.findall(text)) for rule in self._rules)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Patterns of one header: `found` up to where the backslash goes, `once` the same with one backslash behind it."""

    found: re.Pattern[str]
    once: re.Pattern[str]


def _rule(header: Header) -> _Rule:
    text = header.text
    if not any(map(str.isalnum, text)) or (header.numbered and text.isdigit()):
        raise HeaderError(f"{text!r} is a header, and any text may hold that")
    # The longest part that a header both begins and ends with: two that overlap there share it, so the backslash goes
    # behind it.
    border = max((n for n in range(len(text)) if text[:n] == text[len(text) - n :]), default=0)
    bound = header.starts_line or header.ends_line
    if 2 * border > len(text) and not bound:
        raise HeaderError(f"{text!r} is a header that overlaps itself")
    cut = 1 if bound else max(1, border)
    if header.numbered and (digits := re.match(_NUMBER, text)):
        cut = digits.end()
    head, tail = _literal(text[:cut], header.numbered), _literal(text[cut:], header.numbered)
    before = _START if header.starts_line else r"(?<!\w)" if text[0].isalnum() else ""
    after = _END if header.ends_line else r"(?!\w)" if text[-1].isalnum() else ""
    return _Rule(
        re.compile(rf"{before}{head}(?=\\*{tail}{after})"),
        re.compile(rf"{before}{head}\\(?={tail}{after})"),
    )


def _literal(text: str, numbered: bool) -> str:
    """A pattern of a text; with `numbered`, of the text with any numbers."""
    if not numbered:
        return re.escape(text)
    return _NUMBER.join(re.escape(part) for part in re.split(_NUMBER, text))


# -- What the agent is shown: one style is one wording of everything that the environment says ------------------------
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
            f"{self.words.act} The directory and the variables of the shell "
            "are kept from one command to the next. There is no network and no interactive program, and a command is "
            f"stopped after {task.budget.command_seconds:g} seconds.\n"
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


# -- What the agent is shown where it answers: the question, how to use the shell, and which form the answer has ------
# `standard` explains tools, turns and the form of the answer in a system message; `compact` adds one line on the form
# to the question; `base` is running text for base models, which know no chat: "Question: ...", then "Answer:". The
# question itself stands as the set has it, but in `base`, where only words say who speaks: what looks like one of its
# headers there gets a backslash (`envs.prompts`). A style depends on the set, on whether there are tools and on how
# many revisions there are; all of it enters its hash, which training and evaluation record and compare.


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How a set asks, and how an answer to it looks.

    Attributes:
        name: Of the set, in lower case.
        ask: What stands before the question in the style `base`, such as "Question: ".
        reply: What stands behind it there, and the reply goes on from, such as "Answer:".
        ending: A sentence on the form of the answer; empty where the question itself says it.
        noun: What one of its tasks is called.
    """

    name: str
    ask: str = ""
    reply: str = ""
    ending: str = ""
    noun: str = "question"


class Example(NamedTuple):
    """A question that stands solved before the one that is asked, and its answer."""

    question: str
    answer: str


@dataclass(frozen=True)
class AnswerStyle(PromptStyle):
    """One wording for one form of answer. Equal arguments, equal texts.

    Attributes:
        form: Of the answer.
        tools: Whether commands can be run.
        revisions: How often an answer may be revised.
        shots: Examples, in the order in which they are shown.
    """

    form: AnswerForm
    tools: bool = True
    revisions: int = 0
    shots: tuple[Example, ...] = ()

    def solved(self, ask: str) -> str:
        """The examples and `ask`, the message that asks; without examples `ask` alone."""
        if not self.shots:
            return ask
        shown = (f"{self.form.ask}{question}\n{self.form.reply} {answer}" for question, answer in self.shots)
        return "\n\n".join(["Solved examples:", *shown, f"Now the {self.form.noun} that you answer:", ask])

    def revise(self, kinds: Sequence[str], left: int) -> str:
        """Which kinds of instruction an answer does not follow; `left` revisions are left, at least 1."""
        again = f"Write the whole answer again, or {STOP_WORD} alone to keep it."
        times = "once more" if left == 1 else f"{left} more times"
        return f"Your answer does not follow: {', '.join(kinds)}. You may revise it {times}. {again}"

    def further(self) -> list[str]:
        """The form, and the words for revisions."""
        revising = [self.revise(["a", "b"], left) for left in (1, 2)] if self.revisions else []
        return [self.form.name, *revising]


class StandardAnswer(AnswerStyle, Standard):
    """Tools, turns and the form of the answer in a system message; the question alone as the user's."""

    def system(self, task: Task) -> str:
        """How to work and how to answer. Without tools the form alone, or nothing where the question says it."""
        if not self.tools:
            return self.form.ending
        parts = [
            f"You answer one {self.form.noun}. You may work in a Linux shell first.\n"
            "\n"
            "Each of your replies is one turn. To run a command, write exactly one block:\n"
            "\n"
            "```bash\n"
            "python3 -c 'print(6 * 7)'\n"
            "```\n"
            "\n"
            "You are then shown its exit code and output. The directory and the variables of the shell are kept from "
            "one command to the next. There is no network and no interactive program, and a command is stopped after "
            f"{task.budget.command_seconds:g} seconds.\n"
            "\n"
            f"A reply without a bash block is your answer{self._then()}. "
            f"You have {task.budget.max_turns} turns, and an answer takes one."
        ]
        return "\n\n".join([*parts, self.form.ending] if self.form.ending else parts)

    def _then(self) -> str:
        if not self.revisions:
            return ", and ends the task"
        return "; if it does not follow everything, you are told what it misses and may revise it"

    def first(self, task: Task, listing: Sequence[str]) -> str:
        """The question behind the examples, and the workspace where it holds something."""
        parts = [task.intent, "The workspace:\n" + "\n".join(listing)] if listing else [task.intent]
        return self.solved("\n\n".join(parts))

    def feedback(self, reason: str) -> str:
        """The reason, and what is understood."""
        forms = "Write your answer"
        if self.tools:
            forms = "Write one ```bash block with a command, or your answer without such a block"
        return f"Not understood: {reason}.\n{forms}."


class CompactAnswer(AnswerStyle, Compact):
    """The question, and one line on the form of the answer."""

    def first(self, task: Task, listing: Sequence[str]) -> str:
        """The question behind the examples, and the form."""
        return self.solved(f"{task.intent}\n\n{self.form.ending}" if self.form.ending else task.intent)


class BaseAnswer(AnswerStyle, Compact):
    """Running text, which a base model goes on from. It explains nothing: use it without tools, or after training.

    A line of the task or of an output that begins like a header of its own ("Answer:") is shown with a backslash in it.
    """

    name = "base"
    raw = True

    def first(self, task: Task, listing: Sequence[str]) -> str:
        """Question and beginning of the reply, as in "Question: ...", "Answer:"; examples in the same form before."""
        asked = self.headers.neutral(task.intent)
        if not self.form.reply:
            return f"{self.form.ask}{asked}\n\n"
        shown = (
            f"{self.form.ask}{self.headers.neutral(question)}\n{self.form.reply} {self.headers.neutral(answer)}"
            for question, answer in self.shots
        )
        return "\n\n".join([*shown, f"{self.form.ask}{asked}\n{self.form.reply}"])

    def observation(self, result: CommandResult) -> str:
        """As `compact`, and the beginning of the next reply."""
        return self._goes_on(super().observation(result))

    def feedback(self, reason: str) -> str:
        """As `compact`, and the beginning of the next reply."""
        return self._goes_on(super().feedback(reason))

    def revise(self, kinds: Sequence[str], left: int) -> str:
        """As in all styles, and the beginning of the next reply."""
        return self._goes_on(super().revise(kinds, left))

    def line(self, observation: str) -> str:
        """As in all styles, between what stands around every message here: the next reply goes on behind it."""
        before, after = self._around
        return before + in_a_line(observation.removeprefix(before).removesuffix(after)) + after

    def forged(self, message: str) -> int:
        """See `PromptStyle.forged`."""
        return self.headers.forged(message)

    @property
    def headers(self) -> Headers:
        """What says here who speaks."""
        return _headers(self.form)

    def further(self) -> list[str]:
        """As in all styles, and what becomes of a header."""
        return [*super().further(), *(self.headers.neutral(header.text) for header in self.headers.headers)]

    @property
    def _around(self) -> tuple[str, str]:
        """What stands before and behind every message but the first."""
        return "\n\n", f"\n\n{self.form.reply}"

    def _goes_on(self, text: str) -> str:
        before, after = self._around
        return before + self.headers.neutral(text) + after


@cache
def _headers(form: AnswerForm) -> Headers:
    return Headers(Header(text.strip(), starts_line=True) for text in (form.ask, form.reply) if text.strip())


ANSWER_STYLES: dict[str, type[AnswerStyle]] = {
    style.name: style for style in (StandardAnswer, CompactAnswer, BaseAnswer)
}
"""The styles by name."""


def answer_style(
    name: str | PromptStyle,
    form: AnswerForm,
    *,
    tools: bool = True,
    revisions: int = 0,
    shots: Iterable[Example] = (),
) -> AnswerStyle:
    """The style of a name, for a form of answer; a style is returned as it is.

    Raises:
        ValueError: There is no style of that name, it is one for shell tasks, or it shows other examples than `shots`.
    """
    shots = tuple(shots)
    if isinstance(name, AnswerStyle):
        if shots not in ((), name.shots):
            raise ValueError("shots: a prompt style that is no name shows its own examples; give them to it")
        return name
    if isinstance(name, PromptStyle) or name not in ANSWER_STYLES:
        given = name.name if isinstance(name, PromptStyle) else name
        raise ValueError(f"there is no prompt style '{given}' for answers: choose one of {', '.join(ANSWER_STYLES)}")
    return ANSWER_STYLES[name](form, tools, revisions, shots)
