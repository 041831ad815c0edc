"""GSM8K: grade-school word problems with one number as the answer; `gsm8k:sample`, `gsm8k:PATH`, `gsm8k:hub`.

The rows are those of the public set: `question`, and `answer`, a worked solution that ends with `#### N`. Parameters:
`split=` (of a folder or the hub; `test`), `limit=` (the first so many), `mode=` (how the number is found: `fixed`, or a
published evaluator's way), `format_weight=` (0: whether the number is marked is shown and decides nothing).
"""

from __future__ import annotations

import re

from tasks.answers.number_equals import MarkerMode, NumberEquals, NumberFormat, NumberMode
from tasks.answers.numbers import read
from tasks.model import TaskError, each
from tasks.sources.questions import SAMPLE, Row, choice, read_rows, split_spec, weight, whole_number
from tasks.task import Budget, Oracle, Task

SCHEME = FAMILY = "gsm8k"
HUB, CONFIG = "openai/gsm8k", "main"
PARAMETERS = ("split", "limit", "mode", "format_weight")
BUDGET = Budget(max_turns=8, turn_tokens=1024)
MARK = "#### "
"""What stands before the gold answer, at the end of a row's solution."""

_FORMS = {NumberMode.STRICT_HASH: MarkerMode.HASH, NumberMode.STRICT_PHRASE: MarkerMode.PHRASE}


def load(rest: str) -> list[Task]:
    """Load the tasks for what stands after `gsm8k:`.

    Raises:
        TaskError: an unknown parameter, nothing there, no network, or rows without a question or a gold number; every
            faulty row is named with its file and line.
    """
    where, params = split_spec(rest, SCHEME, PARAMETERS)
    spec = f"{SCHEME}:{rest}"
    mode = NumberMode(choice(params, "mode", spec, NumberMode, NumberMode.FIXED))
    format_weight = weight(params, "format_weight", spec)
    limit = whole_number(params, "limit", spec)
    split = params.get("split", "test")
    rows = read_rows(where, SCHEME, HUB, split, CONFIG)[:limit]
    # A file is named for itself: train.jsonl beside test.jsonl must not give the same ids.
    label = SAMPLE if where == SAMPLE else params.get("split") or _label(rows[0].file, split)

    def made(numbered: tuple[int, Row]) -> Task:
        number, row = numbered
        return _task(row, f"{FAMILY}-{label}-{number:04d}", mode, format_weight)

    return each(enumerate(rows, start=1), made)


def gold(row: Row) -> str:
    """Return the gold number of a row, as it is written there.

    Raises:
        TaskError: the answer has no `#### N`, or what stands there is no number.
    """
    _, mark, found = row.text("answer").rpartition(MARK)
    found = found.strip()
    if not mark or read(found) is None:
        message = f"must end with '{MARK}N', N a number" + (f", not {found[:40]!r}" if mark else "")
        raise TaskError(row.problem(message, "answer"))
    return found


def _task(row: Row, task_id: str, mode: NumberMode, format_weight: float) -> Task:
    question = row.text("question")
    if not question.strip():
        raise TaskError(row.problem("is blank", "question"))
    # Golds are compared without commas: the published evaluators delete them on both sides.
    number = gold(row).replace(",", "")
    form = _FORMS.get(mode, MarkerMode.ANY)
    answer = row.text("answer").strip()
    if mode is NumberMode.STRICT_PHRASE:
        answer = f"{answer}\nThe answer is {number}."
    return Task(
        id=task_id,
        intent=question,
        family=FAMILY,
        budget=BUDGET,
        assertions=(
            NumberEquals(name="correct", gold=number, mode=mode),
            NumberFormat(name="format", mode=form, weight=format_weight),
        ),
        oracle=Oracle(answer=answer),
    )


def _label(file: str, split: str) -> str:
    """Return what tasks of a file are called by: its name, fit for an id; the split for the parts of one."""
    stem = re.sub(r".*/", "", file).partition(".")[0].lower()
    if file.startswith("hub:") or stem.startswith(split):
        return split
    return re.sub(r"[^a-z0-9_]+", "-", stem).strip("-") or split
