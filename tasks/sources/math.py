"""MATH (Hendrycks et al. 2021): `math:PATH`, `math:hub`, or `math:sample` (ours). One task a problem.

The problems are not part of this product: their licence is disputed. A folder has the public layout (`train/` and
`test/`, in them a folder for each subject with one JSON file a problem), or holds rows as JSONL or Parquet; the keys
`problem`, `solution`, `level`, and `type` or `subject` are read, and `answer` where there is one (as in MATH-500).

Rows without level and subject whose answer is a whole number are those of AIME and sets like it: `problem` (or
`question`), `answer` (025 is 25), and `solution` where there is one, in any case of letters. Their family is `aime`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tasks.answers.math import MathEquivalent, MathFormat, MathMode
from tasks.answers.math.extraction import last_box
from tasks.model import TaskError, each, nearest
from tasks.sources.questions import HUB, SAMPLE, Row, choice, read_rows, split_spec, weight, whole_number
from tasks.task import Budget, Difficulty, Oracle, Task

SCHEME = "math"
PARAMETERS = ("split", "limit", "mode", "format_weight", "level", "subject")
HUB_NAME = "EleutherAI/hendrycks_math"
"""What plain `hub` stands for; it has one configuration for each subject."""
SUBJECTS = (
    "algebra",
    "counting_and_probability",
    "geometry",
    "intermediate_algebra",
    "number_theory",
    "prealgebra",
    "precalculus",
)
"""The seven subjects, as in tags: `subject:number_theory`."""
BUDGET = Budget(max_turns=8, turn_tokens=2048)
AIME = "aime"
AIME_BUDGET = Budget(max_turns=8, turn_tokens=8192)
"""Its solutions are several times longer than those of MATH."""


def load(rest: str | Path) -> list[Task]:
    r"""Load the problems that stand after `math:`, in the order of the set.

    After `?`, joined by `&`: `split=` (which split of a folder or of the hub), `level=` (1 to 5) and `subject=` (which
    problems), `limit=` (at most so many of them), `mode=` (of `math_equivalent`; `fixed`), `format_weight=` (of
    `math_format`; 0, so that it is shown and decides nothing).

    Raises:
        TaskError: nothing there, or malformed rows (each with file, line and key); a parameter that is none.
    """
    spec = f"{SCHEME}:{rest}"
    where, params = split_spec(str(rest), SCHEME, PARAMETERS)
    split, limit = params.get("split"), whole_number(params, "limit", spec)
    level = whole_number(params, "level", spec)
    subject = choice(params, "subject", spec, SUBJECTS, params["subject"]) if "subject" in params else None
    mode = MathMode(choice(params, "mode", spec, MathMode, MathMode.FIXED))
    format_weight = weight(params, "format_weight", spec)
    label = _label(where, split)

    def made(numbered: tuple[int, Row]) -> Task:
        number, row = numbered
        return to_task(row, f"{SCHEME}-{label}-{number:04d}", mode, format_weight)

    wanted = {f"level:{level}"} if level is not None else set()
    wanted |= {f"subject:{subject}"} if subject is not None else set()
    tasks = [task for task in each(enumerate(_rows(where, split), start=1), made) if wanted <= set(task.tags)]
    if not tasks:
        raise TaskError(f"{spec}: no problem has this level and subject; subjects are {', '.join(SUBJECTS)}")
    return tasks[:limit]


def to_task(row: Row, name: str, mode: MathMode = MathMode.FIXED, format_weight: float = 0.0) -> Task:
    r"""Make the task of one problem.

    Raises:
        TaskError: a key is missing or malformed, or the solution has no closed `\boxed{...}` and there is no `answer`.
    """
    if (number := _aime_answer(row)) is not None:
        return _aime_task(row, name, number, mode, format_weight)
    solution = row.text("solution")
    gold = row.text("answer") if "answer" in row.data else None
    if gold is None:
        box = last_box(solution)
        if box is None:
            raise TaskError(row.problem(r"holds no closed \boxed{...}: the answer is read from it", "solution"))
        gold = box.text.strip()
    level = _level(row)
    try:
        return Task(
            id=name,
            intent=row.text("problem"),
            family=SCHEME,
            tags=(f"level:{level}", f"subject:{_subject(row)}"),
            difficulty=_DIFFICULTY.get(level, Difficulty.MEDIUM),
            budget=BUDGET,
            assertions=(MathEquivalent(gold=gold, mode=mode), MathFormat(weight=format_weight)),
            oracle=Oracle(answer=solution),
        )
    except ValidationError as error:
        raise _no_task(row, error) from error


def _no_task(row: Row, error: ValidationError) -> TaskError:
    first = error.errors()[0]
    return TaskError(row.problem(f"makes no task: {first['msg']}", ".".join(str(part) for part in first["loc"])))


def _aime_answer(row: Row) -> str | None:
    """The whole number that answers a row of AIME, without zeros before it; `None` for a row of another kind."""
    if any(key in row.data for key in ("level", "type", "subject")):
        return None
    given = _lower(row)
    answer = given.get("answer")
    if answer is None and isinstance(solution := given.get("solution"), str) and (box := last_box(solution)):
        answer = box.text
    text = str(int(answer) if isinstance(answer, float) and answer.is_integer() else answer).strip()
    return str(int(text)) if re.fullmatch(r"-?[0-9]{1,30}", text) else None


def _aime_task(row: Row, name: str, number: str, mode: MathMode, format_weight: float) -> Task:
    given = Row(_lower(row), row.file, row.line)
    solution = str(given.data.get("solution") or "").strip()
    box = last_box(solution)
    if box is None or box.text.strip().lstrip("0") != number.lstrip("0"):  # often prose, or none
        solution = f"{solution}\n\nThe answer is $\\boxed{{{number}}}$.".strip()
    try:
        return Task(
            id=name,
            intent=given.text("problem" if "problem" in given.data else "question"),
            family=AIME,
            difficulty=Difficulty.HARD,
            budget=AIME_BUDGET,
            assertions=(MathEquivalent(gold=number, mode=mode), MathFormat(weight=format_weight)),
            oracle=Oracle(answer=solution),
        )
    except ValidationError as error:
        raise _no_task(row, error) from error


def _lower(row: Row) -> dict[str, Any]:
    return {key.lower(): value for key, value in row.data.items()}


_DIFFICULTY = {"1": Difficulty.EASY, "2": Difficulty.EASY, "5": Difficulty.HARD}


def _rows(where: str, split: str | None) -> Sequence[Row]:
    if where == HUB:
        return [row for subject in SUBJECTS for row in read_rows(where, SCHEME, HUB_NAME, split, subject)]
    return read_rows(where, SCHEME, HUB_NAME, split)


def _label(where: str, split: str | None) -> str:
    """What the ids say of where a problem is from; two sets of one run should not share ids."""
    if where == SAMPLE:
        return SAMPLE
    if split is None and (where == HUB or where.startswith(f"{HUB}/")):
        return "train"
    if split is None and Path(where).expanduser().is_dir():
        return "all"
    return re.sub(r"[^a-z0-9]+", "-", (split or Path(where).stem).lower()).strip("-") or "file"


def _level(row: Row) -> str:
    value = row.data.get("level")
    if value is None:
        row.text("level")  # says that it is missing
    match = re.fullmatch(r"(?:Level )?([1-5?])", str(value).strip())
    if match is None or isinstance(value, bool):
        raise TaskError(row.problem(f"must be 'Level 1' to 'Level 5' (or the number), not {value!r:.40}", "level"))
    return match.group(1)


def _subject(row: Row) -> str:
    key = "type" if "type" in row.data else "subject"
    value = row.text(key)
    name = re.sub(r"[^a-z]+", "_", value.lower().replace("&", "and")).strip("_")
    if name not in SUBJECTS:
        guess = nearest(name, SUBJECTS)
        hint = f"did you mean '{guess}'? " if guess else ""
        raise TaskError(row.problem(f"unknown subject '{value:.40}': {hint}(valid: {', '.join(SUBJECTS)})", key))
    return name
