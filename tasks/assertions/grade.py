"""From assertions to a grade: assertions made of assertions, one result each, and how long checks take."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, Outcome, Verdict, judge, leaves
from tasks.assertions.on_files import UNSEEN
from tasks.model import Items, fault

if TYPE_CHECKING:
    Assertion = BaseAssertion
    from tasks.task import Task


# -- `any_of`, `all_of` and `not`: assertions made of assertions ------------------------------------------------------

MAX_DEPTH = 4
"""How deep assertions may stand in one another."""


class _Composed(BaseAssertion):
    @property
    def on_files(self) -> bool:
        """Whether all that stand in it are."""
        return all(item.on_files for item in self.inner)

    def default_name(self) -> str:
        """Return the kind and the names of what stands in it."""
        return f"{self.kind}({', '.join(_name(item) for item in self.inner)})"[:200]

    def canonical(self) -> dict[str, Any]:
        """Return what defines this assertion, the canonical forms of those in it under `of`."""
        found = {"kind": str(self.kind), **self.model_dump(mode="json", exclude={"kind", "of"}, exclude_defaults=True)}
        return {**found, "of": [item.canonical() for item in self.inner]}

    def _failed(self, results: list[AssertionResult], head: str, broke: bool) -> AssertionResult:
        detail = f"{head}{_details(results)}"
        return self.broken(detail) if broke else self.failed(detail)

    def _results(self, outcome: Outcome) -> list[AssertionResult]:
        return [judge(item, outcome)[0] for item in self.inner]


class _Several(_Composed):
    of: Items[Assertion] = Field(min_length=1)

    @field_validator("of")
    @classmethod
    def _may_stand_inside(cls, of: tuple[BaseAssertion, ...]) -> tuple[BaseAssertion, ...]:
        for number, item in enumerate(of):
            _may_stand_inside(item, number)
        return of

    @property
    def inner(self) -> tuple[BaseAssertion, ...]:
        """What stands under `of`."""
        return self.of


class AnyOf(_Several):
    """At least one of those under `of` holds. One that cannot be decided, or broke, counts only if none holds."""

    kind: Literal[AssertionKind.ANY_OF] = AssertionKind.ANY_OF

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass as soon as one passes; the rest are not looked at."""
        results: list[AssertionResult] = []
        for item in self.inner:
            results += judge(item, outcome)
            if results[-1].verdict is Verdict.PASS:
                return self.passed()
        if any(result.verdict is Verdict.ERROR for result in results):
            return self.erred(f"none holds: {_details(results)}")
        return self._failed(results, "none holds: ", any(result.broke for result in results))

    def describe(self) -> str:
        """Return the condition in words."""
        return " or ".join(f"({item.describe()})" for item in self.inner)


