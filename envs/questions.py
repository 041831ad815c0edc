"""Environments that ask a question: the answer's turn loop, GSM8K, MATH, IFEval."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.actions import ActionKind, Command, Malformed, Submit
from envs.answer_actions import read_answer
from envs.answer_prompts import AnswerForm, AnswerStyle, Example, answer_style
from envs.episode import CutReply, Exchange, OptionalInt, StopReason
from envs.prompts import PromptStyle, listing
from envs.registry import asking_for
from envs.rewards import ObservationClass, anchor
from envs.sandboxed import SandboxedEnv, TaskSource
from sandboxes.sandbox import CommandResult, Snapshot
from tasks.answers.final_number import final_number
from tasks.answers.instructions import InstructionFollowed
from tasks.answers.math.extraction import find_answer
from tasks.assertions.base import AssertionResult, BaseAssertion, Outcome, Verdict, cut_short, leaves
from tasks.assertions.grade import Grade
from tasks.place import begin, prepared
from tasks.task import Task

# -- Environments that ask a question: the agent may run bash blocks, and a reply without one is its answer -----------

NO_WORKSPACE = "no-workspace"
"""In an anchor, where a workspace's hash stands after the first command."""


@dataclass(slots=True)
class Answer:
    """One answer of an episode.

    Attributes:
        turn: The turn that gave it, from 1.
        text: As it is judged: cut at stop sequences, without thoughts.
        grade: Its verdicts; `None` until it is judged.
    """

    turn: int
    text: str
    grade: Grade | None = None

    def record(self) -> dict[str, Any]:
        """For `info["answers"]`, JSON-able."""
        graded = self.grade
        return {
            "turn": self.turn,
            "text": self.text,
            "passed": None if graded is None else graded.passed,
            "rate": None if graded is None else graded.rate,
            "assertions": [] if graded is None else [result.record() for result in graded.results],
        }


