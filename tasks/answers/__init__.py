"""The base of the kinds that judge what the agent answered, not what it left in the workspace."""

from __future__ import annotations

from dataclasses import replace

from tasks.assertions.base import AssertionResult, BaseAssertion, Outcome, Verdict, judge
from tasks.assertions.on_files import shorten

NO_ANSWER = "no answer was given"
"""Detail of the failed result where the agent never submitted, or submitted only blanks."""


class AnswerAssertion(BaseAssertion):
    """A check on the submitting reply alone. The environment has cut it at its stop sequences before it is judged."""

    @property
    def on_answer(self) -> bool:
        """Whether the final message alone decides it: always."""
        return True

    def untouched(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a plain answer: the right one, where the assertion knows one."""
        return replace(super().untouched(outcome), final_message=self.right_answer() or "It is done.")

    def right_answer(self) -> str | None:
        """Return a reply that must pass; None where the assertion knows none."""
        return None

    def wrong_answer(self) -> str | None:
        """Return a reply that must fail; None where the assertion knows none."""
        return None

    def self_test(self) -> list[str]:
        """Judge the right and the wrong answer; return what is wrong with the assertion itself, in words."""
        problems: list[str] = []
        for answer, wanted in ((self.right_answer(), Verdict.PASS), (self.wrong_answer(), Verdict.FAIL)):
            if answer is None:
                continue
            (found,) = judge(self, Outcome({}, {}, answer))
            if found.verdict is not wanted or found.broke:
                kind = "right" if wanted is Verdict.PASS else "wrong"
                verdict = "breaks the check" if found.broke else f"is judged '{found.verdict}'"
                problems.append(f"a {kind} answer, {shorten(answer)}, {verdict}: {found.detail}".rstrip(": "))
        return problems

    def default_name(self) -> str:
        """Return the kind: most tasks hold one of each; the task numbers them where there are more."""
        return str(self.kind)

    def answer(self, outcome: Outcome) -> str | AssertionResult:
        """Return the final message as it is, or a failed result where there is none or it is blank."""
        message = outcome.final_message
        if message is None or not message.strip():
            return self.failed(NO_ANSWER)
        return message