class AllOf(_Several):
    """Each of those under `of` holds; no part credit. A fail decides, whatever else could not be decided, or broke."""

    kind: Literal[AssertionKind.ALL_OF] = AssertionKind.ALL_OF

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if all pass."""
        bad = [result for result in self._results(outcome) if result.verdict is not Verdict.PASS]
        fails = [result for result in bad if result.verdict is Verdict.FAIL]
        if fails:
            return self._failed(bad, "", all(result.broke for result in fails))
        return self.erred(_details(bad)) if bad else self.passed()

    def describe(self) -> str:
        """Return the condition in words."""
        return " and ".join(f"({item.describe()})" for item in self.inner)


class Not(_Composed):
    """The assertion under `of` does not hold. If that is undecided, so is this; if it broke, this fails."""

    kind: Literal[AssertionKind.NOT] = AssertionKind.NOT
    of: Assertion

    @field_validator("of")
    @classmethod
    def _may_stand_inside(cls, of: BaseAssertion) -> BaseAssertion:
        _may_stand_inside(of)
        return of

    @property
    def inner(self) -> tuple[BaseAssertion, ...]:
        """What stands under `of`, alone."""
        return (self.of,)

    def canonical(self) -> dict[str, Any]:
        """Return what defines this assertion."""
        return {**super().canonical(), "of": self.of.canonical()}

    def check(self, outcome: Outcome) -> AssertionResult:
        """Pass if the other fails."""
        (result,) = judge(self.of, outcome)
        if result.verdict is Verdict.ERROR:
            return self.erred(_details([result]))
        if result.verdict is Verdict.PASS:
            return self.failed(f"holds: {self.of.describe()}")
        if result.broke:  # breaking a check must not be a way to pass it
            return self.broken(_details([result]))
        unseen = outcome.cut_short and any(leaf.on_files for leaf in leaves(self))
        return self.broken(UNSEEN) if unseen else self.passed()

    def describe(self) -> str:
        """Return the condition in words."""
        return f"not ({self.of.describe()})"


def _may_stand_inside(item: BaseAssertion, *at: int) -> None:
    if "weight" in item.model_fields_set:
        raise fault("an assertion inside another has no weight: give it to the outer one", *at, "weight")
    if _depth(item) >= MAX_DEPTH:
        raise fault(f"assertions stand in one another more than {MAX_DEPTH} deep", *at)


def _depth(item: BaseAssertion) -> int:
    return 1 + max(map(_depth, item.inner), default=0)


def _name(item: BaseAssertion) -> str:
    return item.name or item.default_name()


def _details(results: list[AssertionResult]) -> str:
    return "; ".join(f"{result.name}: {result.detail}" for result in results)[:1000]


# -- How long checks take, by kind of assertion: counts, errors, and the 50th and 95th percentile ---------------------
# Every check that `tasks.assertions.grade` makes is noted, from any thread. Percentiles are over the last `KEPT`
# checks of a kind, counts over all since the last `reset_timings`.

KEPT = 4096
"""Checks of a kind that the percentiles look back on."""


@dataclass(frozen=True, slots=True)
class KindTiming:
    """What the checks of one kind took.

    Attributes:
        kind: Kind of the assertion, as in a task file.
        n: Checks since the last reset.
        errors: Checks among them that could not be decided (timeouts of a verifier too).
        p50: Median, in milliseconds.
        p95: 95th percentile, in milliseconds.
    """

    kind: str
    n: int
    errors: int
    p50: float
    p95: float

    def __str__(self) -> str:
        errors = f", {self.errors} errors" if self.errors else ""
        return f"{self.kind} p50 {self.p50:.3g} ms, p95 {self.p95:.3g} ms (n={self.n}{errors})"


@dataclass(slots=True)
class _Kind:
    n: int = 0
    errors: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))


class Timings:
    """Collects times by kind. One for the whole process is enough: `TIMINGS`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[str, _Kind] = {}

    def note(self, kind: str, seconds: float, errors: int = 0) -> None:
        """Count one check; `errors` of its results could not be decided."""
        with self._lock:
            entry = self._kinds.get(kind)
            if entry is None:
                entry = self._kinds[kind] = _Kind()
            entry.n += 1
            entry.errors += errors
            entry.seconds.append(seconds)

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self._kinds.clear()

    def table(self) -> list[KindTiming]:
        """What was noted, by kind, sorted by name."""
        with self._lock:
            held = [(kind, entry.n, entry.errors, sorted(entry.seconds)) for kind, entry in self._kinds.items()]
        return [KindTiming(k, n, errors, _at(times, 0.5), _at(times, 0.95)) for k, n, errors, times in sorted(held)]


TIMINGS = Timings()
"""What `grade` and `grade_files` note in this process."""


def timing_table() -> list[KindTiming]:
    """What the checks of this process took since the last `reset_timings`, by kind."""
    return TIMINGS.table()


def reset_timings() -> None:
    """Start counting anew."""
    TIMINGS.reset()


def _at(times: list[float], share: float) -> float:
    """Nearest-rank percentile, in milliseconds."""
    return 1000 * times[min(len(times) - 1, int(share * len(times)))]


# -- Walking the assertions of a task: one result each, none hides another, and an error is never a score -------------


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