class AnswerEnv(SandboxedEnv):
    """A question, a shell to work it out, and an answer that ends the episode.

    Replies are read by `envs.answer_actions`. A sandbox is opened (or borrowed from the pool) at the first command of
    an episode: one that only answers costs none. No turn has a signal, because only the answer is judged.

    Subclasses set `form`, `stops` and `default_tasks`.
    """

    form: ClassVar[AnswerForm] = AnswerForm("answer")
    """How the set asks, and how an answer looks."""
    default_stops: ClassVar[tuple[str, ...]] = ()
    """Stop sequences of the set: a reply ends there."""
    shows_examples: ClassVar[bool] = False
    """Whether solved examples may stand before the question: where the form of an answer can be learned from them."""
    style: AnswerStyle

    def __init__(
        self,
        tasks: TaskSource | None = None,
        task: str | Task | None = None,
        *,
        tools: bool = True,
        stops: Sequence[str] | None = None,
        revise: int = 0,
        shots: Sequence[Sequence[str]] = (),
        **settings: Any,
    ) -> None:
        """Load the tasks; nothing is opened before the first command.

        Args:
            tasks: Where tasks come from; the default is the set's own sample.
            task: A task, or the id of one of `tasks`, for every episode.
            tools: False takes the shell away: every reply that is not empty is the answer, as where numbers were
                published. (Take `max_turns=1` too, for these allow one reply.)
            stops: Stop sequences; the default are the set's own, `()` are none.
            revise: How often an answer that does not pass may be revised; the last one is scored. An answer is a turn.
            shots: Examples, as pairs of question and answer, that stand before every question (`examples` makes them
                of tasks).
            **settings: `sandbox` as in `SandboxedEnv`, all others as in `ConversationEnv`; `prompt_style` may be
                `base`, too, or an `AnswerStyle`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or a task judges more than the answer.
        """
        if type(revise) is not int or revise < 0:
            raise ValueError(f"revise is {revise!r}: give a whole number of at least 0")
        if revise and not self.may_revise:
            name = type(self).__name__
            raise ValueError(f"revise is {revise}: {name} takes one answer; IFEval-v0 lets it be revised")
        if not isinstance(tools, bool):
            raise ValueError(f"tools is {tools!r}: give True or False")
        self.stops = self.default_stops if stops is None else tuple(stops)
        if isinstance(stops, str) or not all(self.stops):
            raise ValueError("stops must be a list of texts of which none is empty, such as ['\\nQuestion:']")
        if shots and not self.shows_examples:
            raise ValueError(f"shots: {type(self).__name__} shows no examples; GSM8K-v0 and MATH-v0 do")
        self.shots = tuple(Example(*pair) for pair in shots)
        self.tools, self.revisions = tools, revise
        source = tasks if tasks is not None else () if isinstance(task, Task) else self.default_tasks
        if source is None:
            raise ValueError(f"{type(self).__name__} has no tasks of its own: give tasks=, for example a YAML file")
        super().__init__(source, task=task, **settings)
        for item in (*self._tasks, *([task] if isinstance(task, Task) else [])):
            self._refuse_unfit(item)

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """See `ConversationEnv.unfit`: what decides must be decided by the answer alone."""
        for item in task.assertions:
            if item.weight and not item.on_answer:
                return f"is judged by more than its answer ('{item.name}'): ClawGym-v0 and Mixed-v0 take it"
        kinds = [str(leaf.kind) for item in task.assertions if item.weight for leaf in leaves(item)]
        if cls.judged_by is None or cls.judged_by in kinds:
            return None
        other = next((found for kind in kinds if (found := asking_for(kind))), None)
        if other is not None:
            return f"is judged in the form that {other[0]} asks for: {other[0]} and Mixed-v0 take it"
        return None

    # -- the turn loop ----------------------------------------------------------------------------------------------

    def _style(self, style: str | PromptStyle) -> PromptStyle:
        return answer_style(style, self.form, tools=self.tools, revisions=self.revisions, shots=self.shots)

    def _lay(self, task: Task) -> str:
        self._refuse_unfit(task)
        self._laid = False
        self._files = self._initial = Snapshot(task.files())
        self._hash = NO_WORKSPACE
        self._last = ObservationClass.START
        self._answers: list[Answer] = []
        self._after_stop = 0
        if prepared(task):
            self._lay_out()
        return self.style.first(self._shown_task(), listing(self._files))

    def _exchange(self, reply: str) -> Exchange:
        reading = read_answer(reply, self.stops, tools=self.tools, whole=not isinstance(reply, CutReply))
        self._after_stop += reading.after
        if isinstance(reading.action, Command):
            self._lay_out()
        match self._fitting(reading.action):
            case Malformed(reason, kind):
                self._last = ObservationClass.MALFORMED
                return Exchange(self.style.feedback(reason), ActionKind.MALFORMED, malformed=kind)
            case Submit(text):
                return self._answered(text)
            case Command(text, then_submit, message):
                result = self._run(text)
                return Exchange(
                    self.style.observation(result),
                    ActionKind.COMMAND,
                    final_message=self._note(message) if then_submit else None,
                    command=text,
                    exit_code=result.exit_code,
                    timed_out=result.timed_out,
                )

    def _answered(self, text: str) -> Exchange:
        """An answer ends the episode, unless it does not pass and may be revised. A bare stop word keeps the last."""
        final = self._note(text)
        left = min(self.revisions - len(self._answers) + 1, self.max_turns - self._turns - 1)
        if text and left > 0:
            answer = self._answers[-1]
            answer.grade = self._graded()
            if not answer.grade.passed:
                self._last = ObservationClass.REVISE
                return Exchange(self.style.revise(self._failed_kinds(answer.grade), left), ActionKind.ANSWER)
        return Exchange("", ActionKind.SUBMIT, final_message=final)

    def _note(self, text: str) -> str:
        """Record an answer; returns the one that counts now."""
        if text:
            self._answers.append(Answer(self._turns + 1, text))
        return self._answers[-1].text if self._answers else ""

    def _failed_kinds(self, grade: Grade) -> list[str]:
        """What the failed assertions ask for, in a few words each and without their figures; each once."""
        by_name = {item.name: item for item in self.task.assertions}
        failed = [result for result in grade.deciding if result.verdict is not Verdict.PASS]
        return list(dict.fromkeys(self._kind_of(by_name.get(result.name), result) for result in failed))

    def _kind_of(self, assertion: BaseAssertion | None, result: AssertionResult) -> str:
        return str(result.kind).replace("_", " ")

    # -- the sandbox ------------------------------------------------------------------------------------------------

    def _lay_out(self) -> None:
        """Open the workspace, at the first command of the episode."""
        if self._laid:
            return
        sandbox = self._place.take()
        begin(self.task, sandbox)
        self._files = self._initial = sandbox.snapshot()
        self._laid = True

    def _run(self, command: str) -> CommandResult:
        result, self._files, self._hash = self._execute(command)
        self._last = ObservationClass.of(result)
        return result

    def _release(self) -> None:
        self._laid = False
        super()._release()

    # -- the end ----------------------------------------------------------------------------------------------------

    def _outcome(self) -> Outcome:
        final = self._final
        if final is None and self._answers:
            final = self._answers[-1].text  # the budget ended a revision: the last answer is scored
        grader = self._grader() if self._laid else None
        return Outcome(
            self._files, self._initial, final, self._conversation(), grader, cut_short=cut_short(self._files)
        )

    def _end(self, reason: StopReason) -> float:
        reward = super()._end(reason)
        if self._answers:
            self._answers[-1].grade = self._grade
        return reward

    def _anchor(self) -> str:
        return anchor(self._hash, self._last)

    def _info(self, exchange: Exchange | None) -> dict[str, Any]:
        """As everywhere, and: the answers so far, and how much was written behind them."""
        info = super()._info(exchange)
        info["answers"] = [answer.record() for answer in self._answers]
        info["text_after_stop"] = self._after_stop
        after = self._after_answer(self._answers[-1].text) if self._answers else None
        info["text_after_answer"] = None if after is None else OptionalInt(after)
        return info

    def _after_answer(self, text: str) -> int | None:
        """Characters behind what was taken as the answer in a reply; `None` where the whole reply is the answer."""
        return None

    def _refuse_unfit(self, task: Task) -> None:
        why = self.unfit(task)
        if any(example.question == task.intent for example in self.shots):
            why = "is one of the examples that are shown (shots): its answer stands before the question"
        if why:
            raise ValueError(f"task '{task.id}' {why}")


