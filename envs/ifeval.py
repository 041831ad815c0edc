"""IFEval and IFBench: write a text that follows instructions on its form (Zhou et al., 2023, arXiv 2311.07911)."""

from __future__ import annotations

from typing import ClassVar

from envs.answer_prompts import AnswerForm
from envs.answers import AnswerEnv
from tasks.assertions.base import AssertionResult, BaseAssertion
from tasks.assertions.instructions.assertion import InstructionFollowed

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
