"""What the agent is shown where it answers: the question, how to use the shell, and which form the answer has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from envs.actions import STOP_WORD
from envs.headers import Header, Headers
from envs.prompts import Compact, PromptStyle, Standard, about_shell, in_a_line
from sandboxes.sandbox import CommandResult
from tasks.task import Task

# `standard` explains tools, turns and the form of the answer in a system message; `compact` adds one line on the form
# to the question; `base` is running text for base models, which know no chat: "Question: ...", then "Answer:". The
# question itself stands as the set has it, but in `base`, where only words say who speaks: what looks like one of its
# headers there gets a backslash (`envs.headers`). A style depends on the set, on whether there are tools and on how
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
            f"You are then shown its exit code and output. {about_shell(task)}\n"
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
