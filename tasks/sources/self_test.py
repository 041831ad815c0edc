"""The gold self-test of question sets: a right answer must score 1 and no answer 0, or figures on the set would lie."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tasks.assertions.grade import Grade, grade
from tasks.outcome import Outcome
from tasks.task import Task

TESTED = 2000
"""Tasks tested at most; of a larger set, so many spread over it evenly."""
SHOWN = 5
"""Problems named in a text."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What the self-test found.

    Attributes:
        questions: Tasks that the answer alone decides; `tested` of them were looked at.
        gold: Tested tasks that know a right answer; on `gold_right` of them it passes.
        empty_right: Tested tasks on which giving no answer scores 0.
        problems: Task and what is wrong, for each task that failed.
    """

    questions: int
    tested: int
    gold: int
    gold_right: int
    empty_right: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing failed."""
        return not self.problems

    @property
    def hopeless(self) -> bool:
        """Nothing can be learned or measured: no right answer passes, or every empty one earns something."""
        return bool(self.tested) and (bool(self.gold) and not self.gold_right or not self.empty_right)

    def text(self) -> str:
        """For people: the coverage, and the first problems, one a line."""
        head = f"gold scores 1 on {self.gold_right}/{self.gold}, empty 0 on {self.empty_right}/{self.tested}"
        if self.tested < self.questions:
            head += f" (of {self.questions} questions, {self.tested} were tested)"
        if self.tested and not self.gold:
            head += " (no task of the set knows a right answer)"
        lines = [head, *self.problems[:SHOWN]]
        if len(self.problems) > SHOWN:
            lines.append(f"and {len(self.problems) - SHOWN} more")
        return "\n  ".join(lines)


def self_test(tasks: Sequence[Task], most: int = TESTED) -> Coverage | None:
    """Grade the right answer (`oracle.answer`) and no answer, for every task that the answer alone decides.

    Args:
        tasks: Any tasks; those that judge more than the answer are left out.
        most: How many to test; of more, so many spread evenly.

    Returns:
        What was found, `None` where no task is a question. Nothing runs in a sandbox.
    """
    questions = [task for task in tasks if all(item.on_answer for item in task.assertions if item.weight)]
    if not questions:
        return None
    count = min(len(questions), most)
    chosen = [questions[i * len(questions) // count] for i in range(count)]
    problems: list[str] = []
    found: Counter[str] = Counter()
    for task in chosen:
        empty = _grade(task, None)
        if empty.rate == 0:
            found["empty"] += 1
        else:
            problems.append(f"{task.id}: no answer scores {_score(empty)}")
        if task.oracle is None or task.oracle.answer is None:
            continue
        found["gold"] += 1
        gold = _grade(task, task.oracle.answer)
        if gold.passed:
            found["right"] += 1
        else:
            problems.append(f"{task.id}: the right answer scores {_score(gold)}")
    return Coverage(len(questions), count, found["gold"], found["right"], found["empty"], tuple(problems))


def _grade(task: Task, answer: str | None) -> Grade:
    files = task.files()
    return grade(task, Outcome(files, files, answer))


def _score(graded: Grade) -> str:
    if graded.rate is None:
        return "nothing, for it could not be judged: " + "; ".join(f"{e.name}: {e.detail}" for e in graded.errors)
    failed = [f"{r.name}: {r.detail}" for r in graded.deciding if r.score != 1.0]
    return f"{graded.rate:.3g}" + (f" ({'; '.join(failed)})" if failed else "")
