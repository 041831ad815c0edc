"""Walking the assertions of a task: one result each, none hides another, and an error is never a score."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tasks.assertions.base import AssertionResult, BaseAssertion, Verdict, judge
from tasks.assertions.timing import TIMINGS
from tasks.outcome import Outcome

if TYPE_CHECKING:
    from tasks.task import Task


class GradeError(RuntimeError):
    """An assertion could not be decided, so there is no grade. Never a reward; counted and shown."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The results of one episode, in the order of the task's assertions; a script gives one per sub-score."""

    results: tuple[AssertionResult, ...]

    @property
    def deciding(self) -> tuple[AssertionResult, ...]:
        """The results that count: those with a weight."""
        return tuple(result for result in self.results if result.weight > 0)

    @property
    def passed(self) -> bool:
        """Whether every assertion that counts passed, and there was at least one."""
        return bool(self.deciding) and all(result.verdict is Verdict.PASS for result in self.deciding)

    @property
    def errors(self) -> tuple[AssertionResult, ...]:
        """The results that count and could not be decided."""
        return tuple(result for result in self.deciding if result.verdict is Verdict.ERROR)

    @property
    def rate(self) -> float | None:
        """Weighted mean score in [0, 1]; None if an assertion that counts erred or there is none."""
        if not self.deciding:
            return None
        total = weights = 0.0
        for result in self.deciding:
            if result.score is None:
                return None
            total += result.weight * result.score
            weights += result.weight
        return total / weights

    def with_errors(self) -> Grade:
        """Return the grade with an error in place of each fail whose check broke on what the agent made."""
        return Grade(tuple(replace(r, verdict=Verdict.ERROR, score=None) if r.broke else r for r in self.results))

    def require(self) -> Grade:
        """Return the grade itself if every assertion was decided.

        Raises:
            GradeError: an assertion erred, or there was none; the message names each.
        """
        if not self.deciding:
            raise GradeError("there is nothing to grade: the task has no assertion")
        if self.errors:
            raise GradeError("; ".join(f"{error.name}: {error.detail}" for error in self.errors))
        return self


def grade(task: Task, outcome: Outcome) -> Grade:
    """Check every assertion of the task against the outcome, in order.

    Raises:
        SandboxError: the sandbox failed while a grader's command ran in it. That is no verdict.
    """
    return Grade(_check_all(task.assertions, outcome))


def grade_files(task: Task, outcome: Outcome, *, broken_errs: bool = False) -> float | None:
    """Return the rate over the file assertions alone: what a turn signal is made of.

    Args:
        task: Whose assertions.
        outcome: The state after a turn.
        broken_errs: A check that broke on what the agent made is undecided, not a fail.

    Returns:
        The weighted mean score; None if the task has no file assertion or one of them could not be decided.
    """
    done = Grade(_check_all([item for item in task.assertions if item.on_files], outcome))
    return (done.with_errors() if broken_errs else done).rate


def _check_all(assertions: Sequence[BaseAssertion], outcome: Outcome) -> tuple[AssertionResult, ...]:
    return tuple(result for assertion in assertions for result in _timed(assertion, outcome))


def _timed(assertion: BaseAssertion, outcome: Outcome) -> tuple[AssertionResult, ...]:
    start = time.perf_counter()
    results = judge(assertion, outcome, apart=True)
    errors = sum(result.verdict is Verdict.ERROR for result in results)
    TIMINGS.note(str(assertion.kind), time.perf_counter() - start, errors)
    return results
