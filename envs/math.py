"""MATH: competition problems whose answer is an expression (Hendrycks et al., 2021, arXiv 2103.03874)."""

from __future__ import annotations

from typing import ClassVar

from envs.answer_prompts import AnswerForm
from envs.answers import AnswerEnv
from tasks.assertions.math.extraction import find_answer

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

    def _after_answer(self, text: str) -> int | None:
        found = find_answer(text)
        if found is None:
            return None
        rest = text[found.end :]
        return len(rest) - rest.startswith("}")  # the brace that closes the box belongs to the answer
