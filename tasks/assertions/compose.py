"""`any_of`, `all_of` and `not`: assertions made of assertions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, field_validator

from tasks.assertions.base import AssertionKind, AssertionResult, BaseAssertion, Verdict, judge, leaves
from tasks.assertions.on_files import UNSEEN
from tasks.model import Items, fault
from tasks.outcome import Outcome

if TYPE_CHECKING:
    Assertion = BaseAssertion

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
