"""GSM8K: word problems whose answer is a number (Cobbe et al., 2021, arXiv 2110.14168)."""

from __future__ import annotations

from typing import ClassVar

from envs.answer_prompts import AnswerForm
from envs.answers import AnswerEnv
from tasks.assertions.final_number import final_number

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

    def _after_answer(self, text: str) -> int | None:
        found = final_number(text)
        return None if found is None else len(text) - found.end