def examples(tasks: Iterable[Task]) -> tuple[Example, ...]:
    """Tasks as examples (`shots`): question, and the right answer as their set writes it.

    Raises:
        ValueError: A task knows no right answer.
    """
    shown = []
    for task in tasks:
        if task.oracle is None or task.oracle.answer is None:
            raise ValueError(f"task '{task.id}' knows no right answer (`oracle.answer`), so it can be no example")
        shown.append(Example(task.intent, task.oracle.answer))
    return tuple(shown)


# -- GSM8K: word problems whose answer is a number (Cobbe et al., 2021, arXiv 2110.14168) -----------------------------

GSM8K_FORM = AnswerForm(
    "gsm8k",
    ask="Question: ",
    reply="Answer:",
    ending="End your answer with a line `#### N`, where N is the final number alone.",
)


class GSM8KEnv(AnswerEnv):
    """Word problems. The answer ends with `#### N`.

    Stop sequences stand at the beginning of a line: a model that goes on with a question of its own writes one there,
    while "Question" inside a sentence is reasoning.
    """

    form: ClassVar[AnswerForm] = GSM8K_FORM
    default_stops: ClassVar[tuple[str, ...]] = (
        "\nQuestion:",
        "\n[Question]",
        "\nQ:",
        "\n\n\n",
        "</s>",
        "<|im_end|>",
    )
    judged_by: ClassVar[str | None] = "number_equals"
    default_tasks: ClassVar[str | None] = "gsm8k:sample"
    shows_examples: ClassVar[bool] = True

    def _after_answer(self, text: str) -> int | None:
        found = final_number(text)
        return None if found is None else len(text) - found.end


# -- MATH: competition problems whose answer is an expression (Hendrycks et al., 2021, arXiv 2103.03874) --------------

MATH_FORM = AnswerForm(
    "math",
    ask="Problem:\n",
    reply="\nSolution:",
    ending="Put the final answer, and nothing else, into \\boxed{}.",
)


class MATHEnv(AnswerEnv):
    r"""Competition problems. The answer holds the result in `\boxed{}`."""

    form: ClassVar[AnswerForm] = MATH_FORM
    default_stops: ClassVar[tuple[str, ...]] = ("\nProblem:", "\n\n\n", "</s>", "<|im_end|>")
    judged_by: ClassVar[str | None] = "math_equivalent"
    default_tasks: ClassVar[str | None] = "math:sample"
    shows_examples: ClassVar[bool] = True

    def _after_answer(self, text: str) -> int | None:
        found = find_answer(text)
        if found is None:
            return None
        rest = text[found.end :]
        return len(rest) - rest.startswith("}")  # the brace that closes the box belongs to the answer


# -- IFEval and IFBench: write a text that follows instructions on its form (Zhou et al., 2023, arXiv 2311.07911) -----

IFEVAL_FORM = AnswerForm("ifeval", noun="request")


class IFEvalEnv(AnswerEnv):
    """Texts. The whole answer is judged as it stands, so there are no stop sequences.

    With `revise=n`, an answer that does not follow everything is met with the *kinds* of instruction that it misses
    (no figure, no keyword), and may be revised n times.
    """

    form: ClassVar[AnswerForm] = IFEVAL_FORM
    judged_by: ClassVar[str | None] = "instruction"
    may_revise: ClassVar[bool] = True
    default_tasks: ClassVar[str | None] = "ifeval:sample"

    def _kind_of(self, assertion: BaseAssertion | None, result: AssertionResult) -> str:
        if isinstance(assertion, InstructionFollowed):
            return assertion.feedback
        return super()._kind_of(assertion, result)
