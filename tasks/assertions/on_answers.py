"""The base of the kinds that judge what the agent answered, not what it left in the workspace."""

from __future__ import annotations

from tasks.assertions.base import AssertionResult, BaseAssertion
from tasks.outcome import Outcome

NO_ANSWER = "no answer was given"
"""Detail of the failed result where the agent never submitted, or submitted only blanks."""


class AnswerAssertion(BaseAssertion):
    """A check on the submitting reply alone. The environment has cut it at its stop sequences before it is judged."""

    @property
    def on_answer(self) -> bool:
        """Whether the final message alone decides it: always."""
        return True

    def default_name(self) -> str:
        """Return the kind: most tasks hold one of each; the task numbers them where there are more."""
        return str(self.kind)

    def answer(self, outcome: Outcome) -> str | AssertionResult:
        """Return the final message as it is, or a failed result where there is none or it is blank."""
        message = outcome.final_message
        if message is None or not message.strip():
            return self.failed(NO_ANSWER)
        return message
