"""One answer under a strict and a flexible reading, beside the verdict that counts; what attempts at it vote for.

A policy that learns the format that a strict reading wants, or unlearns it, moves the strict figure without knowing
more or less. So figures of question sets stand in three columns:

| kind | strict | flexible |
|---|---|---|
| `number_equals` | `strict_hash` (`strict_phrase` where that decides) | `flexible` |
| `math_equivalent` | `boxed` | `minerva` |
| `instruction` | the whole message | `loose` |

The third, `verifier`, is the task's own verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from tasks.answers.instructions import InstructionFollowed
from tasks.answers.math import MathEquivalent, MathMode
from tasks.answers.math.extraction import find_answer, minerva_form
from tasks.answers.number_equals import NumberEquals, NumberMode, extract_number
from tasks.assertions.base import Outcome, Verdict, judge


class Reading(StrEnum):
    """How an answer is found and compared."""

    STRICT = "strict"
    FLEXIBLE = "flexible"


def is_question(assertions: Sequence[Any]) -> bool:
    """Whether every assertion that counts has a strict and a flexible reading, and there is one."""
    deciding = [item for item in assertions if item.weight > 0]
    return bool(deciding) and all(
        isinstance(item, NumberEquals | MathEquivalent | InstructionFollowed) for item in deciding
    )


def read_as(assertions: Sequence[Any], answer: str | None, reading: Reading) -> bool | None:
    """Whether an answer passes under a reading.

    Args:
        assertions: Of a question (`is_question`).
        answer: The final message; `None` for none.
        reading: Which.

    Returns:
        Whether all that count pass; `None` where one cannot be judged.
    """
    each = each_read_as(assertions, answer, reading)
    return None if each is None else all(each)


def each_read_as(assertions: Sequence[Any], answer: str | None, reading: Reading) -> list[bool] | None:
    """Whether an answer passes each assertion that counts; as `read_as`."""
    verdicts = []
    for item in assertions:
        if item.weight > 0:
            (found,) = judge(_variant(item, reading), Outcome({}, {}, answer))
            verdicts.append(found.verdict)
    return None if Verdict.ERROR in verdicts else [verdict is Verdict.PASS for verdict in verdicts]


def is_instructed(assertions: Sequence[Any]) -> bool:
    """Whether every assertion that counts is an instruction, and there is one: a task of IFEval or IFBench."""
    deciding = [item for item in assertions if item.weight > 0]
    return bool(deciding) and all(isinstance(item, InstructionFollowed) for item in deciding)


def _variant(item: Any, reading: Reading) -> Any:
    strict = reading is Reading.STRICT
    if isinstance(item, NumberEquals):
        phrase = item.mode is NumberMode.STRICT_PHRASE
        mode = (NumberMode.STRICT_PHRASE if phrase else NumberMode.STRICT_HASH) if strict else NumberMode.FLEXIBLE
        return item.model_copy(update={"mode": mode})
    if isinstance(item, MathEquivalent):
        return item.model_copy(update={"mode": MathMode.BOXED if strict else MathMode.MINERVA})
    return item.model_copy(update={"loose": not strict})


def vote(assertions: Sequence[Any], answer: str | None) -> str | None:
    """What an attempt votes for: its number, or its expression in Minerva's spelling; `None` for no vote.

    Expressions of one value in two spellings are two votes. Texts that follow instructions have none.
    """
    deciding = [item for item in assertions if item.weight > 0]
    if answer is None or len(deciding) != 1:
        return None
    if isinstance(deciding[0], NumberEquals):
        found = extract_number(answer)
        return None if found is None or found.number is None else str(found.number)
    if isinstance(deciding[0], MathEquivalent):
        expression = find_answer(answer)
        return None if expression is None else minerva_form(expression.text)
    return None
